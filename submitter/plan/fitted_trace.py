"""``osub replay --fit``: an archive's log as a replay that fits the cluster at hand, and so many seconds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foundation.errors import UsageError
from foundation.units import counted
from submitter.plan.target_cluster import Target
from workloads.swf import read_swf, write_swf
from workloads.trace.scaling import make_miniature
from workloads.trace.transforms import Window

SHORTEST_S = 10.0


@contextmanager
def fitting(
    trace: Path,
    seconds: float,
    target: Target,
    *,
    seed: int,
    interactive_queue: int | None,
    start_s: float | None,
    length_s: float | None,
    lenient: bool = False,
) -> Iterator[tuple[Path, str]]:
    """Give the miniature of a trace as a file, while the context lasts, and a sentence about it.

    It keeps what ``osub trace scale`` keeps: proportions of sizes, run times and arrivals of a busy day, or
    of the stretch from ``start_s``.

    Raises
    ------
    UsageError
        The numbers are none that a replay can have, or the stretch has no jobs.
    InputError
        The trace can't be read.
    """
    if not seconds >= SHORTEST_S:
        raise UsageError(f"--fit takes the seconds that the replay may take, {SHORTEST_S:g} at least")
    if (start_s is None) != (length_s is None):
        raise UsageError("--fit takes --start and --length together, or finds a busy day itself")
    window = None
    if start_s is not None and length_s is not None:
        end_s = start_s + length_s
        window = Window(start_s, start_s, end_s, end_s, "--start and --length")
    pool = target.batch
    small = make_miniature(
        read_swf(trace, strict=not lenient),
        len(pool.names),
        pool.cores,
        seconds,
        seed=seed,
        interactive_queue=0 if interactive_queue is None else interactive_queue,
        interactive_jobs=0 if interactive_queue is None else None,
        window=window,
    )
    told = (
        f"{trace.name} fitted to N{len(pool.names)}C{pool.cores}: {counted(len(small.trace.jobs), 'job')}, "
        "about "
        f"{small.makespan_s:.0f} s with one job a core; times between jobs divided by "
        f"{small.arrivals_speedup:.0f}, a run of an hour takes "
        f"{small.run_factor * 3600**small.run_exponent:.1f} s"
    )
    with tempfile.TemporaryDirectory(prefix="osub-fit-") as folder:
        path = Path(folder) / f"{trace.name.removesuffix('.gz').removesuffix('.swf')}-fit.swf.gz"
        write_swf(path, small.trace)
        yield path, told
