"""The books of a life: what node time was spent on, and what was held when.

Every microsecond that a job holds a node is work, set-up or saving (a checkpoint, or a warning). Work is
fresh until it is saved, and then useful; or it is lost. So what is allocated is useful, lost, set-up, saving
or fresh, at any instant.
"""

from __future__ import annotations

from simulator.engine.kernels.compilation import kernel
from simulator.engine.state.engine_state import EngineState
from simulator.engine.state.lifecycle_state import (
    BY_START,
    SETTING_UP,
    WORKING,
    IntervalRecord,
    LifeRecord,
    Lives,
    Log,
)


@kernel
def tally(state: EngineState, lives: Lives, job: int) -> None:
    """Book the time since the last entry; to be called before ``job`` does something else."""
    life = lives.jobs[job]
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
def keep(lives: Lives, job: int) -> None:
    """Note that what ``job`` has done is saved."""
    life = lives.jobs[job]
    life.useful_us += life.fresh_us
    life.useful_node_us += life.fresh_node_us
    life.fresh_us = 0
    life.fresh_node_us = 0


@kernel
def lose(lives: Lives, job: int) -> None:
    """Note that what ``job`` has done since it saved last is lost."""
    life = lives.jobs[job]
    life.lost_us += life.fresh_us
    life.lost_node_us += life.fresh_node_us
    life.fresh_us = 0
    life.fresh_node_us = 0


@kernel
def lose_all(lives: Lives, job: int) -> None:
    """Note that all that ``job`` has ever done is lost."""
    keep(lives, job)
    life = lives.jobs[job]
    life.lost_us += life.useful_us
    life.lost_node_us += life.useful_node_us
    life.useful_us = 0
    life.useful_node_us = 0


@kernel
def _log_times(life: LifeRecord, stretch: IntervalRecord) -> None:
    """Log the set-up and the loss since the last stretch was logged."""
    stretch.setup_us = life.spent_setup_us - life.logged_setup_us
    stretch.lost_us = life.lost_us - life.logged_lost_us
    life.logged_setup_us = life.spent_setup_us
    life.logged_lost_us = life.lost_us


@kernel
def note_loss(state: EngineState, lives: Lives, job: int) -> None:
    """Log the loss of a job that holds nothing."""
    clock = lives.clock[0]
    stretch = lives.log.stretches[clock.logged]
    stretch.job = job
    stretch.from_us = state.clock[0].now_us
    stretch.to_us = state.clock[0].now_us
    stretch.part_at = clock.parts_logged
    stretch.nodes = 0
    _log_times(lives.jobs[job], stretch)
    clock.logged += 1


@kernel
def _log(state: EngineState, lives: Lives, log: Log, job: int) -> None:
    clock, life, asked = lives.clock[0], lives.jobs[job], state.jobs[job]
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
def close_stretch(state: EngineState, lives: Lives, job: int) -> None:
    """Log what ``job`` has held up to now, even if it was for no time: its life is over."""
    _log(state, lives, lives.log, job)


@kernel
def close_last_stretch(state: EngineState, lives: Lives, job: int) -> None:
    """Log what ``job`` held at its end, unless it held that from its only start on."""
    if lives.jobs[job].why != BY_START:
        _log(state, lives, lives.log, job)
