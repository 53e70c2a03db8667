"""Claims R4 to R28 on the cluster at hand: what so small a cluster can tell, and why it cannot tell the rest.

A value is one replay's, of the first hours or of a whole day; replays of the same jobs in the same trial are
paired. Magnitudes are of another trace, so of most claims the direction is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean, median

from analysis.claims import (
    ONE_SEED,
    Claim,
    ClaimRow,
    Judgement,
    direction,
    fact,
    magnitude,
    no_difference,
    not_comparable,
)
from analysis.claims import over_settings as settings_rule
from foundation.units import counted
from osub.physical import published
from osub.physical.folder import Results
from osub.physical.layouts import DEDICATED, GANGD, NAIVE, same_places
from osub.physical.outcome import SHARES, ReplayOutcome
from osub.physical.tables import (
    NAMES,
    each_text,
    largest_slowdown,
    longest_wait,
    mean_text,
    percentile,
    share_text,
)
from workloads.trace.scaling import JOB_OF_FIGURE_7_8

_NOT_RUN = "not replayed"
_WITHIN = 0.08
"""R27: what the thesis's applications keep to."""
_LONG_ENOUGH_S = 5.0
_CLOSE = 0.05
"""R26: the thesis's own percentiles differ by up to 4.5%."""
_RARE = 0.001
"""R20."""


def real_rows(results: Results) -> list[ClaimRow]:
    """Judge what the cluster at hand tells."""
    return [*_waiting(results), *_completion(results), *_single_jobs(results), *_whole(results)]


def _waiting(results: Results) -> list[ClaimRow]:
    alone = results.values(DEDICATED.key, ReplayOutcome.waited)
    shared = {
        name: results.differences(DEDICATED.key, key, ReplayOutcome.waited)
        for name, key in (("naive", NAIVE.key), ("gangd", GANGD.key))
    }
    waits = {
        f"{kind}, {name}": results.differences(DEDICATED.key, key, longest_wait(kind))
        for kind in ("interactive", "batch")
        for name, key in (("naive", NAIVE.key), ("gangd", GANGD.key))
    }
    alike = [
        more
        for kind in ("interactive", "batch")
        for more in results.differences(NAIVE.key, GANGD.key, longest_wait(kind))
    ]
    return [
        _row(
            results,
            ("R4", "Table 7.5", "SQ M=1", "interactive jobs that wait", "43%"),
            _magnitude(results, alone, 0.43),
            each_text(results, DEDICATED.key, ReplayOutcome.waited, share=True),
        ),
        _row(
            results,
            ("R5", "Table 7.5", "SQ M=2, naive and gangd", "interactive jobs that wait", "0%, 0%"),
            _settings(shared, "judged: fewer than with M=1"),
            "; ".join(
                f"{name} {each_text(results, key, ReplayOutcome.waited, share=True)}"
                for name, key in (("naive:", NAIVE.key), ("gangd:", GANGD.key))
            ),
        ),
        _row(
            results,
            (
                "R6",
                "Table 7.5",
                "MQ, 1 to 4 interactive nodes",
                "interactive jobs that wait",
                "29%, 0%, 0%, 0%",
            ),
            not_comparable(_mq_reason(results)),
            "; ".join(each_text(results, key, ReplayOutcome.waited, share=True) for key in _mq(results))
            or "-",
        ),
        _row(
            results,
            (
                "R7",
                "Fig. 7.5",
                "MQ, more interactive nodes",
                "longest wait",
                "interactive falls, batch rises",
            ),
            _mq_rising(results),
            "; ".join(
                f"{results.label(key)}, {kind} [s]: {each_text(results, key, longest_wait(kind))}"
                for key in _mq(results)
                for kind in ("interactive", "batch")
            )
            or "-",
        ),
        _row(
            results,
            ("R8", "Fig. 7.5", "SQ, M = 1 to 2", "longest wait, both kinds", "falls to one or two seconds"),
            _settings(waits, "judged: it falls"),
            "; ".join(
                f"{kind}, {NAMES[workload]}: "
                + " to ".join(
                    mean_text(results.values(key, longest_wait(kind), workload))
                    for key in (DEDICATED.key, NAIVE.key)
                )
                + f" (naive), {mean_text(results.values(GANGD.key, longest_wait(kind), workload))} s (gangd)"
                for kind in ("interactive", "batch")
                for workload in results.workloads()
            ),
        ),
        _row(
            results,
            ("R9", "7.5.1", "SQ M=2, naive against gangd", "longest wait", "no significant difference"),
            no_difference(alike) if len(alike) > 1 else not_comparable(_NOT_RUN),
            f"naive {mean_text(alike)} s more" if alike else "-",
        ),
        _row(
            results,
            ("R10", "7.5.1", "SQ, M >= 3 against M = 2", "placement", "the same"),
            not_comparable("M = 3 is simulated only"),
            "-",
        ),
    ]


