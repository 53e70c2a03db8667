"""``--fit RUN``: the options of ``--policy slurm``, and latencies, from a real run.

What Slurm's configuration states is taken. What it does not state is estimated from the starts, as far as
they tell it; the rest keeps its default. Each parameter says which it is.

A job waits until the controller looks, which may be at once or a whole period later, and then for what a
start takes. The end of another job comes first for those that were released: its nodes complete. So what the
shortest gaps are tells the constants, whatever the waits between are like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from foundation.errors import InputError, UsageError
from foundation.records import Run
from simulator.fit.configured_slurm import Configured, Stated, configured
from simulator.fit.fit_parameters import IDLE_PARTS, LAUNCHES, Fit, Parameter, default, fitted
from simulator.fit.job_starts import Starts, read_starts
from simulator.fit.measured_run import completed, idle_parts, launches
from simulator.fit.robust_estimates import (
    RobustEstimate,
    estimate,
    longest_wait,
    middle,
    period,
    phase,
    shortest,
    with_interval,
)
from simulator.policies.slurm.slurm_family import FAMILY

_APART_S = 0.1
"""Starts of one pass are stamped within less on a calm host."""
_LEAST_PERIOD_S = 0.5
_NEAR = 0.3
_WEEK_S = 604_800.0
_FEW_STARTS = "too few jobs waited for the scheduler alone"
_FEW_OVERTOOK = "too few jobs overtook others"

_ENOUGH = 5
_LEAST_WAIT_S = 0.5
"""Who waits for a look waits longer, now and then."""


def fit_run(run: Run, system: str, requests: int) -> Fit:
    """Return what a real run tells of its Slurm.

    Parameters
    ----------
    run
        A finished replay.
    system
        The system that is to be simulated.
    requests
        How many times the requested time a replay would ask for there: M where jobs share cores and no gangd
        moves their ends, else 1.

    Raises
    ------
    InputError
        It is a simulation, or not finished, or no job of it has started.
    UsageError
        It is of another system.
    """
    label = run.info.label
    if run.info.kind != "real":
        raise InputError(f"{label} is a simulation: --fit takes the RUN of a replay on a real Slurm")
    if not run.complete:
        raise InputError(f"{label} is not finished: `osub replay --resume` goes on with it")
    if run.info.system != system:
        raise UsageError(f"--fit: {label} is a run on {run.info.system}, not on {system}")
    config = None if run.info.slurm_config is None else configured(run.info.slurm_config)
    starts = _starts(run, config)
    if not starts.count:
        raise InputError(f"no job of {label} has started: there is nothing to fit")
    gaps = parts(starts, ends_wait=None if config is None else config.ends_wait)
    stated = _stated(run, config, requests)
    parameters = _from_starts(starts, gaps, stated)
    return Fit(
        run=label,
        system=run.info.system,
        starts=starts.count,
        policy=tuple(
            _as_stated(option.name, stated[option.name])
            if option.name in stated
            else parameters.get(option.name) or default(option.name, "the run does not tell it")
            for option in FAMILY.options
        ),
        latencies=_latencies(run, gaps),
        ignored=config.ignored if config else (),
    )


def _starts(run: Run, config: Configured | None) -> Starts:
    """Return the starts, in the light of what orders the queue."""
    stated = {} if config is None else config.stated
    weight = {name: float(stated[name].value) if name in stated else 0.0 for name in ("age", "size")}
    max_age_s = float(stated["max_age"].value) if "max_age" in stated else _WEEK_S
    small_first = "favour" in stated and stated["favour"].value == "small"
    return read_starts(
        run,
        size_weight=-weight["size"] if small_first else weight["size"],
        age_weight_a_s=weight["age"] / max_age_s,
    )


def _stated(run: Run, config: Configured | None, requests: int) -> dict[str, Stated]:
    """Return what need not be fitted."""
    stated = {"limits": Stated(requests, "as a replay asks for them")}
    if config is not None:
        return stated | dict(config.stated)
    if run.info.scheduler is not None:
        backfills = run.info.scheduler == "sched/backfill"
        stated["backfill"] = Stated("yes" if backfills else "no", run.info.scheduler)
    return stated


def _as_stated(name: str, stated: Stated) -> Parameter:
    return Parameter(name=name, value=stated.value, source="configuration", note=stated.words)


def _from_starts(starts: Starts, gaps: Gaps, stated: Mapping[str, Stated]) -> dict[str, Parameter]:
    """Return what the starts tell, by name; of what is stated it is not taken."""
    beats = fitted("interval", period(starts.overtook, _LEAST_PERIOD_S, _APART_S), _FEW_OVERTOOK)
    interval_s = float(stated["interval"].value if "interval" in stated else beats.value)
    tick = _tick(starts, gaps, interval_s if _backfills(stated) else None, stated)
    waits = ends_seem_to_wait(starts)
    parameters = [
        tick,
        _delay(gaps, float(tick.value)),
        beats,
        _phase(starts, gaps, interval_s) if _backfills(stated) else default("phase", "no backfilling"),
        default("depth", f"at least {starts.deepest}, for a job overtook from there"),
        fitted("completing", gaps.completing, _FEW_STARTS),
        default("ends", _FEW_STARTS)
        if waits is None
        else Parameter(name="ends", value="wait" if waits else "at-once", source="fitted"),
    ]
    return {parameter.name: parameter for parameter in parameters}


def _backfills(stated: Mapping[str, Stated]) -> bool:
    return "backfill" not in stated or stated["backfill"].value == "yes"


def _tick(starts: Starts, gaps: Gaps, interval_s: float | None, stated: Mapping[str, Stated]) -> Parameter:
    """Return the time between two looks: the period of starts, else how long jobs wait for one."""
    slurms = float(default("tick", "").value)
    delay_s = float(stated["delay"].value) if "delay" in stated else None
    if delay_s is not None and interval_s is not None and interval_s < 2 * slurms:
        return default("tick", "not distinct from backfilling")
    if gaps.look is None:
        return default("tick", _FEW_STARTS)
    beat = period(starts.passes, _LEAST_PERIOD_S, _APART_S)
    waits = delay_s is not None and delay_s > slurms
    most_s = delay_s / (1 + _NEAR) if delay_s is not None and waits else gaps.look.value * (1 + _NEAR)
    if beat is not None and beat.value < most_s:
        return fitted("tick", beat)
    return default("tick", "not distinct from the delay") if waits else fitted("tick", gaps.look)


def _delay(gaps: Gaps, tick_s: float) -> Parameter:
    """Return the time between two runs for what has come, where jobs wait longer than for a tick."""
    if gaps.look is None:
        return default("delay", _FEW_STARTS)
    if gaps.look.value < (1 + _NEAR) * tick_s:
        return msgspec.structs.replace(default("delay", "jobs wait no longer than for a tick"), value=0.0)
    return fitted("delay", gaps.look)


def _phase(starts: Starts, gaps: Gaps, interval_s: float) -> Parameter:
    """Return when the backfill scheduler ran at first, by the first jobs that overtook others."""
    delay = phase(starts.overtook, interval_s, _APART_S)
    if delay is None:
        return default("phase", _FEW_OVERTOOK)
    # The pass was before the starts that it made.
    lag_s = gaps.dispatch.value if gaps.dispatch else 0.0
    value, low, high = (one - lag_s for one in (delay.value, delay.low, delay.high))
    return fitted("phase", estimate(value, low, high, delay.observations))


def _latencies(run: Run, gaps: Gaps) -> tuple[Parameter, ...]:
    lags = (run.jobs["submitted_s"] - run.jobs["due_s"]).drop_nulls().to_list()
    times = [
        fitted("submission_s", with_interval(middle, lags)),
        fitted("scheduling_s", gaps.dispatch, _FEW_STARTS),
    ]
    if run.info.most_a_core > 1:
        return (*times, *(default(name, "jobs share cores") for name in (*LAUNCHES, *IDLE_PARTS)))
    some = [*zip(LAUNCHES, launches(completed(run)), strict=True), *idle_parts(run).items()]
    return (
        *times,
        *(fitted(name, with_interval(middle, one) if one else None, "no such job") for name, one in some),
    )


@dataclass(frozen=True, slots=True)
class Gaps:
    """The parts, in seconds; None: unknown.

    Parameters
    ----------
    dispatch
        What a start takes; with what completing takes, if no job started without.
    look
        How long a job waits for a look at most.
    completing
        How much later jobs start that were released than those that arrived.
    """

    dispatch: RobustEstimate | None = None
    look: RobustEstimate | None = None
    completing: RobustEstimate | None = None


def parts(starts: Starts, *, ends_wait: bool | None) -> Gaps:
    """Return what the gaps of a run consist of.

    Parameters
    ----------
    starts
        The run's.
    ends_wait
        Whether ends wait for a look as arrivals do; None: not known.
    """
    arrived, released = starts.arrived, starts.released
    alike = ends_wait if ends_wait is not None else ends_seem_to_wait(starts)
    if len(released) < _ENOUGH:
        return Gaps(*_ends_of(arrived)) if len(arrived) >= _ENOUGH else Gaps()
    if len(arrived) < _ENOUGH:
        dispatch, look = _ends_of(released)
        waits = longest_wait(released) >= _LEAST_WAIT_S if alike is None else alike
        return Gaps(dispatch, look if waits else None)
    start = shortest(arrived)
    if not alike:
        middle_end = with_interval(middle, released)
        return Gaps(start, with_interval(longest_wait, arrived), _between(middle_end, start))
    end = shortest(released)
    look = with_interval(_common_wait, arrived, released)
    return Gaps(min(start, end, key=lambda one: one.value), look, _between(end, start))


def _between(later: RobustEstimate, sooner: RobustEstimate) -> RobustEstimate:
    """Return how much later something is."""
    return estimate(
        later.value - sooner.value,
        later.low - sooner.high,
        later.high - sooner.low,
        later.observations + sooner.observations,
    )


def _common_wait(gaps: Sequence[float], others: Sequence[float]) -> float:
    return (longest_wait(gaps) + longest_wait(others)) / 2


def ends_seem_to_wait(starts: Starts) -> bool | None:
    """Return whether jobs that were released wait for a look, as those that arrived do; None: unknown."""
    if min(len(starts.arrived), len(starts.released)) < _ENOUGH:
        return None
    return longest_wait(starts.released) > longest_wait(starts.arrived) / 2


def _ends_of(gaps: Sequence[float]) -> tuple[RobustEstimate, RobustEstimate]:
    """Return what the shortest gaps are, and by how much the longest are longer."""
    return shortest(gaps), with_interval(longest_wait, gaps)
