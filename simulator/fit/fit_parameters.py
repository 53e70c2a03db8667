"""What a fit consists of: parameters, each with where its value is from."""

from __future__ import annotations

from typing import Literal

import msgspec

from simulator.fit.robust_estimates import RobustEstimate
from simulator.fit.slurm_latency import Latencies
from simulator.policies.policy_family import Value
from simulator.policies.slurm.slurm_family import FAMILY

Source = Literal["configuration", "fitted", "default"]
LAUNCHES = ("launch_serial_s", "launch_parallel_s", "launch_interactive_s")
IDLE_PARTS = ("blocked_serial_s", "blocked_parallel_s", "ending_serial_s", "ending_parallel_s")
_DEFAULTS = {option.name: option.default for option in FAMILY.options}


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter, and where its value is from.

    Parameters
    ----------
    name, value
        An option of ``--policy slurm``, or a latency (``submission_s``, ...).
    source
        ``configuration``: Slurm's states it, or the replay does. ``fitted``: estimated from the run.
        ``default``: neither tells it.
    low, high, observations
        Of what is fitted: the 95 % interval, and on how many observations.
    note
        The words of the configuration, or why the value is the default.
    """

    name: str
    value: Value
    source: Source
    low: float | None = None
    high: float | None = None
    observations: int | None = None
    note: str | None = None


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What a run tells.

    Parameters
    ----------
    run, system
        Label and system of the run.
    starts
        How many starts tell anything.
    policy
        The options of ``--policy slurm``, all of them.
    latencies
        What comes on top of the schedule; see ``Latencies``.
    ignored
        What the configuration says that the policy does not have.
    """

    run: str
    system: str
    starts: int
    policy: tuple[Parameter, ...]
    latencies: tuple[Parameter, ...]
    ignored: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """The options as ``--set`` takes them."""
        return tuple(f"{parameter.name}={parameter.value}" for parameter in self.policy)

    def times(self, launching: Latencies | None = None) -> Latencies:
        """Return the latencies; how long launching takes, where this run does not tell it, from others."""
        times = {one.name: float(one.value) for one in self.latencies}
        for one in self.latencies:
            if launching is not None and one.source == "default" and one.name in (*LAUNCHES, *IDLE_PARTS):
                times[one.name] = getattr(launching, one.name)
        return Latencies(**times)


def fitted(name: str, estimate: RobustEstimate | None, why_not: str = "") -> Parameter:
    """Return a parameter with an estimate, or with its default and why there is none."""
    if estimate is None:
        return default(name, why_not)
    return Parameter(
        name=name,
        value=estimate.value,
        source="fitted",
        low=estimate.low,
        high=estimate.high,
        observations=estimate.observations,
    )


def default(name: str, why: str) -> Parameter:
    """Return a parameter of which nothing is known; a latency is then 0."""
    return Parameter(name=name, value=_DEFAULTS.get(name, 0.0), source="default", note=why)