def _completion(results: Results) -> list[ClaimRow]:
    scaled = results.values(GANGD.key, percentile(2))
    reason = _mq_reason(results)
    return [
        _row(
            results,
            ("R11", "Table 7.6", "all layouts", "90th, 95th, 100th percentile", "20 values"),
            not_comparable("the trace is scaled to this cluster: Table 7.6 above has ours", scaled),
            f"makespan under gangd [s]: {each_text(results, GANGD.key, percentile(2))}",
        ),
        _row(
            results,
            ("R12", "7.5.2", "MQ 4+8 against all others", "completion", "clearly later"),
            not_comparable(reason),
            "-",
        ),
    ]


def _single_jobs(results: Results) -> list[ClaimRow]:
    naive_more = results.differences(NAIVE.key, GANGD.key, largest_slowdown("batch"))
    largest = results.values(GANGD.key, _largest_degradation)
    slowest = [
        outcome.slowest_job("interactive") == JOB_OF_FIGURE_7_8
        for key in (DEDICATED.key, NAIVE.key, GANGD.key)
        for outcome in results.real.get(key, {}).values()
    ]
    beyond = results.values(GANGD.key, lambda one: one.degraded().height / max(1, one.jobs.height))
    rare = [_rare_intervals(one) for one in results.real.get(GANGD.key, {}).values() if one.interval_shares()]
    alone = [share for key in _mq(results) for share in results.values(key, _slowed_alone)]
    return [
        _row(
            results,
            (
                "R13",
                "Fig. 7.7",
                "MQ, two interactive nodes and more",
                "largest interactive slowdown",
                "about 1",
            ),
            not_comparable(_mq_reason(results)),
            "; ".join(each_text(results, key, largest_slowdown("interactive")) for key in _mq(results))
            or "-",
        ),
        _row(
            results,
            ("R14", "Fig. 7.7", "SQ M=2, naive against gangd", "largest batch slowdown", "naive far above"),
            _one(naive_more, "of all jobs; those of one core have nothing that gangd could help"),
            f"naive: {each_text(results, NAIVE.key, largest_slowdown('batch'))}; "
            f"gangd: {each_text(results, GANGD.key, largest_slowdown('batch'))}",
        ),
        _row(
            results,
            ("R15", "Table 7.7", "SQ M=2, gangd", "largest degradation of a batch job", "2.50"),
            _magnitude(results, largest, published.REAL_SLOWDOWN),
            each_text(results, GANGD.key, _largest_degradation),
        ),
        _row(
            results,
            ("R16", "Fig. 7.7, 7.8", "all SQ runs", "job of the largest interactive slowdown", "5030"),
            fact(holds=sum(slowest) > len(slowest) / 2, note="jobs of a second: their start decides")
            if slowest
            else not_comparable(_NOT_RUN),
            f"5030 in {sum(slowest)} of {counted(len(slowest), 'replay')}",
        ),
        _row(
            results,
            ("R17", "Fig. 7.9", "MQ 2+10 against SQ gangd", "slowdowns", "MQ concentrated, SQ spread"),
            not_comparable(_mq_reason(results)),
            f"spread of the middle half under gangd: {each_text(results, GANGD.key, ReplayOutcome.spread)}",
        ),
        _row(
            results,
            ("R18", "Fig. 7.10", "MQ", "degradation without core sharing", "over 1 for some"),
            not_comparable("jobs of seconds: their start alone is more than 8% of them"),
            f"{share_text(alone)} of the batch jobs of MQ ran for over 8% longer than alone"
            if alone
            else "-",
        ),
        _row(
            results,
            ("R19", "Table 7.7", "SQ M=2, gangd", "jobs with degradation over 2.00", "7 of 82"),
            _magnitude(results, beyond, published.DEGRADED_JOBS / published.JOBS),
            share_text(beyond),
        ),
        _row(
            results,
            ("R20", "Table 7.7", "SQ M=2, gangd", "usage intervals of 3 and more", "under 0.1%"),
            _one([_RARE - share for share in rare], "all jobs that took turns, every slice counted"),
            f"{share_text(rare)} of the intervals" if rare else "-",
        ),
        _row(
            results,
            ("R21", "7.5.4", "ranking by responsiveness first", "best layouts", "MQ 2+10, then 3+9"),
            not_comparable(_mq_reason(results)),
            "-",
        ),
    ]


