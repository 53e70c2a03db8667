"""Claims R4 to R28 on the cluster at hand: what so small a cluster can tell, and why it cannot tell the rest.

A value is one replay's, of the first hours or of a whole day; replays of the same jobs in the same trial are
paired. Magnitudes are of another trace, so of most claims the direction is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean, median

import polars as pl

from analysis import claims as rules
from analysis.claims import ClaimRow, Judgement
from foundation.units import counted
from osub.physical import published
from osub.physical.folder import Results
from osub.physical.layouts import DEDICATED, GANGD, NAIVE, same_places
from osub.physical.outcome import SHARES, ReplayOutcome, Value, largest_slowdown, longest_wait, percentile
from osub.physical.tables import KINDS, NAMES, each_text, mean_text, share_text
from simulator.experiments.claim_study import Judged, rows_of
from workloads.trace.scaling import JOB_OF_FIGURE_7_8

_NOT_RUN = "not replayed"
_WITHIN = 0.08
"""R27: what the thesis's applications keep to."""
_LONG_ENOUGH_S = 5.0
_CLOSE = 0.05
"""R26: the thesis's own percentiles differ by up to 4.5%."""
_RARE = 0.001
"""R20."""
_SHARED = {"naive": NAIVE.key, "gangd": GANGD.key}


def real_rows(results: Results) -> list[ClaimRow]:
    """Judge what the cluster at hand tells."""
    judged = _waiting(results) | _completion(results) | _single_jobs(results) | _whole(results)
    here = f"N{results.plan.nodes}C{results.plan.cores} real, "
    return [*rows_of({"R22": _places(results)}), *rows_of(judged, here)]


def _waiting(results: Results) -> dict[str, Judged]:
    shared = {
        name: results.differences(DEDICATED.key, key, ReplayOutcome.waited) for name, key in _SHARED.items()
    }
    waits = {
        f"{kind}, {name}": results.differences(DEDICATED.key, key, longest_wait(kind))
        for kind in KINDS
        for name, key in _SHARED.items()
    }
    alike = [more for kind in KINDS for more in results.differences(NAIVE.key, GANGD.key, longest_wait(kind))]

    def falls(kind: str, workload: str) -> str:
        alone, naive, gangd = (
            mean_text(results.values(layout.key, longest_wait(kind), workload))
            for layout in (DEDICATED, NAIVE, GANGD)
        )
        return f"{kind}, {NAMES[workload]}: {alone} to {naive} (naive), {gangd} s (gangd)"

    return {
        "R4": (
            _magnitude(results, results.values(DEDICATED.key, ReplayOutcome.waited), 0.43),
            each_text(results, DEDICATED.key, ReplayOutcome.waited, share=True),
        ),
        "R5": (
            _settings(shared, "judged: fewer than with M=1"),
            "; ".join(
                f"{name}: {each_text(results, key, ReplayOutcome.waited, share=True)}"
                for name, key in _SHARED.items()
            ),
        ),
        "R6": _of_mq(results, ReplayOutcome.waited, share=True),
        "R7": (
            _mq_rising(results),
            "; ".join(
                f"{results.label(key)}, {kind} [s]: {each_text(results, key, longest_wait(kind))}"
                for key in _mq(results)
                for kind in KINDS
            ),
        ),
        "R8": (
            _settings(waits, "judged: it falls"),
            "; ".join(falls(kind, workload) for kind in KINDS for workload in results.workloads()),
        ),
        "R9": (
            rules.no_difference(alike) if len(alike) > 1 else rules.not_comparable(_NOT_RUN),
            f"naive {mean_text(alike)} s more" if alike else "",
        ),
        "R10": (rules.not_comparable("M = 3 is simulated only"), ""),
    }


def _completion(results: Results) -> dict[str, Judged]:
    reason = "the trace is scaled to this cluster: Table 7.6 above has ours"
    return {
        "R11": (
            rules.not_comparable(reason, results.values(GANGD.key, percentile(2))),
            f"makespan under gangd [s]: {each_text(results, GANGD.key, percentile(2))}",
        ),
        "R12": (rules.not_comparable(_mq_reason(results)), ""),
    }


def _single_jobs(results: Results) -> dict[str, Judged]:
    slowest = [
        outcome.slowest_job("interactive") == JOB_OF_FIGURE_7_8
        for layout in (DEDICATED, NAIVE, GANGD)
        for outcome in results.real.get(layout.key, {}).values()
    ]
    beyond = results.values(GANGD.key, lambda one: one.degraded().height / max(1, one.jobs.height))
    rare = [_rare_intervals(one) for one in results.real.get(GANGD.key, {}).values() if one.interval_shares()]
    alone = [share for key in _mq(results) for share in results.values(key, _slowed_alone)]
    of_mq = rules.not_comparable(_mq_reason(results))
    return {
        "R13": _of_mq(results, largest_slowdown("interactive")),
        "R14": (
            direction_of(
                results.differences(NAIVE.key, GANGD.key, largest_slowdown("batch")),
                "of all jobs; those of one core have nothing that gangd could help",
            ),
            "; ".join(
                f"{name}: {each_text(results, key, largest_slowdown('batch'))}"
                for name, key in _SHARED.items()
            ),
        ),
        "R15": (
            _magnitude(results, results.values(GANGD.key, _largest_degradation), published.REAL_SLOWDOWN),
            each_text(results, GANGD.key, _largest_degradation),
        ),
        "R16": (
            rules.fact(holds=sum(slowest) > len(slowest) / 2, note="jobs of a second: their start decides")
            if slowest
            else rules.not_comparable(_NOT_RUN),
            f"{JOB_OF_FIGURE_7_8} in {sum(slowest)} of {counted(len(slowest), 'replay')}",
        ),
        "R17": (
            of_mq,
            f"spread of the middle half under gangd: {each_text(results, GANGD.key, ReplayOutcome.spread)}",
        ),
        "R18": (
            rules.not_comparable("jobs of seconds: their start alone is more than 8% of them"),
            f"{share_text(alone)} of the batch jobs of MQ ran for over 8% longer than alone" if alone else "",
        ),
        "R19": (_magnitude(results, beyond, published.DEGRADED_JOBS / published.JOBS), share_text(beyond)),
        "R20": (
            direction_of([_RARE - share for share in rare], "all jobs that took turns, every slice counted"),
            f"{share_text(rare)} of the intervals" if rare else "",
        ),
        "R21": (of_mq, ""),
    }


