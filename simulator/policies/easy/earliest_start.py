"""The earliest start of the queue's head where cores are shared; see ``ahead`` for the rule."""

from __future__ import annotations

from simulator.engine.kernels.compilation import kernel
from simulator.engine.state.engine_state import FAR_US, State
from simulator.policies.easy.look_ahead import Ahead, end_first, give_room, show_cluster, speed_up
from simulator.policies.easy.row_mirror import Mirror, show_rows, take_head


@kernel
def find_start(state: State, ahead: Ahead, mirror: Mirror | None, head: int) -> None:
    """Project all running jobs up to the earliest start of ``head``, all ends at that instant included."""
    known, base, clock = ahead.head[0], ahead.base, ahead.base.clock[0]
    show_cluster(state, ahead, head)
    show_rows(state, mirror)
    known.known = 1
    while True:
        due = clock.agenda > 0 and base.runs[base.lists[0].agenda].next_us == clock.now_us
        has_room = not due and known.fitting >= state.jobs[head].nodes
        if has_room and take_head(state, ahead, mirror, ahead.ends, known.ends, head):
            known.start_us = clock.now_us
            return
        if clock.agenda == 0:  # nodes are down
            known.start_us = FAR_US
            return
        job = end_first(state, base)
        ahead.ends[known.ends].us = clock.now_us
        ahead.ends[known.ends].job = job
        known.ends += 1
        give_room(state, ahead, head, job)
        speed_up(state, base, ahead.base_stack)
