"""The reader's process: ``python -m foundation.slurm.subprocess_reader.process``.

It asks Slurm on request, and answers with what has changed. It ends when its standard input does, whatever
it is doing then, so that none is left behind.
"""

from __future__ import annotations

import argparse
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from foundation.errors import ClusterError, HostError
from foundation.slurm.command_slurm import CommandSlurm
from foundation.slurm.hosts import NodeBook
from foundation.slurm.job_sources import ChosenSource, JobSource, LibraryPulse, QuietLibrary
from foundation.slurm.pyslurm_library import LibrarySource, fitting_load, is_installed
from foundation.slurm.run_command import end_commands
from foundation.slurm.slurm_types import JobSnapshot, SlurmJob, SlurmNode, UnreadableJob
from foundation.slurm.subprocess_reader import (
    AnswerComplete,
    AnswerFault,
    BrokenPipe,
    Decoder,
    Gone,
    Jobs,
    Look,
    NodesFrame,
    UnreadJobs,
    encode,
    parts,
)

LIBRARY, COMMANDS = "pyslurm", "commands"
MOST_UNREADABLE = 10_000


class Reader:
    """Answers looks, each with the difference to the one before.

    Parameters
    ----------
    source
        Where jobs are read from.
    book
        The cluster's nodes, for the source.
    all_jobs
        Whether jobs that are over are sent, too.
    """

    def __init__(self, source: ChosenSource, book: NodeBook, *, all_jobs: bool = True) -> None:
        self._source = source
        self._book = book
        self._all = all_jobs
        self._sent: dict[int, SlurmJob] = {}

    def answer(self, nodes: Sequence[SlurmNode] | None, to: BinaryIO) -> None:
        """Look, and write what there is to tell, nodes first if they were asked for too."""
        snapshot = self._source.read(self._book)
        if nodes is not None:
            to.writelines(parts(nodes, NodesFrame, lambda _: None))
        now = {job.job_id: job for job in snapshot.jobs if self._all or not job.state.is_over}
        unread = [*snapshot.unreadable[:MOST_UNREADABLE]]

        def leave_out(job: SlurmJob) -> None:
            del now[job.job_id]
            unread.append(UnreadableJob(job.job_id, "its record is too long"))

        sent = self._sent.get
        news = [job for key, job in now.items() if (was := sent(key)) is not job and was != job]
        to.writelines(parts(news, Jobs, leave_out))
        to.writelines(parts((key for key in self._sent if key not in now), Gone, lambda _: None))
        to.writelines(parts(_bounded(unread, snapshot), UnreadJobs, lambda _: None))
        self._sent = now
        to.writelines([encode(AnswerComplete(len(now), self._source.name or COMMANDS))])
        to.flush()


def _bounded(unread: list[UnreadableJob], snapshot: JobSnapshot) -> list[UnreadableJob]:
    """Say of what is beyond the bound that there may be any job among it."""
    if len(snapshot.unreadable) > MOST_UNREADABLE:
        unread.append(UnreadableJob(None, f"and {len(snapshot.unreadable) - MOST_UNREADABLE} more"))
    return unread


def serve(client: CommandSlurm, reader: Reader, looks: queue.SimpleQueue[Look], to: BinaryIO) -> None:
    """Answer looks for ever."""
    while True:
        look = looks.get()
        try:
            nodes = client.nodes() if look.nodes else None
            reader.answer(nodes, to)
        except ClusterError as error:
            to.write(encode(AnswerFault.of(error)))
            to.flush()
        except HostError as error:  # a command is missing, or another process cannot start
            to.write(encode(AnswerFault("other", str(error))))
            to.flush()


def take_looks(looks: queue.SimpleQueue[Look]) -> None:
    """Take requests; end the process, and the command that it runs, when the parent closes the pipe."""
    decoder = Decoder(Look)
    try:
        while True:
            decoder.feed(0)
            while isinstance(look := decoder.take(), Look):
                looks.put(look)
    except BrokenPipe:
        end_commands()
        os._exit(0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="foundation.slurm.subprocess_reader.process", description=__doc__)
    parser.add_argument("--conf", type=Path, help="slurm.conf; without it the environment's Slurm")
    parser.add_argument(
        "--alive", action="store_true", help="tell of no jobs that are over, and little of those that wait"
    )
    parser.add_argument("--source", choices=("any", LIBRARY, COMMANDS), default="any")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks ends us
    os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))  # slices come first
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    answers = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    os.dup2(2, 1)  # what a library prints is no answer
    client = CommandSlurm(options.conf)
    sources: dict[str, JobSource] = {}
    if options.source == LIBRARY or (options.source == "any" and is_installed()):
        library = LibrarySource(lambda: fitting_load(client.version), alive_only=options.alive)
        sources[LIBRARY] = QuietLibrary(library, LibraryPulse())
    if options.source != LIBRARY:
        sources[COMMANDS] = client.source
    reader = Reader(ChosenSource(sources), client.book, all_jobs=not options.alive)
    looks: queue.SimpleQueue[Look] = queue.SimpleQueue()
    threading.Thread(target=take_looks, args=(looks,), daemon=True).start()
    try:
        serve(client, reader, looks, answers)
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
