"""The thesis's tables of chapter 7, with ours, and how numbers are written in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean

import msgspec

from analysis.claims import estimate
from foundation.units import counted
from osub.physical import published
from osub.physical.folder import Results
from osub.physical.layouts import GANGD
from osub.physical.outcome import (
    SHARED,
    SHARES,
    ReplayOutcome,
    Value,
    case_of,
    largest_slowdown,
    longest_wait,
    percentile,
)
from osub.physical.pair import PairTrial
from osub.physical.plan import DAY, FIRST
from simulator.experiment_page import ABSENT, ExperimentTable, percent
from workloads.swf import SwfTrace
from workloads.trace.scaling import FIRST_JOBS, INTERACTIVE_QUEUE, KnownJob
from workloads.trace.trace_summary import THESIS_TABLE_7_2, JobKindSummary, summarize_kinds

NAMES = {FIRST: "first hours", DAY: "whole day"}


def cell(results: Results, key: str, workload: str, value: Value, *, scaled: bool = False) -> str:
    """Return the mean over the trials, real and simulated; shares as such where they are."""
    factor = results.plan.compression(workload) if scaled else 1.0
    real, made = (
        [factor * value(one) for (name, _), one in of.get(key, {}).items() if name == workload]
        for of in (results.real, results.simulated)
    )
    is_share = value is ReplayOutcome.waited
    if not real:
        return ABSENT
    shown = share_text(real) if is_share else mean_text(real)
    return shown + (f" ({mean_text([mean(made)], percent=is_share)})" if made else "")


def mean_text(values: Sequence[float], *, percent: bool = False) -> str:
    """Return the mean of values with its interval, a dash without any."""
    if not values:
        return ABSENT
    found = estimate([100 * value for value in values] if percent else list(values))
    return found.text("%" if percent else "")


def each_text(results: Results, key: str, value: Value, *, share: bool = False) -> str:
    """Return a layout's mean and interval for each workload; they differ too much for a mean of both."""
    found = []
    for workload in results.workloads():
        values = results.values(key, value, workload)
        shown = share_text(values) if share else mean_text(values)
        found.append(f"{NAMES[workload]} {shown}")
    return ", ".join(found) or ABSENT


def share_text(values: Sequence[float]) -> str:
    """Return the mean of shares with its interval, a dash without any. It lies between 0 and 100%."""
    if not values:
        return ABSENT
    found = estimate([100 * value for value in values])
    if found.low is not None and found.high is not None:
        found = msgspec.structs.replace(found, low=max(0.0, found.low), high=min(100.0, found.high))
    return found.text("%")


def seconds(value: float | None) -> str:
    """Return seconds, or steps a second, as text."""
    return ABSENT if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


KINDS = ("interactive", "batch")

_MOST_DEGRADED = 8


def all_tables(results: Results, traces: Sequence[tuple[str, SwfTrace]]) -> list[ExperimentTable]:
    """Return Tables 7.2 and 7.4 to 7.9; ``traces`` are those of the first, by name."""
    return [
        table_7_2(traces),
        table_7_4(results),
        table_7_5(results),
        waits(results),
        table_7_6(results),
        slowdowns(results),
        table_7_7(results),
        table_7_8(results),
        table_7_9(results),
    ]


def table_7_2(traces: Sequence[tuple[str, SwfTrace]]) -> ExperimentTable:
    """Return the traces' figures, as rebuilt and as replayed."""
    rows = [_kinds_row("thesis", kind, THESIS_TABLE_7_2[kind]) for kind in KINDS]
    for name, trace in traces:
        found = summarize_kinds(trace, INTERACTIVE_QUEUE)
        rows += [_kinds_row(name, kind, found[kind]) for kind in KINDS]
    return ExperimentTable(
        name="Table 7.2",
        title="the traces",
        columns=("trace", "kind", "jobs", "widest", "longest run [s]", "mean", "longest busy [s]", "mean"),
        rows=rows,
        notes=(
            "Interactive jobs and 22 of the batch jobs are the thesis's; the other 46 are one draw a seed.",
        ),
    )


def _kinds_row(name: str, kind: str, of: JobKindSummary) -> tuple[str, ...]:
    values = (of.max_run_s, of.mean_run_s, of.max_busy_s, of.mean_busy_s)
    return (name, kind, str(of.jobs), str(of.max_procs or ABSENT), *map(seconds, values))


def table_7_5(results: Results) -> ExperimentTable:
    """Return which share of the interactive jobs waits."""
    rows = []
    for label in _labels(results, published.WAITED):
        thesis = published.WAITED.get(label)
        known, full = ABSENT, ABSENT
        if thesis is not None:
            full = share_text(results.full.values(case_of(label), ReplayOutcome.waited))
            known = percent(thesis)
        rows.append((label, known, full, *_cluster(results, label, ReplayOutcome.waited)))
    return ExperimentTable(
        name="Table 7.5",
        title="interactive jobs that wait",
        columns=_columns(results),
        rows=rows,
        notes=(
            "Waiting: more than 5 s in the thesis and at N12C12; more than 2 s in a compressed replay.",
            _MQ_NOTE.format(nodes=results.plan.nodes),
        ),
    )


