"""What a container asks of Slurm, and whether the cluster is ready.

What a container asks of Slurm, and tells it, by its commands: short, and never for long.

``ready NODES WITHIN_S``: looks in the controller's container until so many nodes are idle with an agent.

One command of the engine takes longer than ten looks in here. Prints how many nodes are idle, how many Slurm
knows, how many agents have joined (null without gangd), and which nodes are done, as JSON.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from foundation.units import counted_of, verb

PATIENT_S = 60.0
"""For a caller that only waits: on a slow host where all daemons start at once, an answer takes seconds."""
_TIMEOUT_S = 5.0
"""For a caller that also does other work."""
_FORGET_TRIES = 5


def scontrol(*words: str) -> bool:
    """Tell Slurm something; False where it refuses or does not answer in time."""
    return _run("scontrol", *words) is not None


def make_operator(user: str) -> bool:
    """Make a user an operator, with an account of the same name; False where slurmdbd does not have him."""
    for words in (("account", user), ("user", user, f"account={user}", "adminlevel=operator")):
        _run("sacctmgr", "-i", "add", *words)  # fails where there is one
    return "Operator" in (_run("sacctmgr", "-n", "show", "user", user) or "")


def addresses(within_s: float = _TIMEOUT_S) -> dict[str, str] | None:
    """Return where slurmctld looks for each node; None where it does not say in time."""
    printed = _run("scontrol", "show", "-o", "node", within_s=within_s)
    return None if printed is None else read_addresses(printed)


def node_states(within_s: float = _TIMEOUT_S) -> dict[str, str]:
    """Return what slurmctld calls each node; empty where it is away."""
    printed = _run("sinfo", "-h", "-N", "-o", "%N %T", within_s=within_s) or ""
    lines = (line.split() for line in printed.splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2}


def read_addresses(text: str) -> dict[str, str]:
    """Return the address of each node that ``scontrol show -o node`` tells of."""
    found = (re.match(r"NodeName=(\S+) .*? NodeAddr=(\S+) ", line) for line in text.splitlines())
    return {match[1]: match[2] for match in found if match}


def is_drained_for(name: str, reason: str) -> bool:
    """Whether a node is drained for just that reason; False also where Slurm does not say."""
    return drained_for(_run("scontrol", "show", "-o", "node", name) or "", reason)


def drained_for(text: str, reason: str) -> bool:
    """Whether what ``scontrol show -o node`` tells of a node has it drained for just that reason."""
    match = re.search(r" State=(\S+).* Reason=(.*?)(?: \[|$)", text.strip())
    return match is not None and "DRAIN" in match[1] and match[2] == reason


def forget(node: str, address: str | None = None) -> bool:
    """Let Slurm end what it thinks runs on a node, and forget the node; returns whether it did.

    With an address, a node that has another one by now stays: its container has come back meanwhile.
    """
    for tried in range(_FORGET_TRIES):
        known = addresses() if address is not None else None
        if known is not None and known.get(node) != address:
            return True
        if not tried:
            scontrol("update", f"nodename={node}", "state=down", "reason=its container is gone")
        if scontrol("delete", f"nodename={node}"):
            return True
        time.sleep(1.0)  # its jobs are completing
    return False


def has_jobs(name: str) -> bool:
    """Whether jobs are on a node; False also where Slurm does not say."""
    return bool((_run("squeue", "-h", "-w", name, "-t", "R,CG,S,CF", "-o", "%i") or "").strip())


def release() -> tuple[int, int]:
    """Return Slurm's release, such as (24, 11); (0, 0) where it does not say."""
    printed = _run("slurmd", "-V", within_s=PATIENT_S) or _run("slurmctld", "-V", within_s=PATIENT_S)
    match = re.search(r"(\d+)\.(\d+)", printed or "")
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _run(*words: str, within_s: float = _TIMEOUT_S) -> str | None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=within_s, check=False)
    except (subprocess.TimeoutExpired, OSError):
        return None
    return done.stdout if done.returncode == 0 else None


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
