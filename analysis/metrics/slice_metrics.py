"""What the time slices of a gang scheduler say: usage intervals, fairness, lateness.

Sources: the usage interval distribution is the thesis's (section 7.4.4 and Table 7.7); the fairness index
is Jain's (Jain, Chiu, Hawe, 1984). A job uses a slice where its role is ``run`` or ``free``; it is busy
there if it uses it or is ``held``. Idle slices do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.metrics.derived_columns import in_stretches, placed, stretches
from analysis.quantiles import quantile
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

    Intervals (``stretches``) without a known placement or end are left out.
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
    """Spans of single cores between two events, in which no job began or ended.

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
        The jobs' allocation intervals (``stretches``).
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
    # From the last event of a core to the first of the next there is no job, however long that is.
    jobs, lasting = found.jobs, found.lasting_s
    each = lasting / np.maximum(jobs, 1)
    return Occupancy(
        occupied_core_s=float(lasting[jobs >= 1].sum()),
        allocated_core_s=float((lasting * jobs).sum()),
        shared_core_s=float(lasting[jobs >= 2].sum()),
        again_core_s=float((each * found.again).sum()),
        lost_core_s=float((each * found.lost).sum()),
    )


_QUANTILES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
USED = pl.col("role").is_in(["run", "free"])
ATTENDED = pl.col("role") != "unattended"


class MicrosecondSpread(msgspec.Struct, frozen=True, kw_only=True):
    """A spread in microseconds over all rows that know the value; null without any."""

    known: int
    missing: int
    min: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None


class SliceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of a run's time slices.

    Parameters
    ----------
    slices
        Number of different slices.
    length_s
        Median length of a slice.
    jobs
        Jobs that occur in them.
    intervals
        How often each usage interval occurs, all jobs together; the keys are whole numbers.
    fairness
        Jain's index over attained/entitled of the contended jobs: 1 is fair, 1/n is one job of n served.
    contended_jobs
        Jobs that the index is over.
    fairness_missing
        Busy jobs that it lacks, because their placement is not known.
    skew_us, freeze_us
        Lateness of the nodes, and time until all tasks were frozen or thawed.
    switching_share
        Share of the slices' time, from the published start to the last task thawed, mean over slices and
        nodes.
    unattended_share
        Share of the time of nodes with jobs that shared cores in which no agent acted.
    """

    slices: int
    length_s: float | None
    jobs: int
    intervals: dict[str, int]
    fairness: float | None
    contended_jobs: int
    fairness_missing: int
    skew_us: MicrosecondSpread
    freeze_us: MicrosecondSpread
    switching_share: float | None
    unattended_share: float | None


def measure_slices(
    slices: pl.DataFrame, jobs: pl.DataFrame, held: pl.DataFrame | None = None
) -> SliceMetrics:
    """Compute the metrics of the ``slices`` table; see ``attained_shares`` for ``held``."""
    unattended = share_unattended(slices)
    slices = numbered_once(slices.filter(ATTENDED))
    busy = busy_slices(slices)
    counted = usage_intervals(busy).group_by("interval").agg(pl.col("count").sum()).sort("interval")
    shares, missing = attained_shares(slices, busy, jobs, held)
    return SliceMetrics(
        slices=slices.get_column("slice").n_unique(),
        length_s=slices.select(pl.col("length_s").median()).item(),
        jobs=slices.get_column("job").n_unique(),
        intervals={str(interval): count for interval, count in counted.iter_rows()},
        fairness=jain_index(shares.get_column("ratio")),
        contended_jobs=shares.height,
        fairness_missing=missing,
        skew_us=spread(slices.get_column("skew_us")),
        freeze_us=spread(slices.get_column("freeze_us")),
        switching_share=_switching_share(slices),
        unattended_share=unattended,
    )


def unattended_by_node(slices: pl.DataFrame) -> pl.DataFrame:
    """Return for each node how long jobs shared cores with and without an agent, seconds.

    Columns: ``node``, ``attended_s``, ``unattended_s``. Rows of one gap end together, and that of a job which
    began in it is shorter.
    """
    gaps = (
        slices.filter(~ATTENDED)
        .with_columns(end=(pl.col("start_s") + pl.col("length_s")).round(3))
        .group_by("node", "end")
        .agg(pl.col("length_s").max())
        .group_by("node")
        .agg(unattended_s=pl.col("length_s").sum())
    )
    return (
        slices.filter(ATTENDED & (pl.col("role") != "idle"))
        .group_by("node", "start_s")
        .agg(pl.col("length_s").first())
        .group_by("node")
        .agg(attended_s=pl.col("length_s").sum())
        .join(gaps, on="node", how="full", coalesce=True)
        .with_columns(pl.col("attended_s", "unattended_s").fill_null(0.0))
        .sort("node")
    )


def share_unattended(slices: pl.DataFrame) -> float | None:
    """Return the share of the time of nodes with jobs that shared cores in which no agent acted."""
    by_node = unattended_by_node(slices)
    unattended_s = float(by_node.get_column("unattended_s").sum())
    whole_s = unattended_s + float(by_node.get_column("attended_s").sum())
    return unattended_s / whole_s if whole_s else None


def numbered_once(slices: pl.DataFrame) -> pl.DataFrame:
    """Return the slices such that each number means one slice: a controller that restarts may count anew.

    Where that happened, slices are numbered in the order of their starts.
    """
    starts = slices.group_by("slice").agg(alike=pl.col("start_s").min() == pl.col("start_s").max())
    if starts.get_column("alike").all():
        return slices
    return slices.with_columns(slice=pl.col("start_s").rank("dense").cast(pl.Int64))


def busy_slices(slices: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each slice in which a job is busy: ``job``, ``slice``, ``length_s``, ``used``."""
    return (
        slices.lazy()
        .filter(pl.col("role") != "idle")
        .select("job", "slice", "length_s", USED.alias("used"))
        .group_by("job", "slice")
        .agg(pl.col("length_s").first(), pl.col("used").any())
        .sort("job", "slice")
        .collect()
    )


