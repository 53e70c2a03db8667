"""``ready NODES WITHIN_S``: looks in the controller's container until so many nodes are idle with an agent.

One command of the engine takes longer than ten looks in here. Prints how many nodes are idle, how many Slurm
knows, how many agents have joined (null without gangd), and which nodes are done, as JSON.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.compose.inside.slurm_says import PATIENT_S, node_states
from foundation.units import counted_of, verb

STATUS = Path("/var/lib/gangd/state/status.json")
_GANGD = Path("/etc/gangd/gangd.toml")
_POLL_S = 0.2
_MOST_S = 60.0
_CAN_TAKE_JOBS = frozenset({"idle", "mixed", "allocated", "completing"})


@dataclass(frozen=True, slots=True)
class Ready:
    """How far a cluster has come up.

    Attributes
    ----------
    idle
        How many nodes can take jobs.
    known
        How many Slurm knows.
    joined
        How many agents have joined; None where no gangd runs.
    ready
        The nodes that can take jobs and whose agent has joined.
    """

    idle: int
    known: int
    joined: int | None
    ready: tuple[str, ...] = ()

    @property
    def progress(self) -> int:
        """A number that grows while the cluster comes up."""
        return self.known + self.idle + (self.joined or 0)

    def is_whole(self, nodes: int) -> bool:
        """Whether all nodes, and no others, can take jobs."""
        return self.idle == self.known == nodes and (self.joined is None or self.joined >= nodes)

    def in_words(self, nodes: int) -> str:
        """Say how far it is."""
        if self.idle < nodes or self.known != nodes or self.joined is None:
            return f"{counted_of(self.idle, nodes, 'node')} {verb(self.idle)} idle"
        return f"{counted_of(self.joined, nodes, 'agent')} {verb(self.joined, 'has', 'have')} joined"


def read_ready(text: str) -> Ready | None:
    """Return what ``ready`` printed; None where it is something else."""
    try:
        answer = json.loads(text)
        joined = answer["joined"]
        return Ready(
            idle=int(answer["idle"]),
            known=int(answer["known"]),
            joined=None if joined is None else int(joined),
            ready=tuple(map(str, answer["ready"])),
        )
    except (ValueError, KeyError, TypeError):
        return None


def joined_nodes(status: str) -> set[str]:
    """Return the nodes whose agents have joined, from gangd's status; none where it cannot be read."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        nodes = json.loads(status)["nodes"]
        return {str(node["node"]) for node in nodes if str(node["agent"]).lower() == "joined"}
    return set()


def tell(words: list[str]) -> int:
    """Look until the cluster is whole or the time is over, and print what was seen last."""
    nodes, within_s = int(words[0]), min(float(words[1]), _MOST_S)
    deadline_s = time.monotonic() + within_s
    while True:
        begun_s = time.monotonic()
        found = _look()
        if found.is_whole(nodes) or time.monotonic() > deadline_s:
            print(json.dumps(asdict(found)))
            return 0
        time.sleep(max(_POLL_S, time.monotonic() - begun_s))


def _look() -> Ready:
    states = node_states(PATIENT_S)
    idle = {name for name, state in states.items() if state.rstrip("*~#!%$@^-+") in _CAN_TAKE_JOBS}
    if not _GANGD.exists():
        return Ready(len(idle), len(states), None, tuple(sorted(idle)))
    joined: set[str] = set()
    with suppress(OSError):
        joined = joined_nodes(STATUS.read_text())
    return Ready(len(idle), len(states), len(joined), tuple(sorted(idle & joined)))
