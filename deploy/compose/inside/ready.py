"""``ready NODES WITHIN_S``: looks in the controller's container until so many nodes are idle with an agent.

One command of the engine takes longer than ten looks in here. Prints how many nodes are idle, how many Slurm
knows, and how many agents have joined (null without gangd), as JSON.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.compose.inside.slurm_says import node_states

STATUS = Path("/var/lib/gangd/state/status.json")
_GANGD = Path("/etc/gangd/gangd.toml")
_POLL_S = 0.2
_MOST_S = 60.0
_CAN_TAKE_JOBS = frozenset({"idle", "mixed", "allocated", "completing"})


@dataclass(frozen=True, slots=True)
class Ready:
    """How far a cluster has come up; ``joined`` is None where no gangd runs."""

    idle: int
    known: int
    joined: int | None

    def is_whole(self, nodes: int) -> bool:
        """Whether all nodes, and no others, can take jobs."""
        return self.idle == self.known == nodes and (self.joined is None or self.joined >= nodes)

    def in_words(self, nodes: int) -> str:
        """Say how far it is."""
        if self.idle < nodes or self.known != nodes or self.joined is None:
            return f"{self.idle} of {nodes} nodes are idle"
        return f"{self.joined} of {nodes} agents have joined"


def read_ready(text: str) -> Ready | None:
    """Return what ``ready`` printed; None where it is something else."""
    try:
        told = json.loads(text)
        joined = told["joined"]
        return Ready(int(told["idle"]), int(told["known"]), None if joined is None else int(joined))
    except (ValueError, KeyError, TypeError):
        return None


def count_joined(status: str) -> int:
    """Return how many agents have joined, from gangd's status; 0 where it cannot be read."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        return [str(node["agent"]).lower() for node in json.loads(status)["nodes"]].count("joined")
    return 0


def tell(words: list[str]) -> int:
    """Look until the cluster is whole or the time is over, and print what was seen last."""
    nodes, within_s = int(words[0]), min(float(words[1]), _MOST_S)
    deadline_s = time.monotonic() + within_s
    while True:
        found = _look()
        if found.is_whole(nodes) or time.monotonic() > deadline_s:
            print(json.dumps(asdict(found)))
            return 0
        time.sleep(_POLL_S)


def _look() -> Ready:
    states = node_states()
    idle = sum(state.rstrip("*~#!%$@^-+") in _CAN_TAKE_JOBS for state in states.values())
    joined = None
    if _GANGD.exists():
        joined = 0
        with suppress(OSError):
            joined = count_joined(STATUS.read_text())
    return Ready(idle, len(states), joined)
