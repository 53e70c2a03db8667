"""Fits ``--policy slurm`` to a real run: what its configuration says, and what its decisions show.

``--fit RUN``: the options of ``--policy slurm``, and latencies, from a real run.

What Slurm's configuration states is taken. What it does not state is estimated from the starts, as far as
they tell it; the rest keeps its default. Each parameter says which it is.

A job waits until the controller looks, which may be at once or a whole period later, and then for what a
start takes. The end of another job comes first for those that were released: its nodes complete. So what the
shortest gaps are tells the constants, whatever the waits between are like.

What Slurm's configuration says of the options of ``--policy slurm``.

Defaults and bounds are those of Slurm 22.05: slurm.conf(5), and ``_load_config`` of ``sched/backfill`` for
values that are out of bounds, for which Slurm takes its default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from foundation.errors import InputError, UsageError
from foundation.records import Run
from simulator.fit.fit_parameters import (
    IDLE_PARTS,
    LAUNCHES,
    Fit,
    Parameter,
    RobustEstimate,
    default,
    estimate,
    fitted,
    longest_wait,
    middle,
    period,
    phase,
    shortest,
    with_interval,
)
from simulator.fit.measured_run import completed, idle_parts, launches
from simulator.fit.recorded_order import Starts, read_starts
from simulator.policies.policy_family import Value
from simulator.policies.slurm_family import FAMILY

_WHOLE = re.compile(r"-?[0-9]{1,12}")
_SPAN = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{2}):([0-9]{2}):([0-9]{2})")
_FOR_EVER_S = 1e9
_SLURMDBD = "accounting_storage/slurmdbd"
_NONE = frozenset({"", "(null)", "none"})
# Other SchedulerParameters that change no start that the family models.
_HARMLESS = frozenset(
    {
        "bf_continue",
        "bf_max_time",
        "bf_node_space_size",
        "bf_yield_interval",
        "bf_yield_sleep",
        "build_queue_timeout",
        "default_queue_depth",
        "defer",
        "defer_batch",
        "max_rpc_cnt",
        "max_sched_time",
        "nohold_on_prolog_fail",
        "partition_job_depth",
    }
)
_WEIGHTS = {"age": "PriorityWeightAge", "size": "PriorityWeightJobSize"}
_OTHER_WEIGHTS = ("PriorityWeightAssoc", "PriorityWeightPartition", "PriorityWeightQOS", "PriorityWeightTRES")


@dataclass(frozen=True, slots=True)
class Stated:
    """An option's value, and the words of the configuration that it comes from."""

    value: Value
    words: str


@dataclass(frozen=True, slots=True)
class Configured:
    """What a configuration says.

    Parameters
    ----------
    stated
        By the option's name; what it does not say has Slurm's default.
    ignored
        What it says that the family does not have.
    """

    stated: Mapping[str, Stated]
    ignored: tuple[str, ...]

    @property
    def ends_wait(self) -> bool:
        """Whether ends wait for a look."""
        return self.stated["ends"].value == "wait"


@dataclass(frozen=True, slots=True)
class _Whole:
    """A whole number of ``SchedulerParameters``: its default and bounds, and its unit in the option's own."""

    key: str
    default: int
    least: int
    most: int
    unit: float = 1.0


_PARAMETERS = {
    "delay": _Whole("batch_sched_delay", 3, 0, 1 << 31),
    "every": _Whole("sched_interval", 60, 0, 1 << 31),
    "spacing": _Whole("sched_min_interval", 2, 0, 1 << 31, 1e-6),
    "interval": _Whole("bf_interval", 30, 1, 10_800),
    "depth": _Whole("bf_max_job_test", 500, 1, 1_000_000),
    "window": _Whole("bf_window", 1440, 1, 43_200, 60.0),
    "reserve": _Whole("bf_job_part_count_reserve", 0, 0, 100_000),
    "resolution": _Whole("bf_resolution", 60, 1, 3_600),
}


def configured(config: Mapping[str, str]) -> Configured:
    """Return what a configuration, as a RUN keeps it, says.

    A value that is no number, or out of bounds, is taken as Slurm takes it: as its default.
    """
    parameters = _parameters(config.get("SchedulerParameters", ""))
    stated = {name: _whole(whole, parameters) for name, whole in _PARAMETERS.items()}
    stated["ends"] = _ends(config, parameters)
    stated["backfill"] = _backfill(config, parameters)
    stated |= _priority(config)
    return Configured(stated, tuple(_ignored(config, parameters)))


def _parameters(text: str) -> dict[str, str]:
    """Return the parameters by name in lower case; of one that comes twice the first, as Slurm finds it."""
    found: dict[str, str] = {}
    for part in "" if text in _NONE else text.split(","):
        name, _, value = part.strip().partition("=")
        found.setdefault(name.lower(), value)
    return {name: value for name, value in found.items() if name}


def _whole(whole: _Whole, parameters: Mapping[str, str]) -> Stated:
    text = parameters.get(whole.key)
    match = _WHOLE.match(text or "")
    number = int(match[0]) if match else whole.default
    if not whole.least <= number <= whole.most:
        number = whole.default
    value: Value = number * whole.unit if whole.unit != 1 else number
    return Stated(value, f"{whole.key}={number}" + ("" if text is not None else ", Slurm's default"))


