"""A command on a cluster in containers: it runs in the controller's, its files go in and come out."""

from __future__ import annotations

import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deploy.compose.cluster import holds_one
from deploy.compose.forwarded_command import ControllerContainer
from deploy.compose.inside.controller import HOST, HOST_USER
from deploy.local.watch import SAMPLE_S, watch_containers
from foundation.errors import ClusterError, OutputError, UsageError
from foundation.files import refuse_unwritable, write_whole
from foundation.records import HostRecord, read_host, write_host
from foundation.records.records_folder import (
    INFO_NAME,
    is_finished,
    read_info,
    refuse_to_replace,
    remove_run,
)
from osub.live.gangd_state import without_gangd

Hear = Callable[[Callable[[int], object]], AbstractContextManager[None]]
_SIGNALLED = 128
GANGD = "/var/lib/gangd/state"
"""gangd's state folder in a controller's container."""
_ABSOLUTE = re.compile(r"((?:--set=)?jobs=|--[^=]+=|)(/.*)", re.DOTALL)
"""A path, after an option's name or as the file of ``--set jobs=``."""


def is_in_containers(cluster: Path | None) -> bool:
    """Return whether a folder that ``--cluster`` or ``--state`` names holds a cluster in containers."""
    return cluster is not None and holds_one(cluster)


def forward(
    cluster: Path,
    hear: Hear,
    inputs: Iterable[Path | None] = (),
    words: Sequence[str] | None = None,
    user: str = HOST_USER,
    out: Path | None = None,
) -> int:
    """Run this command in the controller's container; returns its exit code.

    Parameters
    ----------
    cluster
        The state folder of the cluster in containers.
    hear
        Signals that ask this command to end, while the context lasts.
    inputs
        Files that the command reads.
    words
        The command; None: as it was typed.
    user
        The container's user that runs it.
    out
        A text file that the command writes, which is copied here.

    Raises
    ------
    ClusterError
        The controller's container does not run, has another version of osub, or ended before the command.
    OutputError
        ``out`` cannot be written.
    """
    controller = ControllerContainer.of(cluster)
    if out is not None:
        refuse_unwritable(out)
    code = _run(controller, hear, inputs, sys.argv[1:] if words is None else words, user)
    if out is not None and (written := controller.read(out)) is not None:
        write_whole(out, written)
    return code


def forward_live(cluster: Path, hear: Hear, inputs: Iterable[Path | None]) -> int:
    """Run this command as root, with ``--live`` for its ``--cluster``; see ``forward``.

    The Slurm of the container is the controller's own, and root alone may evict other users' jobs there.
    """
    return forward(cluster, hear, inputs, _typed("--cluster", "--live"), user="root")


def forward_order(cluster: Path, hear: Hear) -> int:
    """Run this command as root, with gangd's folder for its ``--state``; see ``forward_to_gangd``."""
    return forward_to_gangd(cluster, hear, _typed("--state", "--gangd", GANGD), user="root")


def forward_to_gangd(cluster: Path, hear: Hear, words: Sequence[str], user: str = HOST_USER) -> int:
    """Run a command about gangd; see ``forward``.

    Raises
    ------
    ClusterError
        The cluster has no gangd, or as ``forward``.
    """
    controller = ControllerContainer.of(cluster)
    if not controller.has_gangd:
        raise without_gangd(cluster)
    return _run(controller, hear, (), words, user)


def _typed(option: str, *instead: str) -> list[str]:
    """Return this command as it was typed, with other words for an option with a value."""
    words = sys.argv[1:]
    named = [place for place, word in enumerate(words) if word.partition("=")[0] == option]
    for place in named[:1]:
        words[place : place + (1 if "=" in words[place] else 2)] = instead
    return words


def forward_replay(
    cluster: Path,
    hear: Hear,
    inputs: Iterable[Path | None],
    out: Path,
    words: Sequence[str] | None = None,
    *,
    finds_gangd: bool = True,
    dry_run: bool = False,
    resume: bool = False,
    force: bool = False,
) -> int:
    """Run this replay in the controller's container and copy the RUN to ``out``; returns its exit code.

    A RUN that is not finished stays in the cluster, too, and goes on there with ``--resume``. Who uses the
    host meanwhile is sampled here: a container does not see others' processes.

    Raises
    ------
    OutputError
        ``out`` cannot take the RUN; once it was replayed, the RUN is kept in the cluster.
    ClusterError
        As ``forward``.
    UsageError
        There is no RUN to go on with.
    """
    if not resume and not dry_run:
        refuse_to_replace(out, force=force)
        if not (out / INFO_NAME).exists() and out.is_dir() and any(out.iterdir()):
            raise OutputError(f"{out} holds what no run made; choose another folder")
    controller = ControllerContainer.of(cluster)
    samples = _samples_of(out) if resume and (out / INFO_NAME).is_file() else []
    if resume and controller.has(out / INFO_NAME):
        with _kept_on_failure():
            _bring(controller, out, samples)
        if is_finished(out):
            print(f"osub: {out} was finished in the cluster meanwhile", file=sys.stderr)
            return 0
    elif resume and (out / INFO_NAME).is_file():
        controller.put([out])
    elif resume:
        raise UsageError(f"--resume: there is no RUN in {out}, and none of that name in the cluster")
    gangd = ["--gangd", GANGD] if finds_gangd and controller.has_gangd else []
    try:
        with nullcontext() if dry_run else _sampled(controller, samples):
            code = _run(
                controller,
                hear,
                () if resume else inputs,
                [*(_typed("--repeat") if words is None else words), *gangd],
            )
    finally:
        if not dry_run:
            with _kept_on_failure():
                _bring(controller, out, samples)
    return code


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedReplay:
    """A replay of a command's own: its trace and table of applications, its RUN, its name, its time at most.

    ``trial`` is its number, and ``block_jobs`` how many jobs the trace repeats, if it does. The memory that
    its jobs ask for is of another machine.
    """

    swf: Path
    apps: Path | None
    out: Path
    title: str
    label: str
    trial: int = 1
    most_s: float
    block_jobs: int | None = None