def _whole(results: Results) -> list[ClaimRow]:
    errors = _percentile_errors(results)
    known = map(_usual_error, results.real.get(DEDICATED.key, {}).values())
    dedicated = [error for error in known if error is not None]
    failed = sum(one.failed for of in results.real.values() for one in of.values())
    jobs = sum(one.jobs.height for of in results.real.values() for one in of.values())
    return [
        _places(results),
        _row(
            results,
            ("R26", "7.5.5", "SQ M=2 gangd, simulated against real", "percentiles", "+0.3%, +4.5%, -2.0%"),
            _one(
                [_CLOSE - abs(error) for of in errors.values() for error in of],
                f"judged: within {_CLOSE:.0%}, percentile by percentile",
            ),
            ", ".join(f"{share}%: {mean(of):+.1%}" for share, of in errors.items() if of) or "-",
        ),
        _row(
            results,
            ("R27", "7.4.4", "batch jobs on dedicated cores", "error of the run time", "within 8%"),
            _one(
                [_WITHIN - error for error in dedicated],
                f"median error of jobs of {_LONG_ENOUGH_S:g} s and more, launch and all",
            ),
            f"median {mean_text(dedicated, percent=True)}"
            if dedicated
            else f"no job of {_LONG_ENOUGH_S:g} s",
        ),
        _row(
            results,
            ("R28", "7.5", "all runs", "jobs", "all completed"),
            fact(holds=failed == 0) if jobs else not_comparable(_NOT_RUN),
            f"{counted(jobs, 'job')} completed, {failed} did not",
        ),
    ]


def _places(results: Results) -> ClaimRow:
    claim = Claim(
        id="R22",
        where="Table 7.8",
        setting="first 15 jobs, Slurm on twelve declared nodes against the simulation",
        quantity="same place",
        paper="13 of 15",
    )
    if results.places is None:
        return ClaimRow.of(claim, not_comparable(_NOT_RUN))
    same = same_places(results.places, published.SIMULATED_PLACES)
    others = [job for job, place in published.SIMULATED_PLACES.items() if results.places.get(job) != place]
    moved = ", ".join(map(str, others)) or "none"
    judged = magnitude([float(same)], float(published.SAME_PLACES))
    note = f"elsewhere: {moved} (thesis: 2849, 2854)"
    return ClaimRow.of(
        claim,
        Judgement(verdict=judged.verdict, estimate=judged.estimate, note=note),
        f"{same} of {len(published.SIMULATED_PLACES)}",
    )


