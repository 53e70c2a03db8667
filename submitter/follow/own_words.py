"""What a job that failed said last: its own words, not those of the launchers around it."""

from __future__ import annotations

from pathlib import Path

from foundation.one_line import one_line

_LAUNCHERS = (
    "srun: ",
    "slurmstepd: ",
    "mpiexec: ",
    "[mpiexec@",
    "[proxy:",
    "Abort(",
    "===",
    "internal ABORT",
)
_OWN = ("rrba: ", "eiba: ")
_MOST_BYTES = 1 << 16


def last_words(output: Path) -> str | None:
    """Return the line of a job's output that says why it failed, None where there is no output.

    What our applications say comes first, then what no launcher said: srun tells of each rank that it ended,
    after the rank has said why.
    """
    try:
        with output.open("rb") as stream:
            stream.seek(max(0, output.stat().st_size - _MOST_BYTES))
            text = stream.read(_MOST_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(_OWN)]
    others = [line for line in lines if not line.startswith(_LAUNCHERS)]
    said = own or others or lines
    return one_line(said[-1]) if said else None