def replay_there(cluster: Path, hear: Hear, asked: AskedReplay) -> None:
    """Replay on a cluster that a command made for itself, and copy the RUN.

    Raises
    ------
    KeyboardInterrupt
        The user ended the replay.
    ClusterError
        The replay failed, or as ``forward``.
    OutputError
        As ``forward_replay``.
    """
    words = ["replay", str(asked.swf), "--cluster", str(cluster), "--out", str(asked.out)]
    words += ["--label", asked.label, "--no-memory", "--most-s", str(asked.most_s)]
    words += ["--trial", str(asked.trial)]
    words += [] if asked.apps is None else ["--apps", str(asked.apps)]
    words += [] if asked.block_jobs is None else ["--block-jobs", str(asked.block_jobs)]
    with redirect_stdout(sys.stderr):  # the caller's own output may be JSON
        code = forward_replay(cluster, hear, (asked.swf, asked.apps), asked.out, words)
    if code > _SIGNALLED:
        raise KeyboardInterrupt("its cluster is gone, finished runs are kept")
    if code:
        raise ClusterError(f"{asked.label}: `osub replay` in the controller ended with exit code {code}")


def _run(
    controller: ControllerContainer,
    hear: Hear,
    inputs: Iterable[Path | None],
    words: Sequence[str],
    user: str = HOST_USER,
) -> int:
    files = [path for path in inputs if path is not None and path.exists()]
    if files:
        controller.put(files)
    command = controller.start([_word(word) for word in words], user)
    with hear(command.signal):
        return command.wait()


def _word(word: str) -> str:
    """Return a word of the command line as the container has it: absolute paths are below ``HOST``."""
    named = _ABSOLUTE.fullmatch(word)
    if named is None or Path(named[2]).is_relative_to(GANGD):
        return word
    return f"{named[1]}{HOST}{named[2]}"


def _samples_of(run: Path) -> list[HostRecord]:
    """Return a RUN's samples of the host, at instants of the host's clock."""
    found = read_host(run)
    origin_s = read_info(run).origin_s if found else 0.0
    return [msgspec.structs.replace(one, at_s=origin_s + one.at_s) for one in found]


@contextmanager
def _sampled(controller: ControllerContainer, samples: list[HostRecord]) -> Iterator[None]:
    """Sample meanwhile who uses the host, at instants of its clock, where the containers run on it."""
    watch = watch_containers(controller.containers, controller.cpus)
    if watch is None:
        yield
        return
    over = threading.Event()

    def look(*, last: bool = False) -> None:
        sample = watch(time.time(), last=last)
        if sample is not None:
            samples.append(sample)

    def go_on() -> None:
        while not over.wait(SAMPLE_S / 2):
            look()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look(last=True)


def _bring(controller: ControllerContainer, out: Path, samples: Sequence[HostRecord]) -> None:
    """Copy the RUN out of the container, in place of an earlier copy; one that is finished leaves it."""
    if not controller.has(out / INFO_NAME):
        return
    draft = controller.fetch(out)
    try:
        if samples:
            origin_s = read_info(draft).origin_s
            since = [(round(one.at_s - origin_s, 3), one) for one in samples]
            write_host(draft, [msgspec.structs.replace(one, at_s=at_s) for at_s, one in since if at_s >= 0])
        left = remove_run(out, unfinished=True) if (out / INFO_NAME).is_file() else []
        if left:
            raise OutputError(f"{out} holds what no run made ({', '.join(left)}); move it away")
        draft.rename(out)
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if is_finished(out):
        controller.remove(out)


@contextmanager
def _kept_on_failure() -> Iterator[None]:
    """Have an error say where the RUN is that could not be copied."""
    try:
        yield
    except OutputError as error:
        raise OutputError(
            f"{error}; the RUN is kept in the cluster, the same command with --resume copies it"
        ) from error