def _ends(config: Mapping[str, str], parameters: Mapping[str, str]) -> Stated:
    """Return whether ends wait: without an epilog a node answers at once, and asks for no schedule."""
    defers = next((name for name in parameters if name.startswith("defer")), None)
    if defers is not None:
        return Stated("wait", defers)
    if config.get("Epilog", "(null)") in _NONE:
        return Stated("wait", "no Epilog")
    return Stated("at-once", "an Epilog")


def _backfill(config: Mapping[str, str], parameters: Mapping[str, str]) -> Stated:
    scheduler = config.get("SchedulerType") or "sched/backfill"
    if scheduler == "sched/backfill" and parameters.get("bf_interval") == "-1":
        return Stated("no", "bf_interval=-1")
    return Stated("yes" if scheduler == "sched/backfill" else "no", scheduler)


def _priority(config: Mapping[str, str]) -> dict[str, Stated]:
    kind = config.get("PriorityType") or "priority/basic"
    if kind != "priority/multifactor":
        return {name: Stated(0.0, kind) for name in (*_WEIGHTS, "fair")}
    stated = {
        name: Stated(_number(config, key), f"{key}={_number(config, key):g}")
        for name, key in _WEIGHTS.items()
    }
    accounts = config.get("AccountingStorageType", _SLURMDBD)
    if accounts != _SLURMDBD:
        stated["age"] = Stated(0.0, f"{accounts}: Slurm counts age with slurmdbd only")
    # All jobs of a replay are its own user's.
    stated["fair"] = Stated(0.0, "a replay's jobs are all one user's")
    favours = config.get("PriorityFavorSmall", "No").lower() in {"yes", "1", "true"}
    stated["favour"] = Stated(
        "small" if favours else "large", f"PriorityFavorSmall={'Yes' if favours else 'No'}"
    )
    for name, key in (
        ("max_age", "PriorityMaxAge"),
        ("calc", "PriorityCalcPeriod"),
        ("half_life", "PriorityDecayHalfLife"),
    ):
        seconds = _seconds(config.get(key, ""))
        if seconds is not None:
            stated[name] = Stated(seconds or _FOR_EVER_S, f"{key}={config[key]}")
    return stated


def _number(config: Mapping[str, str], key: str) -> float:
    match = _WHOLE.match(config.get(key, ""))
    return float(max(0, int(match[0]))) if match else 0.0


def _seconds(text: str) -> float | None:
    """Return the seconds of ``days-hours:minutes:seconds``, or None if it is none."""
    match = _SPAN.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _ignored(config: Mapping[str, str], parameters: Mapping[str, str]) -> list[str]:
    known = {whole.key for whole in _PARAMETERS.values()} | _HARMLESS
    found = [name + (f"={value}" if value else "") for name, value in parameters.items() if name not in known]
    if parameters.get("sched_interval") == "-1":
        found.append("sched_interval=-1")
    if config.get("PriorityType") == "priority/multifactor":
        found += [
            f"{key}={config[key]}" for key in _OTHER_WEIGHTS if config.get(key, "0") not in _NONE | {"0"}
        ]
        if config.get("PriorityFlags", "") not in _NONE:
            found.append(f"PriorityFlags={config['PriorityFlags']}")
    if config.get("PreemptType", "preempt/none") != "preempt/none":
        found.append(f"PreemptType={config['PreemptType']}")
    if config.get("CompleteWait", "0 sec") != "0 sec":
        found.append(f"CompleteWait={config['CompleteWait']}")
    return found


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
        raise InputError.naming(
            "{label} is a simulation: {fit} takes the RUN of a replay on a real Slurm", label=label
        )
    if not run.complete:
        raise InputError(f"{label} is not finished: `osub replay --resume` goes on with it")
    if run.info.system != system:
        raise UsageError.naming(
            "{fit}: {label} is a run on {there}, not on {here}",
            label=label,
            there=run.info.system,
            here=system,
        )
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
            Parameter(name=option.name, value=known.value, source="configuration", note=known.words)
            if (known := stated.get(option.name)) is not None
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
    look = with_interval(lambda *both: sum(map(longest_wait, both)) / 2, arrived, released)
    return Gaps(min(start, end, key=lambda one: one.value), look, _between(end, start))


def _between(later: RobustEstimate, sooner: RobustEstimate) -> RobustEstimate:
    """Return how much later something is."""
    return estimate(
        later.value - sooner.value,
        later.low - sooner.high,
        later.high - sooner.low,
        later.observations + sooner.observations,
    )


def ends_seem_to_wait(starts: Starts) -> bool | None:
    """Return whether jobs that were released wait for a look, as those that arrived do; None: unknown."""
    if min(len(starts.arrived), len(starts.released)) < _ENOUGH:
        return None
    return longest_wait(starts.released) > longest_wait(starts.arrived) / 2


def _ends_of(gaps: Sequence[float]) -> tuple[RobustEstimate, RobustEstimate]:
    """Return what the shortest gaps are, and by how much the longest are longer."""
    return shortest(gaps), with_interval(longest_wait, gaps)
