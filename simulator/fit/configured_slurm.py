"""What Slurm's configuration says of the options of ``--policy slurm``.

Defaults and bounds are those of Slurm 22.05: slurm.conf(5), and ``_load_config`` of ``sched/backfill`` for
values that are out of bounds, for which Slurm takes its default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from simulator.policies.policy_family import Value

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
