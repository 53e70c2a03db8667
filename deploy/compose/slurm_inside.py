"""A client of a cluster's Slurm whose commands run in the controller's container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deploy.compose.containers import Container, of_role
from deploy.compose.engine import Engine
from foundation.slurm import CommandSlurm
from foundation.slurm.calling.run_command import CommandOutput
from foundation.slurm.slurm_types import SlurmUnreachableError

_SLURM_NEEDS = ("LC_ALL", "TZ", "SLURM_TIME_FORMAT")
_WITHIN_S = 30.0
"""An engine of a slow host takes some seconds to begin a command, and Slurm's ends by itself after ten."""


def slurm_client(engine: Engine, containers: Sequence[Container]) -> CommandSlurm:
    """Return a client; raises SlurmUnreachableError where the controller's container does not run."""
    controllers = of_role(containers, "controller")
    if not controllers or controllers[0].state != "running":
        raise SlurmUnreachableError("the controller's container does not run")
    return CommandSlurm(tries=1, timeout_s=_WITHIN_S, runner=_Inside(engine, controllers[0].id).run)


class _Inside:
    """Runs Slurm's commands in a container."""

    def __init__(self, engine: Engine, container: str) -> None:
        self._engine = engine
        self._container = container

    def run(
        self, words: Sequence[str], stdin: str | None, environment: Mapping[str, str], timeout_s: float
    ) -> CommandOutput:
        """Run one; of the environment it gets what decides how an answer looks."""
        variables = [
            word for key in _SLURM_NEEDS if key in environment for word in ("-e", f"{key}={environment[key]}")
        ]
        options = ["-i", *variables] if stdin is not None else variables
        return self._engine.run("exec", *options, self._container, *words, within_s=timeout_s, stdin=stdin)
