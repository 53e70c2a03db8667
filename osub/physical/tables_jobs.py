"""Tables of single jobs and of the simulated SQ: 7.4, 7.7, 7.8, 7.9."""

from __future__ import annotations

from statistics import mean

from osub.physical import published
from osub.physical.cells import NAMES, mean_text, share_text, speed_text
from osub.physical.full_size import SHARED
from osub.physical.layouts import DEDICATED, GANGD
from osub.physical.outcome import SHARES
from osub.physical.results import Results
from simulator.experiments.paper_tables import ABSENT, ExperimentTable
from workloads.trace.scaling import FIRST_JOBS

_MOST_DEGRADED = 8


def table_7_4(results: Results) -> ExperimentTable:
    """Return the pair's speeds."""
    rows = []
    trials = sorted({trial for of in results.pairs.values() for trial in of})
    shared = [key for key in results.layouts if key in results.pairs and key != DEDICATED.key]
    for trial in trials:
        single = results.pairs.get(DEDICATED.key, {}).get(trial)
        cells = [
            " + ".join(speed_text(one) for one in results.pairs[key].get(trial, ())) or ABSENT
            for key in shared
        ]
        rows.append((str(trial), ABSENT if single is None else speed_text(mean(single)), *cells))
    losses = [
        mean_text(pair_losses(results, key), percent=True) if key in results.pairs else ABSENT
        for key in shared
    ]
    rows.append(("loss", ABSENT, *losses))
    thesis = [_thesis_loss(results.label(key)) for key in shared]
    rows.append(("loss, thesis (12 ranks)", ABSENT, *thesis))
    return ExperimentTable(
        name="Table 7.4",
        title="two coupled LU jobs on the same cores, steps a second",
        columns=("trial", "alone", *(results.label(key) for key in shared)),
        rows=rows,
        notes=(
            "Loss: what the sum of both speeds is less than the speed of one alone; negative is a gain.",
            "Speeds are over whole runs, from start to end, so a start of half a second is part of them.",
        ),
    )


def pair_losses(results: Results, layout: str) -> list[float]:
    """Return the loss of joint speed in each trial that has the single speed, too."""
    alone = results.pairs.get(DEDICATED.key, {})
    return [
        published.pair_loss(mean(alone[trial]), both)
        for trial, both in results.pairs.get(layout, {}).items()
        if trial in alone
    ]


def _thesis_loss(label: str) -> str:
    both = published.PAIR_SHARED.get(label)
    if both is None:
        return ABSENT
    losses = [published.pair_loss(one, two) for one, two in zip(published.PAIR_SINGLE, both, strict=True)]
    return mean_text(losses, percent=True)


def table_7_7(results: Results) -> ExperimentTable:
    """Return the jobs that gangd's run degraded most, and how often they used the cores."""
    rows = [
        (f"thesis: {job}", app, f"{degradation:.2f}", *map(str, intervals))
        for job, (app, degradation, intervals) in published.DEGRADED.items()
    ]
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
    full = results.full
    rows = []
    for job in FIRST_JOBS:
        number = job.number
        here = ABSENT if results.places is None else results.places.get(number, ABSENT)
        rows.append(
            (
                str(number),
                str(job.arrival_s),
                str(job.run_s),
                f"{published.SIMULATED_FINISH_S[number]:,}",
                f"{full.finish_s[number]:,.0f}",
                f"{published.REAL_FINISH_S[number]:,}",
                published.SIMULATED_PLACES[number],
                full.places[number],
                published.REAL_PLACES[number],
                here,
            )
        )
    return ExperimentTable(
        name="Table 7.8",
        title="the first fifteen jobs on N12C12",
        columns=(
            "job",
            "arrival",
            "run",
            "finish: thesis, simulated",
            "ours, simulated",
            "thesis, real",
            "place: thesis, simulated",
            "ours, simulated",
            "thesis, real",
            "ours, Slurm",
        ),
        rows=rows,
        notes=("Ours, Slurm: twelve declared nodes of twelve cores, jobs that sleep, times divided by 75.",),
    )


def table_7_9(results: Results) -> ExperimentTable:
    """Return the simulated SQ with M = 2."""
    ours = results.full.outcomes[SHARED]
    thesis = published.SIMULATED_PERCENTILES_S
    rows = [
        (
            "interactive jobs that start at once",
            "100%",
            share_text([1 - one.waited() for one in ours]),
        ),
        (
            "longest wait, interactive [s]",
            "0",
            mean_text([one.longest_wait_s("interactive") for one in ours]),
        ),
        ("longest wait, batch [s]", "0", mean_text([one.longest_wait_s("batch") for one in ours])),
        *(
            (
                f"largest slowdown, {kind}",
                f"{published.SIMULATED_SLOWDOWN[kind]:.2f}",
                mean_text([one.largest_slowdown(kind) for one in ours]),
            )
            for kind in ("batch", "interactive")
        ),
        *(
            (
                f"{share}% of the jobs done [s]",
                f"{thesis[number]:,.0f}",
                mean_text([one.percentiles_s()[number] for one in ours]),
            )
            for number, share in enumerate(SHARES)
        ),
    ]
    return ExperimentTable(
        name="Table 7.9",
        title="SQ with M = 2 on N12C12, simulated",
        columns=("", "thesis", f"ours, {results.full.seeds} seeds"),
        rows=rows,
    )


def _app(row: dict[str, object]) -> str:
    words = str(row.get("args") or "").split()
    return words[words.index("--app") + 1] if "--app" in words[:-1] else str(row.get("app") or ABSENT)
