"""Who is on which core, and when: the segments of a Gantt chart, and how much of the system was in use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from foundation.records import parse_cores

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
    again_core_s, lost_core_s
        The parts of ``occupied_core_s`` that set up once more, and that were thrown away; of a second that
        k jobs hold the core, 1/k is each one's.
    """

    occupied_core_s: float
    allocated_core_s: float
    shared_core_s: float
    again_core_s: float
    lost_core_s: float

    @property
    def useful_core_s(self) -> float:
        """The part of ``occupied_core_s`` that counted."""
        return self.occupied_core_s - self.again_core_s - self.lost_core_s


def core_entries(held: pl.DataFrame) -> pl.DataFrame | None:
    """Return who held which core: the columns of ``node_entries``, with ``core`` for ``cores``.

    None if there are more than ``CORE_ENTRIES_LIMIT``.
    """
    nodes = node_entries(held)
    listed = nodes.join(core_lists(nodes), on="cores", maintain_order="left").drop("cores")
    if listed.get_column("core").list.len().sum() > CORE_ENTRIES_LIMIT:
        return None
    return listed.explode("core", empty_as_null=False)


def node_entries(held: pl.DataFrame) -> pl.DataFrame:
    """Return who was on which node: ``row`` of ``held``, ``start_s``, ``end_s``, ``node``, ``cores``.

    Stretches (``lives.stretches``) without a known placement or end are left out.
    """
    return (
        held.select("start_s", "end_s", "placement")
        .with_row_index("row")
        .filter(pl.all_horizontal(pl.col("end_s", "placement").is_not_null()))
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


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of single cores between two events, in which nobody came or went.

    Parameters
    ----------
    start_s, lasting_s
        Shape (spans,): when each begins and how long it is.
    again, useful, lost
        Shape (spans,): how many jobs held the core to set up once more, to some use, and for nothing.
    """

    start_s: Floats
    lasting_s: Floats
    again: Ints
    useful: Ints
    lost: Ints

    @property
    def jobs(self) -> Ints:
        """Shape (spans,): how many jobs held the core."""
        return self.again + self.useful + self.lost


def spans(held: pl.DataFrame) -> Spans | None:
    """Return the spans of all cores; None if the run is too large for it (see ``CORE_ENTRIES_LIMIT``).

    Parameters
    ----------
    held
        What the jobs held (``lives.stretches``).
    """
    entries = core_entries(held)
    if entries is None:
        return None
    core = entries.select(pl.struct("node", "core").rank("dense")).to_series().to_numpy()
    start, end = (entries.get_column(name).to_numpy() for name in ("start_s", "end_s"))
    row = entries.get_column("row").to_numpy()
    again, lost = (held.get_column(name).to_numpy()[row] for name in ("again_s", "lost_s"))
    bounds = {"useful": (start, end)}
    if again.any() or lost.any():
        set_up = np.minimum(start + again, end)
        kept = np.maximum(end - lost, set_up)
        bounds = {"again": (start, set_up), "useful": (set_up, kept), "lost": (kept, end)}
    times = np.concatenate([instants for part in bounds.values() for instants in part])
    order = np.lexsort((times, np.tile(core, 2 * len(bounds))))
    # Half of the events of each part are comings, the other half goings.
    event = order // max(len(core), 1)
    none = np.zeros(max(len(order) - 1, 0), dtype=np.int64)
    levels = {"again": none, "lost": none}
    for part, name in enumerate(bounds):
        change = (event == 2 * part).astype(np.int64) - (event == 2 * part + 1)
        levels[name] = np.cumsum(change)[:-1]
    return Spans(start_s=times[order][:-1], lasting_s=np.diff(times[order]), **levels)


def occupancy(held: pl.DataFrame) -> Occupancy | None:
    """Add up how long cores were in use; None if the run is too large for it (see ``spans``)."""
    found = spans(held)
    if found is None:
        return None
    # From the last event of a core to the first of the next there is nobody, however long that is.
    jobs, lasting = found.jobs, found.lasting_s
    each = lasting / np.maximum(jobs, 1)
    return Occupancy(
        occupied_core_s=float(lasting[jobs >= 1].sum()),
        allocated_core_s=float((lasting * jobs).sum()),
        shared_core_s=float(lasting[jobs >= 2].sum()),
        again_core_s=float((each * found.again).sum()),
        lost_core_s=float((each * found.lost).sum()),
    )
