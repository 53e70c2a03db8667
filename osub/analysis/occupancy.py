"""Who is on which core, and when: the segments of a Gantt chart, and how much of the system was in use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from osub.records import parse_cores

CORE_ENTRIES_LIMIT = 4_000_000
"""Beyond this many (job, core) pairs occupancy is not computed: it would take long and gigabytes."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How long cores were in use, added up over all cores.

    Parameters
    ----------
    occupied_core_s
        Core seconds in which at least one job held the core.
    allocated_core_s
        Core seconds of all jobs: a core that two jobs hold counts twice.
    shared_core_s
        Core seconds in which two jobs or more held the core.
    missing
        Jobs that ran, but without a known placement or end.
    """

    occupied_core_s: float
    allocated_core_s: float
    shared_core_s: float
    missing: int


def core_entries(jobs: pl.DataFrame) -> pl.DataFrame | None:
    """Return who held which core: ``row`` (of ``jobs``), ``node``, ``core``, ``start_s``, ``end_s``.

    None if there are more than ``CORE_ENTRIES_LIMIT``. Jobs without a placement, a start or an end are left
    out.
    """
    nodes = node_entries(jobs)
    listed = nodes.join(core_lists(nodes), on="cores", maintain_order="left").drop("cores")
    if listed.get_column("core").list.len().sum() > CORE_ENTRIES_LIMIT:
        return None
    return listed.explode("core", empty_as_null=False)


def node_entries(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return who was on which node: ``row`` of ``jobs``, ``start_s``, ``end_s``, ``node``, ``cores``."""
    return (
        jobs.with_row_index("row")
        .filter(pl.all_horizontal(pl.col("start_s", "end_s", "placement").is_not_null()))
        .select("row", "start_s", "end_s", "placement")
        .explode("placement", empty_as_null=False)
        .unnest("placement")
    )


def core_lists(entries: pl.DataFrame) -> pl.DataFrame:
    """Return ``cores`` (every text of core ids in ``entries``) and ``core`` (the ids as a list)."""
    texts = entries.get_column("cores").unique(maintain_order=True).to_list()
    return pl.DataFrame(
        {"cores": texts, "core": [list(parse_cores(text)) for text in texts]},
        schema={"cores": pl.String, "core": pl.List(pl.Int64)},
    )


def occupancy(jobs: pl.DataFrame) -> Occupancy | None:
    """Add up how long cores were in use; None if the run is too large for it (see ``CORE_ENTRIES_LIMIT``)."""
    entries = core_entries(jobs)
    if entries is None:
        return None
    ran = jobs.filter(pl.col("start_s").is_not_null())
    missing = ran.filter(pl.any_horizontal(pl.col("placement", "end_s").is_null())).height
    core = entries.select(pl.struct("node", "core").rank("dense")).to_series().to_numpy()
    start, end = entries.get_column("start_s").to_numpy(), entries.get_column("end_s").to_numpy()
    times = np.concatenate((start, end))
    change = np.concatenate((np.ones(len(start), np.int64), -np.ones(len(end), np.int64)))
    order = np.lexsort((change, times, np.concatenate((core, core))))
    level = np.cumsum(change[order])[:-1]
    lasting = np.diff(times[order])
    return Occupancy(
        occupied_core_s=float(lasting[level >= 1].sum()),
        allocated_core_s=float((end - start).sum()),
        shared_core_s=float(lasting[level >= 2].sum()),
        missing=missing,
    )
