"""``osub simulate``: a trace on a simulated cluster, as fast as possible.

The simulator is imported when the command runs: the compiler behind it takes a third of a second.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from foundation.errors import UsageError
from foundation.records import load_run
from osub.api.run import Run
from osub.api.simulation import run_each
from osub.cli.out_file import Force, clear_run
from osub.cli.terminal import Console, waiting
from predictor.chosen import other_cpu

if TYPE_CHECKING:
    from simulator.fit import Fit, Parameter


def multiplicities(word: str) -> list[int]:
    """Return the numbers in ``1,2,4``, each once, in their order.

    Raises
    ------
    UsageError
        They are no whole numbers.
    """
    found = []
    for part in word.split(","):
        if not (part.strip().isascii() and part.strip().isdecimal() and len(part) < 12):
            raise UsageError(f"--multiplicity takes a whole number, or several as 1,2,4, not {word[:80]!r}")
        found.append(int(part))
    return list(dict.fromkeys(found))


def simulate_several(
    several: Sequence[int],
    out: Path,
    label: str | None,
    simulate: Callable[[int, Path, str | None], Run],
    what: str,
    *,
    as_json: bool,
) -> None:
    """Simulate with each multiplicity into ``out/mM``, and print verdict and metrics side by side.

    Parameters
    ----------
    several, out, label, simulate
        As ``run_each`` takes them; the first multiplicity is the reference.
    what
        Progress, for the user.
    as_json
        Whether to print JSON.

    Raises
    ------
    OsubError
        As ``run_each`` raises.
    """
    from analysis.comparison import compared

    def step(number: int, at: int) -> AbstractContextManager[None]:
        return waiting(f"{what}, M={number} ({at} of {len(several)})")

    runs = run_each(several, out, label, simulate, step)
    found = compared([run.record for run in runs])
    metrics = found.metrics()
    if as_json:
        answer = {"verdict": msgspec.to_builtins(found.verdict), "metrics": msgspec.to_builtins(metrics)}
        typer.echo(json.dumps({"runs": [str(run.path) for run in runs], **answer}))
        return
    from analysis.tables import metrics_tables
    from analysis.verdict.verdict_in_terminal import verdict_lines

    console = Console()
    for line in verdict_lines(found.verdict):
        console.print(line)
    for table in metrics_tables(metrics, console.width, short=True):
        console.print(table)
    folders = shlex.join(str(run.path) for run in runs)
    typer.echo(f"the runs are in {out}; `osub compare {folders} --html compare.html` draws them")


def read_fit(path: Path, policy: str, system: str, requests: int) -> Fit:
    """Return what the RUN in ``path`` tells.

    Parameters
    ----------
    path
        The RUN.
    policy, system
        What is to be simulated.
    requests
        See ``fit_run``.

    Raises
    ------
    UsageError
        The policy has no such options, or the run is of another system.
    InputError
        It is no RUN, or none that tells anything.
    """
    from simulator.fit import fit_run
    from simulator.policies.slurm_family import FAMILY

    if policy != FAMILY.name:
        raise UsageError(f"--fit goes with --policy {FAMILY.name}, not with {policy}")
    return fit_run(load_run(path), system, requests)


def show_fit(fit: Fit) -> None:
    """Print each parameter, its value, and where that is from."""
    title = Text(f"Slurm as in {fit.run}, by {fit.starts} starts", style="bold")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("parameter", "value", "from"):
        table.add_column(Text(heading), overflow="fold")
    for parameter in (*fit.policy, *fit.latencies):
        value = parameter.value if isinstance(parameter.value, str) else f"{parameter.value:g}"
        table.add_row(Text(parameter.name), Text(value), Text(_source(parameter)))
    console = Console()
    console.print(table)
    if fit.ignored:
        console.print(
            f"the configuration also says, and the policy has nothing of it: {', '.join(fit.ignored)}",
            markup=False,
            highlight=False,
        )


def _source(parameter: Parameter) -> str:
    if parameter.source == "fitted":
        return f"fitted: {parameter.low:g} to {parameter.high:g}, {parameter.observations} observations"
    return parameter.source + (f": {parameter.note}" if parameter.note else "")


def _list_policies(wanted: bool) -> None:
    if wanted:
        from simulator.policy_registry import listing

        typer.echo(listing())
        raise typer.Exit


def simulate(
    trace: Annotated[Path, typer.Argument(help="Trace in (extended) SWF, plain or gzip.")],
    system: Annotated[str, typer.Option(help="Nodes and cores a node, such as N150C12.")],
    out: Annotated[Path, typer.Option("--out", help="RUN folder to write.")],
    policy: Annotated[
        str, typer.Option(help="A built-in policy (see --policies), or your own: FILE.py:NAME.")
    ] = "easy",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the policy, as often as needed.", metavar="NAME=VALUE"),
    ] = None,
    malleable_share: Annotated[
        str | None,
        typer.Option(help="Malleable policies: share of the batch jobs that are malleable, 0 to 1."),
    ] = None,
    preemption: Annotated[
        str | None,
        typer.Option(help="Hybrid policies: victims one by one (ascending), or the cheapest (optimal)."),
    ] = None,
    multiplicity: Annotated[
        str,
        typer.Option(
            help="M: most jobs a core, 1 to 8. Several (1,2,4): a RUN each in --out, and a comparison.",
            metavar="M[,M...]",
        ),
    ] = "1",
    queues: Annotated[str, typer.Option(help="sq: one queue; mq: interactive nodes apart.")] = "sq",
    interactive_share: Annotated[
        str | None, typer.Option(help="mq: share of the nodes for interactive jobs, such as 5%.")
    ] = None,
    interactive_nodes: Annotated[
        int | None, typer.Option(help="mq: number of nodes for interactive jobs.")
    ] = None,
    multiplicity_interactive: Annotated[int, typer.Option(help="mq: M on these nodes.")] = 4,
    interactive_queue: Annotated[
        int, typer.Option(help="SWF queue of interactive jobs; -1: there are none.")
    ] = 0,
    overhead: Annotated[
        str,
        typer.Option(
            help="C_o: speed on a shared core is 1/(m x C_o); a real RUN without gang scheduling (with "
            "--slices: under gangd): as there.",
            metavar="NUMBER|RUN",
        ),
    ] = "1.2",
    sharing: Annotated[
        str | None, typer.Option(help="pairwise (with --pairs), or your own sharing model: FILE.py:NAME.")
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="What applications lose to each other: measured PAIRS, a model or a CSV."),
    ] = None,
    apps: Annotated[
        str | None,
        typer.Option(help="Which a job runs: a CSV (job,application), or names to draw from (default: all)."),
    ] = None,
    node_noise: Annotated[
        float, typer.Option(help="Standard deviation of the nodes' speeds, such as 0.02.")
    ] = 0.0,
    slices: Annotated[
        float | None,
        typer.Option(
            help="Exact time slices of so many ms, by the gang scheduler's own core: slow.", metavar="MS"
        ),
    ] = None,
    hold: Annotated[
        str, typer.Option(help="With --slices: what held jobs do: freeze (nothing) or yield (what is left).")
    ] = "yield",
    memory_gib: Annotated[
        float | None, typer.Option(help="Memory of a node; without it memory does not matter.")
    ] = None,
    placement: Annotated[
        str, typer.Option(help="lln (Slurm's), thesis, lln-paired or lln-apart (with --pairs), FILE.py:NAME.")
    ] = "lln",
    pairing_threshold: Annotated[
        float | None,
        typer.Option(
            help="lln-apart: jobs of which one loses more than this do not share (default: 1 - 1/M + 0.05)."
        ),
    ] = None,
    speedup: Annotated[float, typer.Option(help="Divide every time of the trace by this.")] = 1.0,
    oversize: Annotated[
        str | None,
        typer.Option(
            help="Jobs that can never run: fail, skip or clip. Not said: skip, unless most never can."
        ),
    ] = None,
    zero_length: Annotated[str, typer.Option(help="Jobs without a run time: fail, skip or keep.")] = "skip",
    limits: Annotated[
        str,
        typer.Option(help="Run times beyond the request: raise (the request) or enforce (stop the job)."),
    ] = "raise",
    dependencies: Annotated[
        bool | None,
        typer.Option(
            "--dependencies/--no-dependencies",
            help="Submit a job that names a preceding job (SWF field 17) after that one's end. Not said: "
            "where the trace has such jobs.",
        ),
    ] = None,
    instants: Annotated[
        str,
        typer.Option(
            help="Events at one instant: one-by-one (a scheduling pass after each) or together (one after "
            "all)."
        ),
    ] = "one-by-one",
    latency: Annotated[
        Path | None,
        typer.Option(
            help="Latencies of a real cluster: a JSON file, or a real RUN with M=1 to measure them on.",
            metavar="FILE|RUN",
        ),
    ] = None,
    fit: Annotated[
        Path | None,
        typer.Option(
            help="With --policy slurm: options and latencies as in a real RUN of this system; --set wins.",
            metavar="RUN",
        ),
    ] = None,
    order_of: Annotated[
        Path | None,
        typer.Option(
            help="Start and end jobs in the order in which a real RUN did: no policy decides.", metavar="RUN"
        ),
    ] = None,
    failures: Annotated[
        Path | None,
        typer.Option(help="When nodes fail: a CSV file node,down_s,up_s.", metavar="FILE"),
    ] = None,
    mtbf: Annotated[
        float | None,
        typer.Option(help="Or at random: mean hours between failures of a node.", metavar="HOURS"),
    ] = None,
    repair: Annotated[float, typer.Option(help="With --mtbf: mean hours of a repair.")] = 6.0,
    failure_shape: Annotated[
        float, typer.Option(help="With --mtbf: shape of the Weibull distribution; 1 is the exponential.")
    ] = 1.0,
    after_failure: Annotated[
        str,
        typer.Option(
            help="Jobs whose node failed: start again from their checkpoint, from scratch, or give-up."
        ),
    ] = "checkpoint",
    checkpoint_interval: Annotated[
        float | None,
        typer.Option(help="Seconds of work between checkpoints of every job.", metavar="SECONDS"),
    ] = None,
    checkpoint_cost: Annotated[
        float, typer.Option(help="Seconds that writing a checkpoint takes.", metavar="SECONDS")
    ] = 0.0,
    policies: Annotated[  # noqa: ARG001 - its callback has read it
        bool,
        typer.Option(
            "--policies", help="List the policies and their options.", is_eager=True, callback=_list_policies
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="For whatever is drawn at random.")] = 1,
    label: Annotated[str | None, typer.Option(help="Name of the run in tables.")] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Pass over malformed lines of the trace instead of refusing it.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check the engine's invariants after every event: slow.")
    ] = False,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Simulate TRACE on SYSTEM and write the RUN, as a replay on a real cluster would.

    With the trace.swf.gz of a RUN, or the RUN itself, the same jobs are simulated as were replayed.
    """
    from osub.api.simulation import simulate as simulated

    several = multiplicities(multiplicity)
    foreign = None if pairs is None else other_cpu(pairs)
    if foreign is not None:
        typer.echo(f"osub: {foreign}", err=True)
    for folder in (out, *(out / f"m{number}" for number in several if len(several) > 1)):
        clear_run(folder, force)
    fitted = None
    if fit is not None:
        if len(several) > 1:
            raise UsageError("--fit is of one multiplicity: give one")
        fitted = read_fit(fit, policy, system, 1 if slices else several[0])

    def one(number: int, folder: Path, name: str | None) -> Run:
        return simulated(
            trace,
            system,
            out=folder,
            policy=policy,
            settings=settings or (),
            malleable_share=malleable_share,
            preemption=preemption,
            multiplicity=number,
            queues=queues,
            interactive_share=interactive_share,
            interactive_nodes=interactive_nodes,
            multiplicity_interactive=multiplicity_interactive,
            interactive_queue=interactive_queue,
            overhead=overhead,
            sharing=sharing,
            pairs=pairs,
            apps=apps,
            node_noise=node_noise,
            quantum_ms=slices,
            hold=hold,
            memory_gib=memory_gib,
            placement=placement,
            pairing_threshold=pairing_threshold,
            speedup=speedup,
            oversize=oversize,
            zero_length=zero_length,
            limits=limits,
            dependencies=dependencies,
            instants=instants,
            latency=latency,
            fit=fitted,
            order_of=order_of,
            failures=failures,
            mtbf=mtbf,
            repair=repair,
            failure_shape=failure_shape,
            after_failure=after_failure,
            checkpoint_interval=checkpoint_interval,
            checkpoint_cost=checkpoint_cost,
            seed=seed,
            label=name,
            lenient=lenient,
            check=check,
        )

    if len(several) > 1:
        simulate_several(several, out, label, one, f"simulating {trace.name} on {system}", as_json=as_json)
        return
    with waiting(f"simulating {trace.name} on {system}"):
        run = one(several[0], out, label)
    figures = run.outcome
    if as_json:
        fit_json = {} if fitted is None else {"fit": msgspec.to_builtins(fitted)}
        typer.echo(json.dumps({"run": str(out), **figures, **fit_json}))
        return
    if fitted is not None:
        show_fit(fitted)
    _tell(figures, system, out)


def _tell(figures: dict[str, Any], system: str, out: Path) -> None:
    from foundation.units import counted, duration, durations

    skipped = {f"malformed lines ({reason})": count for reason, count in figures["skipped_lines"].items()}
    left_out = ", ".join(f"{count} {reason}" for reason, count in (figures["left_out"] | skipped).items())
    print(
        f"{counted(figures['jobs'], 'job')} on {system}"
        + (f" (not as in the trace: {left_out})" if left_out else "")
    )
    mean, longest = durations(figures["wait_mean_s"], figures["wait_max_s"])
    print(f"wait: mean {mean}, longest {longest}, {figures['waited_share']:.2%} of the jobs waited")
    if figures["slowdown_osub_mean"] is not None:
        print(f"S_OSub: mean {figures['slowdown_osub_mean']:.2f}, largest {figures['slowdown_osub_max']:.2f}")
    print(f"makespan: {duration(figures['makespan_s'])}")
    print(f"engine: {figures['engine_cpu_s']:.3f} s of CPU for {figures['events']} events")
    print(f"the run is in {out}; `{shlex.join(['osub', 'report', str(out)])} --html report.html` draws it")
