"""The segments of a lifecycle, and the accounting of its node time.

The segments of a life: set-up, work up to the next checkpoint, the checkpoint, a warning.

Set-up and checkpoints are done at the speed of the job's slowest core, whatever its size: their units are
those of the present rate. The request meters work; while a job pauses, what is left of the pause is added to
what is left of the request, so that a projection sees both.

The books of a life: what node time was spent on, and what was held when.

Every microsecond that a job holds a node is work, set-up or saving (a checkpoint, or a warning). Work is
fresh until it is saved, and then useful; or it is lost. So what is allocated is useful, lost, set-up, saving
or fresh, at any instant.
"""

from __future__ import annotations

from simulator.jit.compilation import kernel
from simulator.state.engine_state import NEVER, EngineState
from simulator.state.lifecycle_state import (
    BY_START,
    LEAVING,
    RUNNING,
    SAVING,
    SETTING_UP,
    WORKING,
    IntervalRecord,
    LifecycleRecord,
    LifecycleTables,
    Log,
)


@kernel
def tally(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Book the time since the last entry; to be called before ``job`` does something else."""
    life = lifecycles.jobs[job]
    span_us = state.clock[0].now_us - life.since_us
    life.since_us = state.clock[0].now_us
    node_us = span_us * state.jobs[job].nodes
    if life.doing == WORKING:
        life.fresh_us += span_us
        life.fresh_node_us += node_us
    elif life.doing == SETTING_UP:
        life.spent_setup_us += span_us
        life.setup_node_us += node_us
    else:
        life.save_node_us += node_us


@kernel
def keep(lifecycles: LifecycleTables, job: int) -> None:
    """Note that what ``job`` has done is saved."""
    life = lifecycles.jobs[job]
    life.useful_us += life.fresh_us
    life.useful_node_us += life.fresh_node_us
    life.fresh_us = 0
    life.fresh_node_us = 0


@kernel
def lose(lifecycles: LifecycleTables, job: int) -> None:
    """Note that what ``job`` has done since it saved last is lost."""
    life = lifecycles.jobs[job]
    life.lost_us += life.fresh_us
    life.lost_node_us += life.fresh_node_us
    life.fresh_us = 0
    life.fresh_node_us = 0


@kernel
def lose_all(lifecycles: LifecycleTables, job: int) -> None:
    """Note that all that ``job`` has ever done is lost."""
    keep(lifecycles, job)
    life = lifecycles.jobs[job]
    life.lost_us += life.useful_us
    life.lost_node_us += life.useful_node_us
    life.useful_us = 0
    life.useful_node_us = 0


@kernel
def _log_times(life: LifecycleRecord, stretch: IntervalRecord) -> None:
    """Log the set-up and the loss since the last stretch was logged."""
    stretch.setup_us = life.spent_setup_us - life.logged_setup_us
    stretch.lost_us = life.lost_us - life.logged_lost_us
    life.logged_setup_us = life.spent_setup_us
    life.logged_lost_us = life.lost_us


@kernel
def note_loss(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Log the loss of a job that holds nothing."""
    clock = lifecycles.clock[0]
    stretch = lifecycles.log.stretches[clock.logged]
    stretch.job = job
    stretch.from_us = state.clock[0].now_us
    stretch.to_us = state.clock[0].now_us
    stretch.part_at = clock.parts_logged
    stretch.nodes = 0
    _log_times(lifecycles.jobs[job], stretch)
    clock.logged += 1


@kernel
def _log(state: EngineState, lifecycles: LifecycleTables, log: Log, job: int) -> None:
    clock, life, asked = lifecycles.clock[0], lifecycles.jobs[job], state.jobs[job]
    stretch = log.stretches[clock.logged]
    stretch.job = job
    stretch.from_us = life.stretch_us
    stretch.to_us = state.clock[0].now_us
    stretch.why = life.why
    stretch.part_at = clock.parts_logged
    stretch.nodes = asked.nodes
    _log_times(life, stretch)
    for part in range(asked.part_at, asked.part_end):
        log.parts[clock.parts_logged].node = state.parts[part].node
        for word in range(state.mask.shape[1]):
            log.mask[clock.parts_logged, word] = state.mask[part, word]
        clock.parts_logged += 1
    clock.logged += 1


@kernel
def close_stretch(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Log what ``job`` has held up to now, even if it was for no time: its life is over."""
    _log(state, lifecycles, lifecycles.log, job)


@kernel
def close_last_stretch(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Log what ``job`` held at its end, unless it held that from its only start on."""
    if lifecycles.jobs[job].why != BY_START:
        _log(state, lifecycles, lifecycles.log, job)


@kernel
def rate_at(lifecycles: LifecycleTables, job: int, nodes: int) -> int:
    """Return the rate of ``job`` on ``nodes`` nodes."""
    life = lifecycles.jobs[job]
    if life.rate_at == NEVER:
        return 1
    return lifecycles.rates[life.rate_at + nodes - 1]


@kernel
def rate_of(lifecycles: LifecycleTables | None, job: int) -> int:
    """Return the rate of ``job`` on the nodes that it holds, or that it will when it starts."""
    if lifecycles is None:
        return 1
    return lifecycles.jobs[job].rate


@kernel
def request_units(state: EngineState, lifecycles: LifecycleTables | None, job: int) -> int:
    """Return the units that ``job`` still asks for before it starts, its set-up included."""
    if lifecycles is None:
        return state.jobs[job].request_us * state.rules[0].scale
    life = lifecycles.jobs[job]
    return life.saved_request + life.setup_us * state.rules[0].scale * life.rate


@kernel
def asks_us(state: EngineState, lifecycles: LifecycleTables | None, job: int) -> int:
    """Return how long the waiting ``job`` asks to run on dedicated cores when it starts, set-up included."""
    if lifecycles is None:
        return state.jobs[job].request_us
    speed = state.rules[0].scale * lifecycles.jobs[job].rate
    return (request_units(state, lifecycles, job) + speed - 1) // speed


@kernel
def requested_end_us(state: EngineState, lifecycles: LifecycleTables | None, job: int) -> int:
    """Return when the running ``job`` ends by its request, if nothing slows or stops it."""
    if lifecycles is None:
        return state.runs[job].start_us + state.jobs[job].request_us
    return lifecycles.jobs[job].due_us


@kernel
def first_phase(state: EngineState, job: int) -> int:
    """Return the first phase that is not empty."""
    first = state.jobs[job].phase_at
    if state.phase_us[first] == 0 and first + 1 < state.jobs[job + 1].phase_at:
        first += 1
    return first


@kernel
def forget_progress(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Let what is saved of ``job`` be its beginning."""
    life = lifecycles.jobs[job]
    unit = state.rules[0].scale * rate_at(lifecycles, job, life.asked)
    life.saved_phase = first_phase(state, job)
    life.saved_left = state.phase_us[life.saved_phase] * unit
    life.saved_request = state.jobs[job].request_us * unit


@kernel
def reset_checkpoint(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Let the time to the next checkpoint begin anew."""
    life = lifecycles.jobs[job]
    if life.every_us != NEVER:
        life.until_save = life.every_us * state.rules[0].scale * rate_at(lifecycles, job, life.asked)


@kernel
def _begin(state: EngineState, lifecycles: LifecycleTables, job: int, units: int) -> None:
    run = state.runs[job]
    run.left = units
    run.since_us = state.clock[0].now_us
    run.speed = state.rules[0].scale * lifecycles.jobs[job].rate
    run.next_us = run.since_us + (units + run.speed - 1) // run.speed


@kernel
def work(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Go on working: ``rest`` units of the phase are left; up to the phase's end or the next checkpoint."""
    run, life = state.runs[job], lifecycles.jobs[job]
    life.doing = WORKING
    run.busy = (run.phase - state.jobs[job].phase_at) & 1
    units = life.rest
    if run.busy and life.every_us != NEVER:
        units = min(units, life.until_save)
        life.until_save -= units
    life.rest -= units
    run.last = int(life.rest == 0 and run.phase + 1 == state.jobs[job + 1].phase_at)
    _begin(state, lifecycles, job, units)


@kernel
def pause(state: EngineState, lifecycles: LifecycleTables, job: int, doing: int, units: int) -> None:
    """Set up, save or leave, for so many units; the work left is in ``rest`` and ``kept_request``."""
    run, life = state.runs[job], lifecycles.jobs[job]
    life.doing = doing
    run.busy = int(doing != LEAVING)
    run.last = int(doing == LEAVING)
    run.request_left = units if doing == LEAVING else life.kept_request + units
    _begin(state, lifecycles, job, units)


@kernel
def halt(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Put together where a settled job is: its phase, ``rest``, ``kept_request`` and ``until_save``."""
    run, life = state.runs[job], lifecycles.jobs[job]
    if life.doing != WORKING:
        life.pause_left = run.left
        return
    life.rest += run.left
    life.kept_request = run.request_left
    if run.busy and life.every_us != NEVER:
        life.until_save += run.left
    run.left = 0


@kernel
def follow(state: EngineState, lifecycles: LifecycleTables, job: int) -> bool:
    """Go from a segment that is done to the next; return whether the job has saved by doing so."""
    run, life = state.runs[job], lifecycles.jobs[job]
    doing = life.doing
    if doing == WORKING and life.rest > 0:
        life.kept_request = run.request_left
        pause(state, lifecycles, job, SAVING, life.checkpoint_us * state.rules[0].scale * life.rate)
        return False
    if doing == WORKING:
        run.phase += 1
        life.rest = state.phase_us[run.phase] * state.rules[0].scale * life.rate
    if doing != WORKING:
        run.request_left = life.kept_request
    if doing == SAVING:
        reset_checkpoint(state, lifecycles, job)
        life.saved_phase = run.phase
        life.saved_left = life.rest
        life.saved_request = life.kept_request
    work(state, lifecycles, job)
    return doing == SAVING


@kernel
def begin_lifecycle(state: EngineState, lifecycles: LifecycleTables, job: int) -> None:
    """Begin where ``job`` saved last, with its set-up, at the rate of the nodes that it has now."""
    run, life = state.runs[job], lifecycles.jobs[job]
    run.phase = life.saved_phase
    life.rest = life.saved_left
    life.kept_request = life.saved_request
    reset_checkpoint(state, lifecycles, job)
    life.status = RUNNING
    life.in_front = 0
    life.starts += 1
    life.since_us = state.clock[0].now_us
    life.stretch_us = state.clock[0].now_us
    life.due_us = state.clock[0].now_us + asks_us(state, lifecycles, job)
    if life.setup_us > 0:
        pause(state, lifecycles, job, SETTING_UP, life.setup_us * state.rules[0].scale * life.rate)
    else:
        run.request_left = life.kept_request
        work(state, lifecycles, job)
