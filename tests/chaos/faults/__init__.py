"""The kinds of faults; ``ALL`` lists them."""

from tests.chaos.fault import Fault
from tests.chaos.faults.clocks import CLOCK_FAULTS
from tests.chaos.faults.hostile import HOSTILE_FAULTS
from tests.chaos.faults.jobs import JOB_FAULTS
from tests.chaos.faults.messages import MESSAGE_FAULTS
from tests.chaos.faults.network import NETWORK_FAULTS
from tests.chaos.faults.peers import PEER_FAULTS
from tests.chaos.faults.processes import PROCESS_FAULTS
from tests.chaos.faults.slurm import SLURM_FAULTS

GROUPS: dict[str, tuple[type[Fault], ...]] = {
    "processes": PROCESS_FAULTS, "slurm": SLURM_FAULTS, "jobs": JOB_FAULTS,
    "network": NETWORK_FAULTS, "clocks": CLOCK_FAULTS, "messages": MESSAGE_FAULTS,
    "peers": PEER_FAULTS, "hostile": HOSTILE_FAULTS,
}  # fmt: skip
ALL: tuple[type[Fault], ...] = tuple(kind for group in GROUPS.values() for kind in group)
