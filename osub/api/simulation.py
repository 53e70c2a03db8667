"""A trace on a simulated cluster, once or with several multiplicities."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foundation.errors import OutputError, UsageError
from foundation.files import refuse_unwritable
from foundation.specification import PathText, as_path, checked, parameters_of, signature_of
from foundation.units import counted_of
from osub.api.run import Run
from osub.api.trace import Trace
from simulator.simulation_spec import SimulationSpec

if TYPE_CHECKING:
    from simulator.fit import Fit
    from simulator.simulation import SimulationResult
    from simulator.simulation_session import SimulationSession


def simulate(
    trace: SimulationSpec | Trace | Run | PathText, system: str | None = None, **keywords: Any
) -> Run:
    """Simulate a trace on a system.

    All keywords are fields of ``SimulationSpec``, which may be given in their place; those given besides win.
    ``trace`` and ``order_of`` take a run, ``trace`` a trace, too, and ``fit`` what ``simulator.fit`` found;
    ``settings`` is a mapping or a list of ``NAME=VALUE``. Without ``out`` the RUN is temporary: it goes with
    the returned ``Run`` object, and ``Run.save`` keeps it.

    {parameters}

    Raises
    ------
    UsageError
        A parameter is not known, or two contradict each other.
    InputError
        The trace or a file cannot be used.
    OutputError
        ``out`` holds something already, or cannot be written.
    """
    began_wall, began_cpu = time.perf_counter(), time.process_time()
    given = {name: one.path if isinstance(one, Run | Trace) else one for name, one in keywords.items()}
    fitted = given.pop("fit", None)
    if isinstance(trace, SimulationSpec):
        spec = msgspec.structs.replace(trace, **given, **({} if system is None else {"system": system}))
    else:
        given |= {"trace": trace.path if isinstance(trace, Run | Trace) else trace}
        given |= {} if system is None else {"system": system}
        spec = SimulationSpec(**_SIGNATURE.bind(**given).arguments)
    spec = checked(spec)
    if spec.trace is None:
        raise UsageError.naming("{trace} is missing: name the trace to simulate")
    path = Path(spec.trace)
    target = None if spec.out is None else _empty(Path(spec.out))
    from foundation.records import load_run
    from simulator.fit import Fit, latencies_of, overheads_of
    from simulator.recording import tables_of
    from simulator.simulation import cleaning_of
    from simulator.simulation_session import SimulationSession

    latencies = None if spec.latency is None else latencies_of(Path(spec.latency))
    fit = fitted if isinstance(fitted, Fit) else fit_of(spec, fitted or spec.fit)
    if fit is not None:
        latencies, spec = fit.times(latencies), _with_fitted(spec, fit)
    costs = overheads_of(str(spec.overhead), latencies, in_slices=spec.quantum_ms is not None)
    spec = msgspec.structs.replace(
        spec, overhead=costs.overhead, slowdowns=costs.by_kind, slice_cost=costs.slice_cost
    )
    session = SimulationSession(
        path,
        spec,
        cleaning_of(spec),
        latencies,
        None if fit is None else fit.run,
        order_of=None if spec.order_of is None else load_run(Path(spec.order_of)),
        lenient=spec.lenient,
    )
    if spec.oversize is None:
        _refuse_a_rest(session)
    result = session.run(check=spec.check)
    if spec.vary_overhead:
        session.vary_overhead(result.engine_cpu_s)
    figures, tables = outcome(result) | {"skipped_lines": session.skipped_lines}, tables_of(result)
    del result  # of a large trace it takes as much memory as writing does
    scratch = None
    if target is None:
        scratch = Path(tempfile.mkdtemp(prefix="osub-run-"))
        target = scratch / "run"
    run = Run(target, figures, scratch)
    session.write(tables, run.path, spec.label, began_wall, began_cpu)
    return run


_SIGNATURE = signature_of(SimulationSpec, positional=2)
simulate.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
simulate.__doc__ = (simulate.__doc__ or "").replace("    {parameters}", parameters_of(SimulationSpec))


def fit_of(spec: SimulationSpec, run: PathText | None) -> Fit | None:
    """Return what a RUN tells of the Slurm that scheduled it; None: no RUN is named.

    Raises
    ------
    UsageError
        The policy has no such options, or the run is of another system.
    InputError
        It is no RUN, or none that tells anything.
    """
    if run is None:
        return None
    from foundation.records import load_run
    from simulator.fit import fit_run
    from simulator.policies.slurm_family import FAMILY

    if spec.policy != FAMILY.name:
        raise UsageError.naming(
            f"{{fit}} goes with {{policy}} {FAMILY.name}, not with {{given}}", given=spec.policy
        )
    requests = 1 if spec.quantum_ms else spec.multiplicity
    return fit_run(load_run(as_path(run, "fit")), spec.system, requests)


def _with_fitted(spec: SimulationSpec, fit: Fit) -> SimulationSpec:
    """Return a specification with the options that are fitted, then those that are given, which win."""
    from simulator.policies.policy_family import split_settings
    from simulator.setting_choices import settings_of

    given = settings_of(spec)
    known = split_settings(given)
    fitted = (text for text in fit.settings if text.partition("=")[0] not in known)
    return msgspec.structs.replace(spec, settings=(*fitted, *given), malleable_share=None, preemption=None)


def _empty(target: Path) -> Path:
    """Return the folder if nothing is in it yet and a run can be written there; raises OutputError."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OutputError(f"{target} exists already: choose another folder for the run")
    refuse_unwritable(target)
    return target