def waits(results: Results) -> ExperimentTable:
    """Return the longest waits of Figure 7.5."""
    rows = []
    for key in results.replayed():
        cells = [
            cell(results, key, workload, longest_wait(kind))
            for workload in results.workloads()
            for kind in KINDS
        ]
        rows.append((results.label(key), *cells))
    return ExperimentTable(
        name="Figure 7.5",
        title="longest wait, s of the replay",
        columns=(
            "layout",
            *(f"{NAMES[workload]}, {kind}" for workload in results.workloads() for kind in KINDS),
        ),
        rows=rows,
    )


def table_7_6(results: Results) -> ExperimentTable:
    """Return when 90, 95 and 100 percent of the jobs were done."""
    rows = []
    for label in _labels(results, published.PERCENTILES_S):
        thesis = published.PERCENTILES_S.get(label)
        for number, share in enumerate(SHARES):
            of = percentile(number)
            known, full = ABSENT, ABSENT
            if thesis is not None:
                known, full = seconds(thesis[number]), mean_text(results.full.values(case_of(label), of))
            rows.append((f"{label}, {share}%", known, full, *_cluster(results, label, of, scaled=True)))
    return ExperimentTable(
        name="Table 7.6",
        title="time until so many jobs were done, s",
        columns=_columns(results),
        rows=rows,
        notes=("Replays: seconds times the compression; what a job takes to start is multiplied, too.",),
    )


def slowdowns(results: Results) -> ExperimentTable:
    """Return the largest slowdowns of Figure 7.7, and how many jobs were degraded to less than half."""
    rows = []
    for key in results.replayed():
        cells = []
        for workload in results.workloads():
            cells += [cell(results, key, workload, largest_slowdown(kind)) for kind in KINDS]
            cells.append(cell(results, key, workload, lambda one: float(one.degraded().height)))
        rows.append((results.label(key), *cells))
    names = [
        f"{NAMES[workload]}, {what}"
        for workload in results.workloads()
        for what in (*KINDS, "degraded over 2")
    ]
    return ExperimentTable(
        name="Figure 7.7",
        title="largest slowdown, (wait + run)/dedicated",
        columns=("layout", *names),
        rows=rows,
        notes=("A job of a second takes half of one more to start: that is in its slowdown.",),
    )


_MQ_NOTE = "MQ in the last columns: the split that {nodes} nodes allow, in rows of their own."


def _labels(results: Results, printed: Mapping[str, object]) -> list[str]:
    """Return the layouts that the thesis prints, then others that were replayed."""
    return list(dict.fromkeys([*printed, *map(results.label, results.replayed())]))


def _columns(results: Results) -> tuple[str, ...]:
    here = f"on N{results.plan.nodes}C{results.plan.cores}, real (simulated)"
    ours = (f"{NAMES[workload]} {here}" for workload in results.workloads())
    return ("layout", "thesis", f"simulated N12C12, {counted(results.full.seeds, 'seed')}", *ours)


def _cluster(results: Results, label: str, value: Value, *, scaled: bool = False) -> list[str]:
    """Return the cells of the cluster at hand for a layout of the thesis."""
    key = next((key for key, layout in results.layouts.items() if layout.label == label), None)
    return [
        ABSENT if key is None else cell(results, key, workload, value, scaled=scaled)
        for workload in results.workloads()
    ]


def table_7_4(results: Results) -> ExperimentTable:
    """Return the pair's speeds; a trial that is not judged has dashes, and a note says why."""
    shared = [key for key in results.layouts if key in results.pairs]
    rows = []
    for trial in sorted({trial for of in results.pairs.values() for trial in of}):
        cells = [text for key in shared for text in _pair_cells(results.pairs[key].get(trial))]
        rows.append((str(trial), *cells))
    if shared:
        losses = [mean_text(results.pair_losses(key), percent=True) for key in shared]
        thesis = [_thesis_loss(results.label(key)) for key in shared]
        rows.append(("loss", *_with_dashes(losses)))
        rows.append(("loss, thesis (12 ranks)", *_with_dashes(thesis)))
    names = [f"{results.label(key)}, {what}" for key in shared for what in ("alone", "together (each)")]
    return ExperimentTable(
        name="Table 7.4",
        title="two coupled LU jobs on the same cores, steps a second",
        columns=("trial", *names),
        rows=rows,
        notes=(
            *_PAIR_NOTES,
            *(f"Left out: {name}, {why}." for name, why in results.pairs_left_out().items()),
        ),
    )


_PAIR_NOTES = (
    "Alone: one job just before the two, on the same cluster under the same layout; a host's pace drifts.",
    "Together: the steps of both over the time from the first start to the last end, launch and all.",
    "Each: from its own start to its end; more in sum where one has the cores to itself, as in long slices.",
    "Loss: what together is less than alone, trial by trial; negative is a gain. The thesis's is of the sum.",
)


