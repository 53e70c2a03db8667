"""What a benchmark says at its end; pure text.

A changed iteration count makes NPB print ``UNSUCCESSFUL`` and exit with code 0, since it compares with a
reference of the usual count. So that word says nothing here: a run is judged by whether it completed, by the
time that it reports, and by whether it made the iterations that were asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """The benchmark's own account: seconds of its timed loop, and iterations."""

    time_s: float
    iterations: int


def read_result(output: str, iterations: int) -> Result | str:
    """Return the account, or in a sentence why there is none or a wrong one.

    Parameters
    ----------
    output
        All that the benchmark printed.
    iterations
        What its input file asked for.
    """
    if not re.search(r"Benchmark Completed", output, re.IGNORECASE):
        last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "nothing")
        return f"the benchmark did not complete; it printed last: {last}"
    time_s = re.search(r"Time in seconds\s*=\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)", output)
    made = re.search(r"^\s*Iterations\s*=\s*([0-9]+)", output, re.MULTILINE)
    if time_s is None or made is None:
        return "the benchmark completed but printed no time, or no iterations"
    if int(made[1]) != iterations:
        return (
            f"the benchmark made {made[1]} iterations, not {iterations}: it did not read its input file; "
            "is it NPB 3.4 of this class?"
        )
    return Result(float(time_s[1]), int(made[1]))