def _refuse_a_rest(session: SimulationSession) -> None:
    """Refuse a run that lost most of its jobs because they do not fit: it would tell of another trace."""
    from simulator.simulation import SKIPPED

    kept, too_large = session.workload.count, session.workload.left_out.get(SKIPPED, 0)
    if too_large > kept:
        raise UsageError.naming(
            f"{counted_of(too_large, kept + too_large, 'job')} can never run on {session.setting.system} and "
            "would be left out: take a larger system, scale the trace (osub trace scale), or say what "
            "becomes of them, {oversize} clip or skip"
        )


def outcome(result: SimulationResult) -> dict[str, Any]:
    """Return the main figures of a simulation."""
    workload = result.workload
    waits_s = (result.start_us - result.submit_us) / 1e6
    turnaround_s = (result.end_us - result.submit_us) / 1e6
    run_s = workload.run_us / 1e6
    long_enough = run_s > 0
    slowdown = turnaround_s[long_enough] / run_s[long_enough]
    killed = result.out_of_memory
    return {
        **({} if killed is None else {"out_of_memory": int(killed.sum())}),
        "jobs": workload.count,
        "interactive_jobs": int(workload.interactive.sum()),
        "left_out": dict(workload.left_out),
        "timed_out": int(workload.timed_out.sum()),
        "wait_mean_s": float(waits_s.mean()),
        "wait_max_s": float(waits_s.max()),
        "waited_share": float((waits_s > 0).mean()),
        "slowdown_osub_mean": float(slowdown.mean()) if len(slowdown) else None,
        "slowdown_osub_max": float(slowdown.max()) if len(slowdown) else None,
        "makespan_s": float(result.end_us.max() / 1e6),
        "events": result.events,
        "engine_cpu_s": result.engine_cpu_s,
        "jobs_per_cpu_s": workload.count / result.engine_cpu_s if result.engine_cpu_s else None,
    }


def run_each(
    several: Sequence[int],
    out: Path,
    label: str | None,
    simulate: Callable[[int, Path, str | None], Run],
    step: Callable[[int, int], AbstractContextManager[object]] = lambda _, __: nullcontext(),
) -> list[Run]:
    """Simulate with each multiplicity into ``out/mM``.

    Parameters
    ----------
    several
        The multiplicities.
    out
        A folder that does not exist or is empty.
    label
        Of the runs, or None.
    simulate
        Simulates with a multiplicity into a folder, under a label.
    step
        Gives the context of each simulation: its multiplicity, and its place from 1 on.

    Raises
    ------
    OutputError
        There is something in ``out``, or it cannot be written.
    OsubError
        As a simulation raises; those before it are kept.
    """
    _empty(out)
    runs = []
    for at, number in enumerate(several, start=1):
        with step(number, at):
            name = None if label is None else f"{label} M={number}"
            runs.append(simulate(number, out / f"m{number}", name))
    return runs
