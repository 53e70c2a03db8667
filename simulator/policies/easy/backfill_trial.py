"""Trying a candidate for backfilling on shared cores: the projection of its group, against the base.

See ``ahead`` for the rule and for why the group is enough.
"""

from __future__ import annotations

from simulator.cores.core_slots import add_to_stack, remove_from_stack
from simulator.cores.slurm_rows import enter_row
from simulator.jit.compilation import kernel
from simulator.jit.field_records import RecordTable
from simulator.lifecycle.job_progress import needs_stack
from simulator.policies.easy.reservation_projection import (
    ReservationProjection,
    copy_node,
    end_first,
    launch,
    load,
    load_waiting,
    occupy_cores,
    release_cores,
    speed_up,
)
from simulator.policies.easy.row_mirror import RowMirror, show_rows, take_head
from simulator.policies.easy.shadow import EndRecord
from simulator.state.engine_state import NEVER, EngineState, Links


@kernel
def _join(state: EngineState, ahead: ReservationProjection, job: int) -> None:
    """Make ``job`` a member of the group, and its nodes the group's."""
    ahead.in_group[job] = 1
    ahead.group[ahead.head[0].members].job = job
    ahead.head[0].members += 1
    if needs_stack(state):
        _enter_ground(state, ahead, job)


@kernel
def _enter_ground(state: EngineState, ahead: ReservationProjection, job: int) -> None:
    """Let the nodes of ``job`` be the group's, and show who is on them."""
    for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
        node = state.parts[part].node
        if ahead.on_ground[node] == 0:
            ahead.on_ground[node] = 1
            ahead.ground[ahead.head[0].nodes] = node
            ahead.head[0].nodes += 1
            copy_node(ahead.trial_stack, state.occupied, node)


@kernel
def _gather_group(state: EngineState, ahead: ReservationProjection, links: Links | None, job: int) -> None:
    """List ``job`` and the jobs whose presence at the head's start it may change."""
    ahead.head[0].members = 0
    ahead.head[0].nodes = 0
    _join(state, ahead, job)
    if needs_stack(state):
        for part in range(state.jobs[job].part_at, state.jobs[job].part_end):
            add_to_stack(ahead.trial_stack, state.mask, state.parts[part].node, part)
    if links is None:
        return
    pairwise = state.excess is not None
    reached = 0
    while reached < ahead.head[0].members:
        record = links.of[ahead.group[reached].job].first
        reached += 1
        while record != NEVER:
            guest = links.records[record].job
            if not ahead.in_group[guest] and (pairwise or not ahead.base.runs[guest].busy):
                _join(state, ahead, guest)
            record = links.records[record].after


@kernel
def _forget_group(ahead: ReservationProjection) -> None:
    for place in range(ahead.head[0].members):
        ahead.trial.runs[ahead.group[place].job].busy = 0
        ahead.in_group[ahead.group[place].job] = 0
    for place in range(ahead.head[0].nodes):
        ahead.on_ground[ahead.ground[place]] = 0


@kernel
def _project_group(state: EngineState, ahead: ReservationProjection, job: int) -> None:
    """Project the group of ``job`` up to the head's start."""
    trial, stack, clock = ahead.trial, ahead.trial_stack, ahead.trial.clock[0]
    clock.agenda = 0
    clock.now_us = state.clock[0].now_us
    load_waiting(state, trial, job)
    for place in range(1, ahead.head[0].members):
        load(state, trial, ahead.group[place].job)
    for place in range(ahead.head[0].members):
        launch(state, trial, stack, ahead.group[place].job)
    count = 0
    while clock.agenda > 0 and trial.runs[trial.lists[0].agenda].next_us <= ahead.head[0].start_us:
        ended = end_first(state, trial)
        if needs_stack(state):
            for part in range(state.jobs[ended].part_at, state.jobs[ended].part_end):
                remove_from_stack(stack, state.mask, state.parts[part].node, part)
        speed_up(state, trial, stack)
        ahead.group_ends[count].us = clock.now_us
        ahead.group_ends[count].job = ended
        count += 1
    ahead.head[0].group_ends = count


@kernel
def _is_late(ahead: ReservationProjection, job: int) -> bool:
    """Return whether a member is there at the head's start, where it is not in the base."""
    return bool(ahead.trial.runs[job].busy) and not ahead.base.runs[job].busy


@kernel
def _comes_first(one: EndRecord, other: EndRecord) -> bool:
    return one.us < other.us or (one.us == other.us and one.job < other.job)


