"""Others' words in our messages: one line, of characters that can be printed, not too long.

What a job that failed said last is its own words, not those of the launchers around it.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

MOST_CHARACTERS = 200
LONGEST_MESSAGE = 4_000
_LAUNCHERS = re.compile(
    r"srun: |slurmstepd(?:-\S+)?: |mpiexec: |\[mpiexec@|\[proxy:|Abort\(|===|internal ABORT"
)
_CANCELLED = re.compile(
    r"^(?:slurmstepd(?:-\S+)?|srun): error: \*\*\* JOB \S+ ON \S+ CANCELLED AT .*$", re.MULTILINE
)
_OWN = ("rrba: ", "eiba: ")
_REPORT = '{"app":'
"""How an application's account of itself begins, which is no word on why it failed."""
_MOST_WORDS_BYTES = 1 << 16
_NO_INIT = "Fatal error in internal_Init"
# What UCX 1.18 logs: `[time] [host:pid:thread]  file.c:line UCX  ERROR words`.
_UCX_ERROR = re.compile(r"\bUCX +ERROR +")
# Slurm 22.05, src/plugins/mpi/pmi2/pmi1.c: what it says of a request that was longer than its buffer.
_CUT = re.compile(
    r"^(?:\d+: )?slurmstepd(?:-(?P<node>\S+))?: error: mpi/pmi2: (?P<what>value not properly terminated in "
    r"client request|request not begin with 'cmd='|invalid client request)",
    re.MULTILINE,
)
_LOST = re.compile(r"^srun: error: mpi/pmi2: failed to send temp kvs to compute nodes", re.MULTILINE)
# Its srun: said once when a step must wait; "Step created for job" ends the wait.
_STEP_WAITS = re.compile(r"srun: Job \S+ step creation temporarily disabled")


def one_line(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text as one line: control characters and line ends become ``?``, a long end is cut."""
    shown = text if len(text) <= most else text[: most - 3] + "..."
    return shown if shown.isprintable() else "".join(one if one.isprintable() else "?" for one in shown)


def last_words(output: Path) -> str | None:
    """Return the line of a job's output that says why it failed, None where no plain file has one.

    What our applications say comes first, then what neither a launcher nor their report said: srun tells of
    each rank that it ended, after the rank has said why. What a job says after it was cancelled is no cause.
    """
    ends = _ends(output)
    if ends is None:
        return None
    if (fault := _launch_fault("\n".join(ends))) is not None:
        return fault
    cancelled = _CANCELLED.search(ends[-1])
    text = ends[-1] if cancelled is None else ends[-1][: cancelled.end()]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(_OWN)]
    others = [line for line in lines if not _LAUNCHERS.match(line) and not line.startswith(_REPORT)]
    said = own or others or lines
    if not own and any(_NO_INIT in line for line in lines):
        causes = [line[found.end() :] for line in lines if (found := _UCX_ERROR.search(line))]
        return one_line(f"MPI_Init failed: {f'UCX: {causes[0]}' if causes else said[-1]}")
    return one_line(said[-1]) if said else None


def launch_fault(output: Path, *, completed: bool = False) -> str | None:
    """Return what a job's output says of a fault of its launch; None for none.

    Of a job that completed only a start of MPI counts whose messages Slurm cut: it may run with wrong
    addresses and exit with 0.
    """
    ends = _ends(output)
    return None if ends is None else _launch_fault("\n".join(ends), completed=completed)


def _launch_fault(text: str, *, completed: bool = False) -> str | None:
    cut = _CUT.search(text)
    if cut is not None:
        node = f" on node {cut['node']}" if cut["node"] else ""
        return one_line(
            f"Slurm's mpi/pmi2 cut a message of MPI_Init{node} ({cut['what']}): start MPI with "
            "MPIR_CVAR_CH4_NETMOD=ofi"
        )
    if _LOST.search(text) and not completed:
        return (
            "srun could not pass on the addresses of MPI_Init (mpi/pmi2: failed to send temp kvs): was the "
            "job suspended while it started?"
        )
    waits = _STEP_WAITS.search(text, max(text.rfind("tep created for "), 0))
    if waits is not None and not completed:
        return one_line(
            f"a step waited for cores that the job's other step had ({waits[0]}): give an srun inside srun "
            "--overlap, or do without it"
        )
    return None


def _ends(output: Path) -> list[str] | None:
    """Return the first and the last part of a job's output; None where it is no plain file."""
    try:
        # A job can put anything there: nothing is followed, and nothing is waited for.
        with os.fdopen(os.open(output, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            known = os.fstat(stream.fileno())
            if not stat.S_ISREG(known.st_mode):
                return None
            first = stream.read(_MOST_WORDS_BYTES)
            stream.seek(max(0, known.st_size - _MOST_WORDS_BYTES))
            last = stream.read(_MOST_WORDS_BYTES)
    except OSError:
        return None
    return [part.decode("utf-8", errors="replace") for part in ([first] if first == last else [first, last])]
