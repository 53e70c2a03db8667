"""A trace on a simulated cluster, once or with several multiplicities."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foundation.errors import OutputError, UsageError
from foundation.files import refuse_unwritable
from foundation.units import counted_of
from osub.api.run import Run
from osub.api.trace import Trace
from osub.api.words import PathText, as_path

if TYPE_CHECKING:
    from simulator.fit import Fit
    from simulator.simulation import SimulationResult
    from simulator.simulation_session import SimulationSession

Settings = Mapping[str, object] | Sequence[str]


def simulate(
    trace: Trace | Run | PathText,
    system: str,
    *,
    out: PathText | None = None,
    policy: str = "easy",
    settings: Settings = (),
    malleable_share: float | str | None = None,
    preemption: str | None = None,
    multiplicity: int = 1,
    queues: str = "sq",
    interactive_share: str | None = None,
    interactive_nodes: int | None = None,
    multiplicity_interactive: int = 4,
    interactive_queue: int = 0,
    overhead: float | str = 1.2,
    sharing: str | None = None,
    pairs: PathText | None = None,
    apps: str | None = None,
    node_noise: float = 0.0,
    quantum_ms: float | None = None,
    hold: str = "yield",
    memory_gib: float | None = None,
    placement: str = "lln",
    pairing_threshold: float | None = None,
    speedup: float = 1.0,
    oversize: str | None = None,
    zero_length: str = "skip",
    limits: str = "raise",
    dependencies: bool | None = None,
    instants: str = "one-by-one",
    latency: PathText | None = None,
    fit: Fit | None = None,
    order_of: Run | PathText | None = None,
    failures: PathText | None = None,
    mtbf: float | None = None,
    repair: float = 6.0,
    failure_shape: float = 1.0,
    after_failure: str = "checkpoint",
    checkpoint_interval: float | None = None,
    checkpoint_cost: float = 0.0,
    seed: int = 1,
    label: str | None = None,
    lenient: bool = False,
    check: bool = False,
    vary_overhead: bool = True,
) -> Run:
    """Simulate a trace on a system.

    Parameters
    ----------
    trace
        A trace, an SWF file, or a run, whose jobs are then simulated as they were replayed.
    system
        Nodes and cores a node, such as ``N150C12``.
    out
        RUN folder to write. None: a temporary one, which is kept as long as the returned ``Run`` object;
        ``Run.save`` keeps it.
    policy, settings
        A built-in policy (``osub simulate --policies`` lists them) or your own, ``FILE.py:NAME``; its
        options, as a mapping or as ``NAME=VALUE``.
    malleable_share, preemption
        Options of malleable and of hybrid policies.
    multiplicity
        M: most jobs a core, 1 to 8.
    queues, interactive_share, interactive_nodes, multiplicity_interactive, interactive_queue
        ``sq``, one queue, or ``mq``: some nodes (a share such as ``5%``, or a number) are kept for the jobs
        of the SWF queue ``interactive_queue`` (-1: there are none).
    overhead
        C_o: the speed on a core that m jobs share is 1/(m x C_o). A real RUN without gang scheduling: as
        there, for jobs of one core and of several apart. With ``quantum_ms`` a real RUN under gangd: its
        slices cost as much as there.
    sharing, node_noise
        Your own sharing model, ``FILE.py:NAME``, or ``pairwise``; standard deviation of the nodes' speeds.
    pairs, apps
        What applications lose to each other (a folder of measured pairs, a model or a CSV), and which each
        job runs: a CSV with columns job and application, or names of which one is drawn for each user and
        executable.
    quantum_ms, hold
        Exact time slices by the gang scheduler's own core, in milliseconds; what held jobs do, ``freeze`` or
        ``yield``.
    memory_gib
        Memory of a node; None: it does not matter.
    placement
        ``lln`` (Slurm's), ``thesis``, ``lln-paired`` (harmless co-located jobs first), ``lln-apart`` (harmful
        ones never), or ``FILE.py:NAME``.
    pairing_threshold
        ``lln-apart``: jobs of which one loses more than this do not share; None: 1 - 1/M + 0.05.
    speedup
        Divides every time of the trace.
    oversize
        Jobs that can never run: ``fail``, ``skip`` or ``clip``. Without it they are skipped, and where they
        are most of the trace the run is refused.
    zero_length
        Jobs without a run time: ``fail``, ``skip`` or ``keep``.
    limits
        Run times beyond the request: ``raise`` the request, or ``enforce`` it.
    dependencies
        Whether a job that names a preceding one (SWF field 17) is submitted after its end; None: where the
        policy can.
    instants
        Events at one instant: ``one-by-one``, a scheduling pass after each, or ``together``, one pass after
        all.
    latency, fit
        Latencies of a real cluster, a JSON file or a real RUN with M=1; what ``simulator.fit`` found.
    order_of
        A real run, whose order of starts and ends the jobs have; the policy decides nothing then.
    failures, mtbf, repair, failure_shape, after_failure
        When nodes fail: a CSV file, or at random with mean hours between failures and of a repair; what
        becomes of their jobs (``checkpoint``, ``scratch``, ``give-up``).
    checkpoint_interval, checkpoint_cost
        Seconds of work between checkpoints of every job, and what one takes.
    seed
        For whatever is drawn at random.
    label
        Name of the run in tables.
    lenient
        Pass over lines of the trace that break a rule of the format, instead of refusing it.
    check
        Check the engine's invariants after every event: slow.
    vary_overhead
        Where cores are shared, simulate again at C_o 1.0 and 1.4 if that takes no more than seconds, so that
        a verdict says what would change.

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
    target = None if out is None else _empty(as_path(out, "out"))
    from foundation.records import load_run
    from simulator.fit import latencies_of, overheads_of
    from simulator.recording import tables_of
    from simulator.setting_choices import SimulationWords
    from simulator.simulation import cleaning_of
    from simulator.simulation_session import SimulationSession

    latencies = None if latency is None else latencies_of(as_path(latency, "latency"))
    if fit is not None:
        latencies = fit.times(latencies)
    costs = overheads_of(str(overhead), latencies, in_slices=quantum_ms is not None)
    words = SimulationWords(
        system=system,
        policy=policy,
        multiplicity=multiplicity,
        queues=queues,
        interactive_share=interactive_share,
        interactive_nodes=interactive_nodes,
        multiplicity_interactive=multiplicity_interactive,
        overhead=costs.overhead,
        slowdowns=costs.by_kind,
        slice_cost=costs.slice_cost,
        sharing=sharing,
        pairs=None if pairs is None else as_path(pairs, "pairs"),
        apps=apps,
        node_noise=node_noise,
        quantum_ms=quantum_ms,
        hold=hold,
        placement=placement,
        pairing_threshold=pairing_threshold,
        memory_gib=memory_gib,
        seed=seed,
        settings=_all_settings(settings, fit, malleable_share=malleable_share, preemption=preemption),
        failures=None if failures is None else as_path(failures, "failures"),
        mtbf_h=mtbf,
        repair_h=repair,
        failure_shape=failure_shape,
        after_failure=after_failure,
        checkpoint_interval_s=checkpoint_interval,
        checkpoint_cost_s=checkpoint_cost,
        instants=instants,
    )
    cleaning = cleaning_of(interactive_queue, speedup, oversize or "skip", zero_length, limits, dependencies)
    session = SimulationSession(
        _trace_path(trace),
        words,
        cleaning,
        latencies,
        None if fit is None else fit.run,
        order_of=None if order_of is None else load_run(_run_path(order_of)),
        lenient=lenient,
    )
    if oversize is None:
        _refuse_a_rest(session)
    result = session.run(check=check)
    if vary_overhead:
        session.vary_overhead(result.engine_cpu_s)
    figures, tables = outcome(result) | {"skipped_lines": session.skipped_lines}, tables_of(result)
    del result  # of a large trace it takes as much memory as writing does
    scratch = None
    if target is None:
        scratch = Path(tempfile.mkdtemp(prefix="osub-run-"))
        target = scratch / "run"
    run = Run(target, figures, scratch)
    session.write(tables, run.path, label, began_wall, began_cpu)
    return run


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
        raise UsageError(
            f"{counted_of(too_large, kept + too_large, 'job')} can never run on {session.setting.system} and "
            "would be left out: take a larger system, scale the trace (osub trace scale), or say what "
            "becomes of them, --oversize clip or skip"
        )


