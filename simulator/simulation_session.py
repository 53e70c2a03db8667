"""A simulation from trace file to RUN directory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from foundation.errors import InputError, UsageError
from foundation.records import TRACE_NAME, GangSettings, HostInfo, Run, RunInfo, utc_now
from foundation.records.records_folder import read_info
from foundation.records.row_types import HoldKind
from foundation.units import US_PER_S
from gangd.core.scheduler_events import HoldMode
from simulator.engine.pool_run import PoolPolicy
from simulator.fit import Decision, Latencies, RecordedOrder, delayed, order_of, undelayed
from simulator.model.system import node_names
from simulator.recording import RunTables, write_tables
from simulator.setting_choices import life_options, most_jobs_a_core, prepared, setting_of, takes_whole_nodes
from simulator.simulation import (
    Cleaning,
    SimulationResult,
    SimulationSetting,
    Workload,
    make_workload,
    simulate,
)
from simulator.simulation_spec import SimulationSpec
from workloads.swf import load_columns

OTHER_OVERHEADS = ("1.0", "1.4")
"""C_o at which a run on shared cores is simulated again: no site can choose it, and it is seldom measured."""
_INFO_NAME = "run.json"
_ORDERED = ("easy", "fcfs", "slurm")
_MOST_ENGINE_S = 1.0
_APART = ("speedup", "dependencies", "memory", "memory_coverage")


class SimulationSession:
    """One trace under one setting.

    Parameters
    ----------
    trace
        SWF file, plain or gzip, or a RUN, whose trace is then simulated.
    spec, cleaning
        What to simulate.
    latencies
        What a real cluster adds to the schedule; None: nothing.
    fitted_on
        Label of the run that latencies and settings were fitted on, if they were.
    order_of
        Real run whose order of starts and ends the jobs have; None: the policy decides.
    lenient
        Pass over lines of the trace that break a rule of the format.

    Raises
    ------
    InputError, UsageError
        See ``load_columns``, ``setting_of`` and ``make_workload``.
    """

    def __init__(
        self,
        trace: Path,
        spec: SimulationSpec,
        cleaning: Cleaning,
        latencies: Latencies | None = None,
        fitted_on: str | None = None,
        *,
        order_of: Run | None = None,
        lenient: bool = False,
    ) -> None:
        self.fitted_on = fitted_on
        self.spec = spec
        self.cleaning = cleaning
        self.latencies = latencies
        self.started = utc_now()
        self.other_overheads: dict[str, dict[str, float]] = {}
        self.setting = setting_of(spec)
        self.trace_path = trace / TRACE_NAME if (trace / _INFO_NAME).is_file() else trace
        columns = load_columns(self.trace_path, strict=not lenient)
        self.skipped_lines = dict(columns.report.skipped)
        self.trace_name = read_info(self.trace_path.parent).trace_name if self.of_run else columns.name
        workload = make_workload(
            columns,
            self.setting.queues,
            cleaning,
            node_memory_kib=self.setting.rules.node_memory_kib,
            keep_origin=self.of_run,
            whole_nodes=takes_whole_nodes(spec),
        )
        self.workload = prepared(spec, self.setting, _honoured(workload, spec, self.setting, cleaning))
        if spec.memory is not None and self.workload.lifecycles is not None:
            raise UsageError.naming("{memory} is for jobs that run once, from a start to an end")
        self.order_of = order_of
        self._order = () if order_of is None else self._order_in(order_of)
        self.setting = self._ordered(self.setting)

    def _order_in(self, run: Run) -> tuple[Decision, ...]:
        """Return the order that ``run`` has of the workload's jobs."""
        if self.spec.policy not in _ORDERED or self.setting.queues.is_mq or self.setting.rules.fails:
            raise UsageError.naming(
                "{order_of} takes the place of a policy in one queue: it goes with {policy} "
                f"{', '.join(_ORDERED)}, without {{queues}} mq, {{failures}} and {{mtbf}}"
            )
        known = set(self.workload.number.tolist())
        order = tuple(decision for decision in order_of(run) if decision.job in known)
        if not order:
            raise InputError.naming(
                "{order_of}: {label} has started none of the jobs of {name}",
                label=run.info.label,
                name=self.trace_name,
            )
        return order

    def _ordered(self, setting: SimulationSetting) -> SimulationSetting:
        if not self._order:
            return setting
        rules = replace(setting.rules, policy=RecordedOrder(self._order), policy_name="order-of")
        return replace(setting, rules=rules)

    @property
    def of_run(self) -> bool:
        """Whether the trace is that of a RUN, and so in the run's own seconds."""
        return self.trace_path.name == TRACE_NAME and (self.trace_path.parent / _INFO_NAME).is_file()

    def run(self, progress: Callable[[int], None] | None = None, *, check: bool = False) -> SimulationResult:
        """Simulate; with ``check``, check the engine's invariants after every event."""
        return self._run(self.setting, progress, check=check)

    def _run(
        self,
        setting: SimulationSetting,
        progress: Callable[[int], None] | None = None,
        *,
        check: bool = False,
    ) -> SimulationResult:
        if self.latencies is None:
            return simulate(self.workload, setting, progress=progress, check=check)
        late = delayed(self.workload, self.latencies)
        result = simulate(late, setting, progress=progress, check=check)
        return undelayed(result, self.workload, self.latencies)

    def vary_overhead(self, engine_cpu_s: float) -> None:
        """Simulate again at each C_o of ``OTHER_OVERHEADS``, for ``info`` to say what would change.

        Nothing is done where C_o plays no part: cores are not shared, or what jobs lose follows from
        something else. Nor where jobs run more than once, or where the first simulation took more than a
        second of CPU time in the engine.
        """
        spec = self.spec
        most = max(most_jobs_a_core(spec), spec.multiplicity_interactive if self.setting.queues.is_mq else 1)
        other_model = spec.sharing is not None or spec.quantum_ms is not None or takes_whole_nodes(spec)
        fails = spec.failures is not None or spec.mtbf is not None or self.workload.lifecycles is not None
        if most == 1 or other_model or fails or engine_cpu_s > _MOST_ENGINE_S:
            return
        for overhead in OTHER_OVERHEADS:
            if float(overhead) != float(spec.overhead):
                other = msgspec.structs.replace(spec, overhead=overhead, slowdowns=None)
                result = self._run(self._ordered(setting_of(other)))
                self.other_overheads[overhead] = _means(result)

    def info(self, engine_cpu_s: float, label: str | None, wall_s: float, cpu_s: float) -> RunInfo:
        """Return the description of the run."""
        spec, queues = self.spec, self.setting.queues
        dependencies = self.workload.dependencies
        dependent = {} if dependencies is None else {"dependent_jobs": dependencies.count}
        return RunInfo(
            kind="simulated",
            label=label or _label(spec),
            trace_name=self.trace_name,
            system=str(self.setting.system),
            node_names=node_names(self.setting.system.nodes),
            queues="mq" if queues.is_mq else "sq",
            policy=spec.policy if self.order_of is None else "order-of",
            multiplicity=most_jobs_a_core(spec),
            multiplicity_interactive=queues.interactive.multiplicity if queues.is_mq else None,
            interactive_nodes=queues.interactive.nodes if queues.is_mq else None,
            gang=_gang(spec),
            seeds={"simulation": spec.seed},
            speedup=self.cleaning.speedup,
            host=HostInfo.here(),
            started=self.started,
            wall_s=wall_s,
            cpu_s=cpu_s,
            engine_cpu_s=engine_cpu_s,
            options={
                **_engine_options(spec),
                "memory_gib": spec.memory_gib,
                **({} if spec.memory is None else {"memory": spec.memory}),
                **({"memory_coverage": spec.memory_coverage} if spec.memory == "predicted" else {}),
                **({} if spec.memory_growth is None else {"memory_growth": spec.memory_growth}),
                **({} if spec.memory_mib is None else {"memory_mib": spec.memory_mib}),
                **life_options(spec),
                **{
                    name: _plain(value) for name, value in asdict(self.cleaning).items() if name not in _APART
                },
                **dependent,
                **({} if self.latencies is None else msgspec.to_builtins(self.latencies)),
                **({} if self.fitted_on is None else {"fitted_on": self.fitted_on}),
                **({} if self.order_of is None else {"order_of": self.order_of.info.label}),
                **{f"left out: {reason}": count for reason, count in self.workload.left_out.items()},
            },
            other_overheads=self.other_overheads,
        )

    def write(
        self, tables: RunTables, out: Path, label: str | None, began_wall: float, began_cpu: float
    ) -> None:
        """Write the RUN; the times count from ``began_wall`` (perf_counter) and ``began_cpu`` (process_time).

        Raises
        ------
        OutputError
            ``out`` holds something already, or cannot be written.
        """
        wall_s, cpu_s = time.perf_counter() - began_wall, time.process_time() - began_cpu
        info = self.info(tables.engine_cpu_s, label, wall_s, cpu_s)
        if tables.most_jobs is not None:
            info = msgspec.structs.replace(info, multiplicity=tables.most_jobs)
        if self.spec.memory is not None:
            killed = int((tables.jobs["state"] == "FAILED").sum())
            info = msgspec.structs.replace(info, options={**info.options, "out_of_memory": killed})
        write_tables(tables, out, info, self.trace_path)


