"""``python -m deploy.compose.inside ROLE``: what a container of a test cluster runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module

from deploy.compose.inside import cgroups
from deploy.compose.inside.settings import ContainerSettings, read_settings, wait_less_for_names
from deploy.compose.inside.supervise import say
from foundation.errors import OsubError

ROLES = ("controller", "node", "accounting", "keys", "monitoring")
"""Each is a module here of that name: a container imports what it runs, and no other."""


def main(words: list[str]) -> int:
    """Run one role to its end; returns the exit code."""
    os.umask(0o022)
    os.environ.pop("INVOCATION_ID", None)  # of a systemd that runs the engine: slurmd would look for its unit
    if words[:1] == ["clear"]:  # for nodes whose containers are gone: `up` asks a live node
        left = [folder for name in words[1:] for folder in cgroups.clear_left(name)]
        return 1 if left else 0
    if words[:1] == ["ready"]:  # `up` asks the controller
        tell: Callable[[list[str]], int] = import_module("deploy.compose.inside.slurm_says").tell
        return tell(words[1:])
    if len(words) != 1 or words[0] not in ROLES:
        say(f"usage: deploy.compose.inside {'|'.join(ROLES)}")
        return 2
    try:
        wait_less_for_names()
        settings = read_settings(os.environ)
        run: Callable[[ContainerSettings], bool] = import_module(f"deploy.compose.inside.{words[0]}").run
        return 0 if run(settings) else 1
    except OsubError as error:
        say(str(error))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
