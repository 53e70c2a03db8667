"""The built-in placements behind one kernel."""

from __future__ import annotations

from simulator.engine.kernels.compilation import kernel
from simulator.engine.state.engine_state import State
from simulator.engine.state.sharing_state import Rows
from simulator.placement import slurm_placement as slurm
from simulator.placement import thesis_placement as thesis


@kernel
def _place(state: State, rows: Rows | None, job: int) -> bool:
    if rows is None:
        return thesis.place(state, job)
    return slurm.place(state, rows, job)


@kernel
def place(state: State, job: int) -> bool:
    """Name in the parts of ``job`` the cores that it gets now; return whether it fits.

    Where rows are kept they are Slurm's; with one slot a core both rules are the same.
    """
    return _place(state, state.rows, job)