def _honoured(
    workload: Workload, spec: SimulationSpec, setting: SimulationSetting, cleaning: Cleaning
) -> Workload:
    """Return the workload without dependencies where the policy has an event loop that knows none."""
    if workload.dependencies is None or not isinstance(setting.rules.policy, PoolPolicy):
        return workload
    if cleaning.dependencies:
        raise UsageError.naming(
            "{policy} {given} submits every job at its own time and takes no {dependencies}",
            given=spec.policy,
        )
    ignored = {f"after a preceding job, which {spec.policy} passes over": workload.dependencies.count}
    return replace(workload, dependencies=None, left_out={**workload.left_out, **ignored})


def _means(result: SimulationResult) -> dict[str, float]:
    """Return means over the completed jobs that ran for some time: see ``RunInfo.other_overheads``."""
    run_us = result.workload.run_us
    known = (run_us > 0) & ~result.workload.timed_out
    submit_us, start_us, end_us, run_us = (
        some[known] for some in (result.submit_us, result.start_us, result.end_us, run_us)
    )
    if not known.any():
        return {}
    return {
        "wait_s": float((start_us - submit_us).mean()) / US_PER_S,
        "turnaround_s": float((end_us - submit_us).mean()) / US_PER_S,
        "degradation": float(((end_us - start_us) / run_us).mean()),
    }


