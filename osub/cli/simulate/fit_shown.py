"""``osub simulate --fit RUN``: what a real run tells of its Slurm, for ``--policy slurm``."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from foundation.errors import UsageError
from foundation.records import load_run
from osub.cli.terminal import Console
from simulator.fit import Fit, Parameter, fit_run
from simulator.policies.slurm.slurm_family import FAMILY


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