def _trace_path(trace: Trace | Run | PathText) -> Path:
    if isinstance(trace, Trace | Run):
        return trace.path
    return as_path(trace, "trace")


def _run_path(run: Run | PathText) -> Path:
    return run.path if isinstance(run, Run) else as_path(run, "order_of")


def _all_settings(settings: Settings, fit: Fit | None, **named: object) -> tuple[str, ...]:
    """Return the policy's options: those that are fitted, then those that are given, which win."""
    if isinstance(settings, str):
        raise UsageError("--set takes a mapping or a list of NAME=VALUE, not a single text")
    pairs = settings.items() if isinstance(settings, Mapping) else ()
    texts = () if isinstance(settings, Mapping) else map(str, settings)
    named_pairs = ((name, value) for name, value in named.items() if value is not None)
    several = (*texts, *(f"{name}={value}" for name, value in (*pairs, *named_pairs)))
    if fit is None:
        return several
    from simulator.policies.policy_family import split_settings

    known = split_settings(several)
    return (*(text for text in fit.settings if text.partition("=")[0] not in known), *several)


def outcome(result: SimulationResult) -> dict[str, Any]:
    """Return the main figures of a simulation."""
    workload = result.workload
    waits_s = (result.start_us - result.submit_us) / 1e6
    turnaround_s = (result.end_us - result.submit_us) / 1e6
    run_s = workload.run_us / 1e6
    long_enough = run_s > 0
    slowdown = turnaround_s[long_enough] / run_s[long_enough]
    return {
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
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out} exists already: choose another folder for the runs")
    refuse_unwritable(out)
    runs = []
    for at, number in enumerate(several, start=1):
        with step(number, at):
            name = None if label is None else f"{label} M={number}"
            runs.append(simulate(number, out / f"m{number}", name))
    return runs