def _engine_options(spec: SimulationSpec) -> dict[str, str | float | None]:
    """Return how cores are chosen and shared, where the engine does it and not the policy."""
    if takes_whole_nodes(spec):
        return {}
    return {
        "placement": spec.placement,
        "overhead": str(spec.overhead),
        **({} if spec.slowdowns is None else {"slowdowns": str(spec.slowdowns)}),
        **({} if spec.slice_cost == 1 else {"slice_cost": spec.slice_cost}),
        "sharing": spec.sharing,
        "node_noise": spec.node_noise,
    }


def _gang(spec: SimulationSpec) -> GangSettings:
    if spec.quantum_ms is None:
        return GangSettings()
    hold: HoldKind = "freeze" if spec.hold == HoldMode.FREEZE else "yield"
    return GangSettings(kind="osub", quantum_ms=spec.quantum_ms, hold=hold)


def _label(spec: SimulationSpec) -> str:
    if takes_whole_nodes(spec):
        return f"{spec.system} {spec.policy} (sim)"
    queues = (
        f"MQ R={spec.interactive_share or spec.interactive_nodes} M={spec.multiplicity}"
        f"+{spec.multiplicity_interactive}"
        if spec.queues == "mq"
        else f"SQ M={spec.multiplicity}"
    )
    return f"{spec.system} {queues} {spec.policy} (sim)"


def _plain(value: object) -> str | int | float | None:
    return value if value is None or isinstance(value, int | float) else str(value)
