"""The built-in placements behind one kernel."""

from __future__ import annotations

from simulator.engine.compile import kernel
from simulator.engine.state import LLN, PLACEMENT, State
from simulator.placement import slurm, thesis


@kernel
def place(state: State, job: int) -> bool:
    """Name in the parts of ``job`` the cores that it gets now; return whether it fits."""
    if state.rules[PLACEMENT] == LLN:
        return slurm.place(state, job)
    return thesis.place(state, job)