def _percentile_errors(results: Results) -> dict[int, list[float]]:
    """Return how much later the simulation is than the replay, for each percentile."""
    found: dict[int, list[float]] = {share: [] for share in SHARES}
    for key, real in results.real.get(GANGD.key, {}).items():
        made = results.simulated.get(GANGD.key, {}).get(key)
        if made is None:
            continue
        for share, mine, other in zip(SHARES, made.percentiles_s(), real.percentiles_s(), strict=True):
            if other:
                found[share].append(mine / other - 1)
    return found


def _usual_error(outcome: ReplayOutcome) -> float | None:
    """Return the median distance of a run time from its target, of jobs that are long enough."""
    rows = outcome.jobs.select("kind", "run_s", "dedicated_s").iter_rows()
    errors = [
        abs(run_s / dedicated_s - 1)
        for kind, run_s, dedicated_s in rows
        if kind == "batch" and dedicated_s and dedicated_s >= _LONG_ENOUGH_S
    ]
    return median(errors) if errors else None


def _largest_degradation(outcome: ReplayOutcome) -> float:
    values = [
        degradation
        for kind, degradation in outcome.jobs.select("kind", "degradation").iter_rows()
        if kind == "batch" and degradation is not None
    ]
    return max(values, default=0.0)


def _slowed_alone(outcome: ReplayOutcome) -> float:
    values = [
        degradation > 1 + _WITHIN
        for kind, degradation in outcome.jobs.select("kind", "degradation").iter_rows()
        if kind == "batch" and degradation is not None
    ]
    return sum(values) / len(values) if values else 0.0


def _rare_intervals(outcome: ReplayOutcome) -> float:
    return sum(share for interval, share in outcome.interval_shares().items() if interval >= 3)


def _mq(results: Results) -> list[str]:
    return [key for key in results.layouts if key.startswith("mq-") and key in results.real]


def _mq_reason(results: Results) -> str:
    nodes = results.plan.nodes
    if not _mq(results):
        return "MQ is not replayed"
    return f"{counted(nodes, 'node')}: one interactive node is {1 / nodes:.0%} of the cluster, not 8%"


def _mq_rising(results: Results) -> Judgement:
    keys = _mq(results)
    if len(keys) < 2:
        return not_comparable(_mq_reason(results))
    first, last = keys[0], keys[-1]
    return settings_rule(
        {
            "interactive": results.differences(first, last, longest_wait("interactive")),
            "batch": results.differences(last, first, longest_wait("batch")),
        }
    )


def _magnitude(results: Results, values: list[float], paper: float) -> Judgement:
    if not values:
        return not_comparable(_NOT_RUN)
    return magnitude(
        values, paper, other_data=f"the trace is scaled to N{results.plan.nodes}C{results.plan.cores}"
    )


def _settings(settings: Mapping[str, list[float]], note: str) -> Judgement:
    if not all(settings.values()):
        return not_comparable(_NOT_RUN)
    judged = settings_rule(settings)
    single = [ONE_SEED] if min(map(len, settings.values())) == 1 else []
    said = "; ".join([*single, judged.note, note])
    return Judgement(verdict=judged.verdict, estimate=judged.estimate, note=said)


def _one(values: list[float], note: str) -> Judgement:
    if not values:
        return not_comparable(_NOT_RUN)
    judged = direction(values)
    said = "; ".join(filter(None, (judged.note, note)))
    return Judgement(verdict=judged.verdict, estimate=judged.estimate, note=said)


def _row(results: Results, texts: tuple[str, str, str, str, str], judged: Judgement, ours: str) -> ClaimRow:
    number, where, setting, quantity, paper = texts
    system = f"N{results.plan.nodes}C{results.plan.cores} real"
    claim = Claim(id=number, where=where, setting=f"{system}, {setting}", quantity=quantity, paper=paper)
    return ClaimRow.of(claim, judged, ours)
