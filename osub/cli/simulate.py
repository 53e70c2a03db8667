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
from typer import Option

from foundation.errors import UsageError
from osub.api.run import Run
from osub.api.simulation import run_each
from osub.cli.application import takes
from osub.cli.out_file import Force, clear_run
from osub.cli.terminal import Console, waiting
from predictor.chosen import other_cpu
from simulator.simulation_spec import SimulationSpec

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
        console.say(
            f"the configuration also says, and the policy has nothing of it: {', '.join(fit.ignored)}"
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


@takes(SimulationSpec)
def simulate(
    spec: SimulationSpec,
    multiplicity: Annotated[
        str,
        Option(
            help="M: most jobs a core, 1 to 8. Several (1,2,4): a RUN each in --out, and a comparison.",
            metavar="M[,M...]",
        ),
    ] = "1",
    policies: Annotated[  # noqa: ARG001 - its callback has read it
        bool,
        Option(
            "--policies", help="List the policies and their options.", is_eager=True, callback=_list_policies
        ),
    ] = False,
    force: Force = False,
    as_json: Annotated[bool, Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Simulate TRACE on SYSTEM and write the RUN, as a replay on a real cluster would.

    With the trace.swf.gz of a RUN, or the RUN itself, the same jobs are simulated as were replayed.
    """
    from osub.api.simulation import fit_of
    from osub.api.simulation import simulate as simulated

    several = multiplicities(multiplicity)
    assert spec.trace is not None
    assert spec.out is not None
    trace, out = Path(spec.trace), Path(spec.out)
    foreign = None if spec.pairs is None else other_cpu(Path(spec.pairs))
    if foreign is not None:
        typer.echo(f"osub: {foreign}", err=True)
    for folder in (out, *(out / f"m{number}" for number in several if len(several) > 1)):
        clear_run(folder, force)
    if spec.fit is not None and len(several) > 1:
        raise UsageError("--fit is of one multiplicity: give one")
    spec = msgspec.structs.replace(spec, multiplicity=several[0])
    fitted = fit_of(spec, spec.fit)

    def one(number: int, folder: Path, name: str | None) -> Run:
        return simulated(spec, multiplicity=number, out=folder, label=name, fit=fitted)

    if len(several) > 1:
        simulate_several(
            several, out, spec.label, one, f"simulating {trace.name} on {spec.system}", as_json=as_json
        )
        return
    with waiting(f"simulating {trace.name} on {spec.system}"):
        run = one(several[0], out, spec.label)
    figures = run.outcome
    if as_json:
        fit_json = {} if fitted is None else {"fit": msgspec.to_builtins(fitted)}
        typer.echo(json.dumps({"run": str(out), **figures, **fit_json}))
        return
    if fitted is not None:
        show_fit(fitted)
    _tell(figures, spec.system, out)


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
    if "out_of_memory" in figures:
        print(f"out of memory: {counted(figures['out_of_memory'], 'job')} killed")
    print(f"makespan: {duration(figures['makespan_s'])}")
    print(f"engine: {figures['engine_cpu_s']:.3f} s of CPU for {figures['events']} events")
    print(f"the run is in {out}; `{shlex.join(['osub', 'report', str(out)])} --html report.html` draws it")
