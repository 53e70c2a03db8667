"""The kinds of faults; ``ALL`` lists them."""

from tests.chaos.fault import Fault
from tests.chaos.faults.processes import PROCESS_FAULTS

ALL: tuple[type[Fault], ...] = (*PROCESS_FAULTS,)
