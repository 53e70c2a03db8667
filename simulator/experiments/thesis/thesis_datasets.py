"""The traces of the experiments: cleaning as in the thesis's program, interactive patterns, data sets 1 to 6.

Sources: thesis sections 5.3.3, 6.3.1 and 6.4.2, Tables 5.1 and 6.4; the published NCS program for the
cleaning: an unknown run time is taken from the CPU time, a job without either is left out, a run time of zero
becomes 1 s. For UniLu-Gaia that and leaving out the 88 interactive jobs wider than a node gives the thesis's
51,871 jobs, 1,762 interactive, 82 users.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from foundation.errors import InputError
from foundation.units import counted
from simulator.jit.field_records import Ints
from workloads.swf import InteractivePattern, SwfColumns, procs_column
from workloads.swf.swf_job import RESERVED_COLUMNS
from workloads.trace.models import MOST_CORES, MOST_RUN_S, choose, synthesize_patterns

DATA_SETS = (1_762, 6_500, 15_913, 25_336, 34_772, 39_473)
"""Interactive jobs of data sets 1 to 6 (Table 6.4)."""


def cleaned(trace: SwfColumns, most_cores: int | None, interactive_queue: int = 0) -> SwfColumns:
    """Return the trace without what the thesis left out, with a run time for every job.

    Interactive jobs of more than ``most_cores`` cores are left out; None: none is.

    Raises
    ------
    InputError
        No job is left.
    """
    frame = trace.frame.with_row_index("row").with_columns(run_s=pl.coalesce("run_s", "cpu_s"))
    interactive = pl.col("queue").fill_null(-1) == interactive_queue
    too_wide = interactive & (procs_column() > most_cores) if most_cores is not None else pl.lit(value=False)
    kept = frame.filter(
        pl.col("run_s").is_not_null() & procs_column().is_not_null() & ~too_wide
    ).with_columns(run_s=pl.when(pl.col("run_s") == 0).then(1.0).otherwise("run_s"))
    if not kept.height:
        raise InputError(f"trace {trace.name} has no job with a run time")
    new_row = {old: new for new, old in enumerate(kept["row"].to_list())}
    # a pattern of no length would contradict the second that its job now runs
    extensions = {
        new_row[row]: extension
        for row, extension in trace.extensions.items()
        if row in new_row
        and (pattern := InteractivePattern.from_extension(extension))
        and pattern.total_s > 0
    }
    return replace(trace, frame=kept.drop("row"), extensions=extensions)


def in_blocks(trace: SwfColumns) -> SwfColumns:
    """Return the trace with busy periods before idle ones in columns 25 and up, where they alternate.

    Table 6.1 of the thesis has all activations first. The published data sets (``..._alloced.swf``) and the
    program that reads them have activation, idle, activation, ...
    """
    first = RESERVED_COLUMNS + 3
    extensions = {
        row: (*extension[:first], *extension[first::2], *extension[first + 1 :: 2])
        for row, extension in trace.extensions.items()
    }
    return replace(trace, extensions=extensions)


def with_interactive_jobs(trace: SwfColumns, wanted: int, seed: int, queue: int = 0) -> SwfColumns:
    """Return the trace with ``wanted`` interactive jobs, batch jobs chosen at random among small short ones.

    Sets for larger numbers contain those for smaller ones.

    Raises
    ------
    InputError
        There are not so many jobs to choose from.
    """
    frame = trace.frame
    interactive = (frame["queue"].fill_null(-1) == queue).to_numpy()
    missing = wanted - int(interactive.sum())
    small = (
        frame.select((procs_column() <= MOST_CORES) & (pl.col("run_s") < MOST_RUN_S)).to_series().to_numpy()
    )
    candidates = np.flatnonzero(small & ~interactive)
    if missing > len(candidates):
        raise InputError(
            f"trace {trace.name} has {counted(len(candidates), 'batch job')} to make interactive, "
            f"not {missing}"
        )
    if missing <= 0:
        return trace
    queues: Ints = frame["queue"].fill_null(-1).to_numpy().copy()
    queues[choose(candidates.tolist(), missing, seed)] = queue
    return replace(trace, frame=frame.with_columns(queue=pl.Series(queues)))


def with_patterns(trace: SwfColumns, seed: int, queue: int = 0) -> SwfColumns:
    """Return the trace with busy and idle periods for the interactive jobs that have none (section 6.3.1)."""
    rows = np.flatnonzero((trace.frame["queue"].fill_null(-1) == queue).to_numpy())
    rows = np.array([row for row in rows.tolist() if row not in trace.extensions], dtype=np.int64)
    if not len(rows):
        return trace
    runs = trace.frame["run_s"].to_numpy()[rows]
    patterns = synthesize_patterns(runs, np.random.default_rng(seed))
    fresh = {row: pattern.to_extension() for row, pattern in zip(rows.tolist(), patterns, strict=True)}
    return replace(trace, extensions={**trace.extensions, **fresh})