@kernel
def _merge_ends(ahead: ReservationProjection) -> None:
    """List all ends up to the head's start in their order: those of the group, and of all others."""
    known, merged = ahead.head[0], ahead.next_ends
    own = 0
    count = 0
    for place in range(known.ends):
        end = ahead.ends[place]
        if ahead.in_group[end.job]:
            continue
        while own < known.group_ends and _comes_first(ahead.group_ends[own], end):
            _set_end(merged, count, ahead.group_ends, own)
            own += 1
            count += 1
        _set_end(merged, count, ahead.ends, place)
        count += 1
    while own < known.group_ends:
        _set_end(merged, count, ahead.group_ends, own)
        own += 1
        count += 1
    known.next_ends = count


@kernel
def _set_end(ends: RecordTable[EndRecord], place: int, others: RecordTable[EndRecord], other: int) -> None:
    ends[place].us = others[other].us
    ends[place].job = others[other].job


@kernel
def _go_back(state: EngineState, ahead: ReservationProjection, head: int, count: int) -> int:
    """Undo all ends at the last instant of the first ``count`` ends; return how many are left."""
    ends = ahead.next_ends
    us = ends[count - 1].us
    while count > 0 and ends[count - 1].us == us:
        count -= 1
        occupy_cores(state, ahead, head, ends[count].job)
    return count


@kernel
def _go_on(state: EngineState, ahead: ReservationProjection, head: int, count: int) -> int:
    """Let all ends happen at the instant after the first ``count`` ends; return how many there are then."""
    ends = ahead.next_ends
    us = ends[count].us
    while count < ahead.head[0].next_ends and ends[count].us == us:
        release_cores(state, ahead, head, ends[count].job)
        count += 1
    return count


@kernel
def _ends_before_start(
    state: EngineState, ahead: ReservationProjection, mirror: RowMirror, head: int, job: int
) -> int:
    """Return how many jobs have ended when the rows take ``head``, ``job`` among all others; or ``NEVER``.

    The cluster that is shown is the one at the head's start then. It was that at its start without ``job``,
    which is where to begin: ``head`` fits only for an instant or two before that.
    """
    known, ends = ahead.head[0], ahead.next_ends
    count = known.next_ends
    while count > 0:
        count = _go_back(state, ahead, head, count)
        if known.fitting < state.jobs[head].nodes:
            count = _go_on(state, ahead, head, count)
            break
    show_rows(state, mirror)
    enter_row(state, mirror.rows, job)
    while True:
        due = count == 0 and known.next_ends > 0 and ends[0].us == state.clock[0].now_us
        if not due and take_head(state, ahead, mirror, ends, count, head):
            return count
        if count == known.next_ends:
            return NEVER
        count = _go_on(state, ahead, head, count)


@kernel
def _accept(ahead: ReservationProjection, count: int) -> None:
    """Let the trial be the base, up to the first ``count`` ends of it."""
    known = ahead.head[0]
    for place in range(known.members):
        member = ahead.group[place].job
        ahead.base.runs[member].busy = ahead.trial.runs[member].busy
    for place in range(count):
        _set_end(ahead.ends, place, ahead.next_ends, place)
    for place in range(count, known.next_ends):
        ahead.base.runs[ahead.next_ends[place].job].busy = 1
    known.ends = count


@kernel
def _rows_delay(
    state: EngineState, ahead: ReservationProjection, mirror: RowMirror | None, head: int, job: int
) -> bool:
    """Return whether rows delay ``head``, which fits otherwise; if not, bring the base up to date."""
    _merge_ends(ahead)
    if mirror is None:
        _accept(ahead, ahead.head[0].next_ends)
        return False
    count = _ends_before_start(state, ahead, mirror, head, job)
    if count == NEVER:
        return True
    ahead.head[0].start_us = state.clock[0].now_us if count == 0 else ahead.next_ends[count - 1].us
    _accept(ahead, count)
    return False


@kernel
def delays_head(
    state: EngineState, ahead: ReservationProjection, mirror: RowMirror | None, head: int, job: int
) -> bool:
    """Return whether ``head`` would start later because ``job``, whose parts are listed, starts now.

    If not, the base projection is brought up to date with ``job``.
    """
    known = ahead.head[0]
    ahead.base.runs[job].busy = 0
    _gather_group(state, ahead, state.links, job)
    _project_group(state, ahead, job)
    for place in range(known.members):
        if _is_late(ahead, ahead.group[place].job):
            occupy_cores(state, ahead, head, ahead.group[place].job)
    delayed = known.fitting < state.jobs[head].nodes or _rows_delay(state, ahead, mirror, head, job)
    if delayed:
        for place in range(known.members):
            if _is_late(ahead, ahead.group[place].job):
                release_cores(state, ahead, head, ahead.group[place].job)
    _forget_group(ahead)
    return delayed