def _whole(results: Results) -> dict[str, Judged]:
    errors = _percentile_errors(results)
    known = map(_usual_error, results.real.get(DEDICATED.key, {}).values())
    dedicated = [error for error in known if error is not None]
    failed = sum(one.failed for of in results.real.values() for one in of.values())
    jobs = sum(one.jobs.height for of in results.real.values() for one in of.values())
    return {
        "R26": (
            direction_of(
                [_CLOSE - abs(error) for of in errors.values() for error in of],
                f"judged: within {_CLOSE:.0%}, percentile by percentile",
            ),
            ", ".join(f"{share}%: {mean(of):+.1%}" for share, of in errors.items() if of),
        ),
        "R27": (
            direction_of(
                [_WITHIN - error for error in dedicated],
                f"median error of jobs of {_LONG_ENOUGH_S:g} s and more, launch and all",
            ),
            f"median {mean_text(dedicated, percent=True)}"
            if dedicated
            else f"no job of {_LONG_ENOUGH_S:g} s",
        ),
        "R28": (
            rules.fact(holds=failed == 0) if jobs else rules.not_comparable(_NOT_RUN),
            f"{counted(jobs, 'job')} completed, {failed} did not",
        ),
    }


def _places(results: Results) -> Judged:
    if results.places is None:
        return rules.not_comparable(_NOT_RUN), ""
    same = same_places(results.places, published.SIMULATED_PLACES)
    others = [job for job, place in published.SIMULATED_PLACES.items() if results.places.get(job) != place]
    judged = rules.magnitude([float(same)], float(published.SAME_PLACES))
    note = f"elsewhere: {', '.join(map(str, others)) or 'none'} (thesis: 2849, 2854)"
    return (
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
    long = outcome.jobs.filter((pl.col("kind") == "batch") & (pl.col("dedicated_s") >= _LONG_ENOUGH_S))
    errors = long.select((pl.col("run_s") / pl.col("dedicated_s") - 1).abs()).to_series().to_list()
    return median(errors) if errors else None


def _degradations(outcome: ReplayOutcome) -> list[float]:
    batch = outcome.jobs.filter(pl.col("kind") == "batch")
    return batch.get_column("degradation").drop_nulls().to_list()


def _largest_degradation(outcome: ReplayOutcome) -> float:
    return max(_degradations(outcome), default=0.0)


def _slowed_alone(outcome: ReplayOutcome) -> float:
    slowed = [degradation > 1 + _WITHIN for degradation in _degradations(outcome)]
    return sum(slowed) / len(slowed) if slowed else 0.0


def _rare_intervals(outcome: ReplayOutcome) -> float:
    return sum(share for interval, share in outcome.interval_shares().items() if interval >= 3)


def _mq(results: Results) -> list[str]:
    return [key for key in results.replayed() if key.startswith("mq-")]


def _mq_reason(results: Results) -> str:
    nodes = results.plan.nodes
    if not _mq(results):
        return "MQ is not replayed"
    return f"{counted(nodes, 'node')}: one interactive node is {1 / nodes:.0%} of the cluster, not 8%"


def _of_mq(results: Results, value: Value, *, share: bool = False) -> Judged:
    """Return a value under each MQ, which is not judged."""
    ours = "; ".join(each_text(results, key, value, share=share) for key in _mq(results))
    return rules.not_comparable(_mq_reason(results)), ours


def _mq_rising(results: Results) -> Judgement:
    keys = _mq(results)
    if len(keys) < 2:
        return rules.not_comparable(_mq_reason(results))
    first, last = keys[0], keys[-1]
    return rules.over_settings(
        {
            "interactive": results.differences(first, last, longest_wait("interactive")),
            "batch": results.differences(last, first, longest_wait("batch")),
        }
    )


def _magnitude(results: Results, values: list[float], paper: float) -> Judgement:
    if not values:
        return rules.not_comparable(_NOT_RUN)
    return rules.magnitude(
        values, paper, other_data=f"the trace is scaled to N{results.plan.nodes}C{results.plan.cores}"
    )


def _settings(settings: Mapping[str, list[float]], note: str) -> Judgement:
    if not all(settings.values()):
        return rules.not_comparable(_NOT_RUN)
    judged = rules.noted(rules.over_settings(settings), note)
    single = f"{rules.ONE_SEED}; " if min(map(len, settings.values())) == 1 else ""
    return Judgement(verdict=judged.verdict, estimate=judged.estimate, note=single + judged.note)


def direction_of(values: list[float], note: str, without: str = _NOT_RUN) -> Judgement:
    """Judge a direction, with a note; without values it is not comparable."""
    return rules.noted(rules.direction(values), note) if values else rules.not_comparable(without)