def _pair_cells(trial: PairTrial | None) -> tuple[str, str]:
    if trial is None:
        return ABSENT, ABSENT
    each = " + ".join(seconds(one) for one in trial.each)
    return seconds(trial.alone), f"{seconds(trial.joint)} ({each})"


def _with_dashes(losses: Sequence[str]) -> list[str]:
    return [text for loss in losses for text in (ABSENT, loss)]


def _thesis_loss(label: str) -> str:
    both = published.PAIR_SHARED.get(label)
    if both is None:
        return ABSENT
    losses = [1.0 - sum(two) / one for one, two in zip(published.PAIR_SINGLE, both, strict=True)]
    return mean_text(losses, percent=True)


def table_7_7(results: Results) -> ExperimentTable:
    """Return the jobs that gangd's run degraded most, and how often they used the cores."""
    rows = [(f"thesis: {job}", *cells) for job, *cells in published.DEGRADED]
    for (workload, trial), outcome in results.real.get(GANGD.key, {}).items():
        if outcome.intervals is None:
            continue
        for row in outcome.degraded().head(_MOST_DEGRADED).iter_rows(named=True):
            counts = {
                interval: count
                for job, interval, count in outcome.intervals.iter_rows()
                if job == row["job_id"]
            }
            more = sum(count for interval, count in counts.items() if interval >= 4)
            rows.append(
                (
                    f"{NAMES[workload]}, trial {trial}: {row['trace_job']}",
                    f"{_app(row)}, {row['cores']}",
                    f"{row['degradation']:.2f}",
                    *(str(counts.get(interval, 0)) for interval in (1, 2, 3)),
                    str(more),
                )
            )
    return ExperimentTable(
        name="Table 7.7",
        title="jobs that ran for more than twice their dedicated time under gang scheduling",
        columns=("job", "application, cores", "degradation", "interval 1", "2", "3", "4 and more"),
        rows=rows,
        notes=(
            "Slices are of 250 ms here, of about 1 s in the thesis by its own figures.",
            "Jobs of one core are never held, for they have nothing to coordinate: they have no intervals.",
        ),
    )


def table_7_8(results: Results) -> ExperimentTable:
    """Return the first fifteen jobs: finish and place."""
    full, places = results.full, results.places or {}
    columns: tuple[tuple[str, Callable[[KnownJob], str]], ...] = (
        ("job", lambda job: str(job.number)),
        ("arrival", lambda job: str(job.arrival_s)),
        ("run", lambda job: str(job.run_s)),
        ("finish: thesis, simulated", lambda job: f"{published.SIMULATED_FINISH_S[job.number]:,}"),
        ("ours, simulated", lambda job: f"{full.finish_s[job.number]:,.0f}"),
        ("thesis, real", lambda job: f"{published.REAL_FINISH_S[job.number]:,}"),
        ("place: thesis, simulated", lambda job: published.SIMULATED_PLACES[job.number]),
        ("ours, simulated", lambda job: full.places[job.number]),
        ("thesis, real", lambda job: published.REAL_PLACES[job.number]),
        ("ours, Slurm", lambda job: places.get(job.number, ABSENT)),
    )
    return ExperimentTable(
        name="Table 7.8",
        title="the first fifteen jobs on N12C12",
        columns=tuple(name for name, _ in columns),
        rows=[tuple(cell(job) for _, cell in columns) for job in FIRST_JOBS],
        notes=("Ours, Slurm: twelve declared nodes of twelve cores, jobs that sleep, times divided by 75.",),
    )


def table_7_9(results: Results) -> ExperimentTable:
    """Return the simulated SQ with M = 2."""
    ours = results.full.outcomes[SHARED]

    def text(value: Value) -> str:
        return mean_text(results.full.values(SHARED, value))

    rows = [
        ("interactive jobs that start at once", "100%", share_text([1 - one.waited() for one in ours])),
        *((f"longest wait, {kind} [s]", "0", text(longest_wait(kind))) for kind in KINDS),
        *(
            (f"largest slowdown, {kind}", f"{thesis:.2f}", text(largest_slowdown(kind)))
            for kind, thesis in published.SIMULATED_SLOWDOWN.items()
        ),
        *(
            (f"{share}% of the jobs done [s]", f"{thesis:,.0f}", text(percentile(number)))
            for number, (share, thesis) in enumerate(
                zip(SHARES, published.SIMULATED_PERCENTILES_S, strict=True)
            )
        ),
    ]
    return ExperimentTable(
        name="Table 7.9",
        title="SQ with M = 2 on N12C12, simulated",
        columns=("", "thesis", f"ours, {counted(results.full.seeds, 'seed')}"),
        rows=rows,
    )


def _app(row: dict[str, object]) -> str:
    words = str(row.get("args") or "").split()
    return words[words.index("--app") + 1] if "--app" in words[:-1] else str(row.get("app") or ABSENT)