def usage_intervals(busy: pl.DataFrame) -> pl.DataFrame:
    """Return how often each usage interval occurs for each job: ``job``, ``interval``, ``count``.

    The interval of two uses in successive slices is 1; one busy slice without use between them makes it 2.

    Parameters
    ----------
    busy
        What ``busy_slices`` returned.
    """
    return (
        busy.lazy()
        .select("job", "used", turn=pl.int_range(pl.len()))
        .filter("used")
        .select("job", interval=pl.col("turn").diff(), same=pl.col("job") == pl.col("job").shift())
        .filter("same")
        .group_by("job", "interval")
        .agg(pl.len().cast(pl.Int64).alias("count"))
        .sort("job", "interval")
        .collect()
    )


def attained_shares(
    slices: pl.DataFrame, busy: pl.DataFrame, jobs: pl.DataFrame, held: pl.DataFrame | None = None
) -> tuple[pl.DataFrame, int]:
    """Return what each contended job got of what it was entitled to.

    In a slice in which a job is busy and shares a core with another busy job it is entitled to the slice
    over m, the largest number of busy jobs on one of its cores, itself included; it attains what it uses.

    Parameters
    ----------
    slices, jobs
        The tables.
    busy
        What ``busy_slices`` returned.
    held
        The jobs' allocation intervals (``stretches``); None: one attempt each.

    Returns
    -------
    shares
        ``job``, ``entitled_s``, ``attained_s``, ``ratio``.
    missing
        Busy jobs without a known placement; they are left out, also as sharers of others.
    """
    places = placed(jobs, stretches(jobs) if held is None else held)
    awake = slices.filter(pl.col("role") != "idle").select("slice", "node", "job", "start_s", "length_s")
    rows = in_stretches(awake, places).lazy().select("slice", "node", "job", "stretch")
    # Slices with the same busy jobs on the same nodes have the same sharers. Patterns repeat, so sharers are
    # counted once for each different crowd; a sum of hashes, which no order changes, tells crowds apart.
    crowds = (
        rows.unique()
        .group_by("slice")
        .agg(crowd=pl.struct("node", "job", "stretch").hash().sum())
        .sort("slice")
        .collect()
    )
    samples = crowds.group_by("crowd").agg(pl.col("slice").min())
    cores = places.join(core_lists(places), on="cores").select("job", "stretch", "node", "core")
    members = rows.join(samples.lazy(), on="slice").unique().collect()
    shares = (
        busy.lazy()
        .join(crowds.lazy(), on="slice")
        .group_by("crowd", "job")
        .agg(length_s=pl.col("length_s").sum(), attained_s=pl.col("length_s").filter("used").sum())
        .join(
            _multiplicities(members, cores.explode("core", empty_as_null=False)).lazy(), on=("crowd", "job")
        )
        .filter(pl.col("m") > 1)
        .group_by("job")
        .agg(entitled_s=(pl.col("length_s") / pl.col("m")).sum(), attained_s=pl.col("attained_s").sum())
        .sort("job")
        .with_columns(ratio=pl.col("attained_s") / pl.col("entitled_s"))
        .collect()
    )
    known = busy.get_column("job").unique().is_in(cores.get_column("job").unique().implode())
    return shares, int((~known).sum())


def _multiplicities(members: pl.DataFrame, cores: pl.DataFrame) -> pl.DataFrame:
    """Return ``crowd``, ``job``, ``m``: the most busy jobs on a core of each job, in each crowd."""
    found: list[pl.DataFrame] = []
    # In pieces: where jobs come and go in every slice there are as many crowds as slices.
    for piece in (
        members.sort("crowd").with_columns(part=pl.col("crowd").rle_id() // 2_000).partition_by("part")
    ):
        on_cores = piece.join(cores, on=("node", "job", "stretch"))
        counts = on_cores.with_columns(m=pl.len().over("crowd", "node", "core"))
        found.append(counts.group_by("crowd", "job").agg(pl.col("m").max()))
    empty = pl.DataFrame(schema={"crowd": pl.UInt64, "job": pl.Int64, "m": pl.UInt32})
    return pl.concat([empty, *found])


def jain_index(ratios: pl.Series) -> float | None:
    """Return Jain's index, (sum x)^2 / (n sum x^2); None without any, 1 if all are zero."""
    values = ratios.to_numpy()
    if not len(values):
        return None
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else 1.0


def spread(values: pl.Series) -> MicrosecondSpread:
    """Summarise a column of microseconds."""
    known = values.drop_nulls()
    return MicrosecondSpread(
        known=len(known),
        missing=values.null_count(),
        **{name: quantile(known, share) for name, share in _QUANTILES.items()},
    )


def _switching_share(slices: pl.DataFrame) -> float | None:
    known = slices.filter((pl.col("role") == "run") & pl.col("skew_us").is_not_null())
    if not known.height:
        return None
    lost_us = pl.col("skew_us") + pl.col("freeze_us").fill_null(0)
    per_node = known.group_by("slice", "node").agg(
        share=lost_us.max().clip(lower_bound=0) / 1e6 / pl.col("length_s").first()
    )
    return float(per_node.get_column("share").mean())  # type: ignore[arg-type]  # of numbers
