"""How far jobs are: work, checkpoints, set-up, and the books."""

from __future__ import annotations

from simulator.hybrid.loop.hybrid_state import (
    FAR_US,
    GATHERING,
    LEAVING,
    MALLEABLE,
    ON_DEMAND,
    RUNNING,
    HybridJobRecord,
    HybridTables,
)
from simulator.jit.compilation import kernel


@kernel
def up(value: int, by: int) -> int:
    """Return ``value / by``, rounded up."""
    return (value + by - 1) // by


@kernel
def saves_of(job: HybridJobRecord, work: int) -> int:
    """Return how many checkpoints so much work has; none at its very end."""
    if job.every == 0 or work == 0:
        return 0
    return (work - 1) // job.every


@kernel
def width_of(job: HybridJobRecord, nodes: int) -> int:
    """Return by how much more a job does on so many nodes than on one that counts once."""
    return nodes if job.kind == MALLEABLE else 1


@kernel
def share_of(world: HybridTables, job: HybridJobRecord) -> int:
    """Return the units a microsecond that a job does: fewer if it shares any node."""
    rules = world.rules[0]
    if job.shared == 0:
        return rules.whole
    return rules.guest if job.kind == ON_DEMAND else rules.host


@kernel
def wanted_us(world: HybridTables, job: HybridJobRecord, nodes: int) -> int:
    """Return the time that a waiting job asks for on so many nodes."""
    left = job.work + saves_of(job, job.work) * job.save + job.slack
    return up(job.setup + up(left, width_of(job, nodes)), world.rules[0].whole)


@kernel
def estimate_us(job: HybridJobRecord) -> int:
    """Return when a job that holds nodes gives them back, by its request."""
    if job.status == LEAVING:
        return job.next_us
    begin_us = job.ready_us if job.status == GATHERING else job.since_us
    units = job.setup_left + up(job.left + job.slack, width_of(job, job.nodes))
    return begin_us + up(units, job.share)


@kernel
def foresee(world: HybridTables, job: HybridJobRecord) -> None:
    """Note when a running job ends, at the speed that it has now; it is settled."""
    job.share = share_of(world, job)
    units = job.setup_left + up(job.left, width_of(job, job.nodes))
    job.next_us = job.since_us + up(units, job.share)


@kernel
def begin_life(world: HybridTables, job: HybridJobRecord) -> None:
    """Let a job on its nodes begin, or go on from what it saved."""
    now_us = world.clock[0].now_us
    job.status = RUNNING
    job.since_us = now_us
    job.setup_left = job.setup
    job.left = job.work + saves_of(job, job.work) * job.save
    job.total = job.left
    foresee(world, job)


@kernel
def settle(world: HybridTables, job: HybridJobRecord) -> None:
    """Bring progress and books of a job that holds nodes up to now."""
    now_us = world.clock[0].now_us
    took_us = now_us - job.since_us
    if took_us <= 0:
        return
    job.since_us = now_us
    node_us = job.nodes * took_us
    job.held_node_us += node_us
    if job.status != RUNNING:
        job.warned_node_us += node_us
        return
    units = took_us * job.share
    setup_us = took_us
    if job.setup_left <= units:
        setup_us = up(job.setup_left, job.share)
        done = (units - job.setup_left) * width_of(job, job.nodes)
        job.left -= min(job.left, done)
        job.setup_left = 0
    else:
        job.setup_left -= units
    job.setup_us += setup_us
    job.stretch_setup_us += setup_us
    job.setup_node_us += job.nodes * setup_us
    if job.lives > 1:
        job.again_node_us += job.nodes * setup_us
    job.fresh_node_us += job.nodes * (took_us - setup_us)


@kernel
def _saved(job: HybridJobRecord, done: int) -> int:
    """Return the checkpoints that a rigid job has written in this life after so many units."""
    if job.every == 0:
        return 0
    return min(done // (job.every + job.save), saves_of(job, job.work))


@kernel
def done_at(job: HybridJobRecord, at_us: int) -> int:
    """Return the units that a running rigid job will have done in this life, set-up apart, at an instant."""
    units = (at_us - job.since_us) * job.share - job.setup_left
    return job.total - job.left + max(0, units)


@kernel
def loses_at(job: HybridJobRecord, at_us: int) -> int:
    """Return the units that a running job loses if it is preempted at an instant."""
    if job.kind == MALLEABLE:
        return 0
    done = done_at(job, at_us)
    return done - _saved(job, done) * (job.every + job.save)


@kernel
def overhead_at(job: HybridJobRecord, at_us: int) -> int:
    """Return the node units that preempting a running job at an instant costs."""
    return job.nodes * (job.setup + loses_at(job, at_us))


@kernel
def saved_by_us(job: HybridJobRecord, now_us: int, by_us: int) -> int:
    """Return when a running rigid job writes its last checkpoint by an instant; ``FAR_US`` if none."""
    if job.kind == MALLEABLE or job.every == 0:
        return FAR_US
    cycle = job.every + job.save
    count = _saved(job, done_at(job, by_us))
    ahead = count * cycle - (job.total - job.left)
    if count == 0 or ahead < 0:
        return FAR_US
    at_us = job.since_us + up(job.setup_left + ahead, job.share)
    return at_us if at_us >= now_us else FAR_US


@kernel
def lose(world: HybridTables, job: HybridJobRecord) -> int:
    """Take from a settled rigid job what it has not saved; return the lost microseconds."""
    whole = world.rules[0].whole
    done = job.total - job.left
    count = _saved(job, done)
    lost_us = (done - count * (job.every + job.save)) // whole
    save_node_us = job.nodes * count * job.save // whole
    job.work -= count * job.every
    job.lost_us += lost_us
    job.lost_node_us += job.nodes * lost_us
    job.save_node_us += save_node_us
    job.useful_node_us += job.fresh_node_us - job.nodes * lost_us - save_node_us
    job.fresh_node_us = 0
    return lost_us


@kernel
def keep(world: HybridTables, job: HybridJobRecord) -> None:
    """Make safe what a settled job did: it is done, or it is malleable and saves its state."""
    save_node_us = 0
    if job.kind == MALLEABLE:
        job.work = job.left
    else:
        save_node_us = job.nodes * saves_of(job, job.work) * job.save // world.rules[0].whole
        job.work = 0
    job.save_node_us += save_node_us
    job.useful_node_us += job.fresh_node_us - save_node_us
    job.fresh_node_us = 0
