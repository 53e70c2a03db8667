"""``python -m deploy.compose.inside ROLE``: what a container of a test cluster runs."""

from __future__ import annotations

import os
import sys

from deploy.compose.inside import accounting, cgroups, controller, keys, node
from deploy.compose.inside.settings import read_settings
from deploy.compose.inside.waiting import say
from foundation.errors import OsubError

_ROLES = {"controller": controller.run, "node": node.run, "accounting": accounting.run}


def main(words: list[str]) -> int:
    """Run one role to its end; returns the exit code."""
    os.umask(0o022)
    os.environ.pop("INVOCATION_ID", None)  # of a systemd that runs the engine: slurmd would look for its unit
    if words[:1] == ["clear"]:  # for nodes whose containers are gone: `up` asks a node that lives
        left = [folder for name in words[1:] for folder in cgroups.clear_left(name)]
        return 1 if left else 0
    if len(words) != 1 or words[0] not in (*_ROLES, "keys"):
        say(f"usage: deploy.compose.inside {'|'.join([*_ROLES, 'keys'])}")
        return 2
    try:
        settings = read_settings(os.environ)
        if words[0] == "keys":
            keys.make_all(settings.cluster, settings.shape.nodes)
            return 0
        return 0 if _ROLES[words[0]](settings) else 1
    except OsubError as error:
        say(str(error))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
