"""The state of a hybrid pool, its queue, and the progress of its jobs.

The state of a hybrid run: whole nodes, each with at most one job and at most one lease.

A *lease* is an on-demand job that a node is reserved for; the node may be busy meanwhile, by a job that is
to end soon, by one that is leaving, or by a *squatter*: a job that was backfilled on reserved nodes and goes
when the on-demand job comes.

Progress is counted in units. A job goes through ``share`` units a microsecond, ``rules[0].whole`` when its
nodes are its own, less when it shares one. Set-up is units; what follows is units times ``width``, which is
the number of nodes of a malleable job (its run time is linear in size) and 1 of any other. Times are
microseconds. What is left of a rigid job includes the checkpoints to come, so an event is needed only for its
end.

How far jobs are: work, checkpoints, set-up, and the books.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.jit.compilation import kernel, kernel_state
from simulator.jit.field_records import IntegerGrid, IntegerRow, RecordTable
from simulator.state.lifecycle_state import BY_START

NO_JOB = -1
FAR_US = 1 << 62

RIGID, MALLEABLE, ON_DEMAND = range(3)
"""Kinds of jobs."""

COMING, WAITING, RUNNING, LEAVING, GATHERING, OVER = range(6)
"""What a job does. One that gathers is on demand, and holds nodes while other jobs are still leaving."""

BASELINE, NOTHING, COLLECT, PLAN, SHARE = range(5)
"""What happens before an on-demand job comes: EASY alone, N, CUA, CUP; or it shares cores."""

NO_NOTICE, SILENT, KNOWN, PAST = range(4)
"""How far the notice of an on-demand job is: there is none, to come, given, or its reservation is over."""


@dataclass(slots=True, eq=False)
class HybridRulesRecord:
    """What does not change. ``shrinks`` is SPAA, ``asks`` leaves victims to the caller."""

    jobs: int = 0
    nodes: int = 0
    strategy: int = 0
    shrinks: int = 0
    asks: int = 0
    warning_us: int = 0
    release_us: int = 0
    whole: int = 0
    guest: int = 0
    host: int = 0
    records: int = 0
    no_squatting: int = 0


@dataclass(slots=True, eq=False)
class HybridClockRecord:
    """The time, and how many there are of what.

    ``free`` nodes without a job and without a lease, ``active`` jobs that hold nodes, ``waiting`` ones,
    ``expected`` on-demand jobs with a lease or one to come, ``leases`` given, ``plans`` made, ``logged``
    stretches, ``unfinished`` jobs. ``asking`` is the on-demand job whose victims the caller is to name.
    """

    now_us: int = 0
    free: int = 0
    active: int = 0
    waiting: int = 0
    expected: int = 0
    arrived: int = 0
    noticed: int = 0
    leases: int = 0
    plans: int = 0
    logged: int = 0
    unfinished: int = 0
    events: int = 0
    decisions: int = 0
    asking: int = NO_JOB


@dataclass(slots=True, eq=False)
class HybridJobRecord:
    """A job.

    Parameters
    ----------
    kind, asked, least
        What it is, the nodes that it asks for, and the fewest that it runs on.
    submit_us, order, notice_us, predicted_us
        When it comes, its place by arrival, when it is announced, and for when; ``FAR_US`` if it is not.
    setup, every, save, slack
        Units: of set-up at each start, of work between checkpoints (0: none), of a checkpoint, and of the
        request beyond the run (times ``width``).
    work
        Units of work that are not safe yet, without checkpoints (times ``width``).
    status, nodes, plain, attempts
        What it does, nodes that it holds, those of them without a lease, and how often it started.
    since_us, share, setup_left, left
        Progress is settled up to an instant; speed, and what is left of this life.
    next_us
        When something happens to it next.
    squats, shared
        Whether it was backfilled on reserved nodes; on how many nodes it shares cores.
    got, missing, notice
        On demand: free nodes with its lease, nodes that it has no lease on, and how far its notice is.
    stretch_us, why, stretch_setup_us
        Since when it holds what it holds, why, and what of that went on set-up.
    """

    kind: int = 0
    asked: int = 0
    least: int = 0
    submit_us: int = 0
    order: int = 0
    notice_us: int = FAR_US
    predicted_us: int = FAR_US
    setup: int = 0
    every: int = 0
    save: int = 0
    slack: int = 0
    work: int = 0
    status: int = COMING
    nodes: int = 0
    plain: int = 0
    attempts: int = 0
    begun_us: int = 0
    est_us: int = 0
    since_us: int = 0
    share: int = 0
    setup_left: int = 0
    left: int = 0
    total: int = 0
    next_us: int = FAR_US
    squats: int = 0
    shared: int = 0
    got: int = 0
    missing: int = 0
    notice: int = NO_NOTICE
    stretch_us: int = 0
    why: int = BY_START
    stretch_setup_us: int = 0
    start_us: int = NO_JOB
    end_us: int = NO_JOB
    ready_us: int = NO_JOB
    instant: int = 0
    preemptions: int = 0
    shrinks: int = 0
    lost_us: int = 0
    setup_us: int = 0
    held_node_us: int = 0
    fresh_node_us: int = 0
    useful_node_us: int = 0
    lost_node_us: int = 0
    setup_node_us: int = 0
    again_node_us: int = 0
    save_node_us: int = 0
    warned_node_us: int = 0
    picked: int = 0
    cap: int = 0
    give: int = 0


@dataclass(slots=True, eq=False)
class HybridNodeRecord:
    """A node: the job on it, who it is reserved for, and the on-demand job that shares it."""

    job: int = NO_JOB
    lease: int = NO_JOB
    guest: int = NO_JOB


@dataclass(slots=True, eq=False)
class LoanRecord:
    """What ``lender`` gave to ``borrower`` in its life number ``life``; it shrank or was preempted."""

    borrower: int = 0
    lender: int = 0
    nodes: int = 0
    life: int = 0
    shrank: int = 0


@dataclass(slots=True, eq=False)
class PlanRecord:
    """CUP means to preempt ``victim`` in its life number ``life`` at ``at_us``, for ``borrower``."""

    borrower: int = 0
    victim: int = 0
    life: int = 0
    at_us: int = 0
    overhead: int = 0


@dataclass(slots=True, eq=False)
class HybridIntervalRecord:
    """What a job held from when to when; the nodes are a row of ``HybridTables.mask``."""

    job: int = 0
    from_us: int = 0
    to_us: int = 0
    why: int = 0
    setup_us: int = 0
    lost_us: int = 0


@kernel_state
class HybridTables(NamedTuple):
    """The tables.

    ``active``, ``queue`` and ``expected`` are lists of jobs: those that hold nodes in order of number, those
    that wait in order, on-demand jobs with a lease or one to come by notice. ``arrivals`` and ``notices`` are
    all jobs by arrival, and all announced ones by notice. ``order`` is a buffer for sorting.
    """

    rules: RecordTable[HybridRulesRecord]
    clock: RecordTable[HybridClockRecord]
    jobs: RecordTable[HybridJobRecord]
    nodes: RecordTable[HybridNodeRecord]
    active: IntegerRow
    queue: IntegerRow
    expected: IntegerRow
    arrivals: IntegerRow
    notices: IntegerRow
    order: IntegerRow
    loans: RecordTable[LoanRecord]
    plans: RecordTable[PlanRecord]
    log: RecordTable[HybridIntervalRecord]
    mask: IntegerGrid


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
def begin_lifecycle(world: HybridTables, job: HybridJobRecord) -> None:
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
    if job.attempts > 1:
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


@kernel
def _goes_before(world: HybridTables, a: int, b: int) -> bool:
    one, other = world.jobs[a], world.jobs[b]
    if world.rules[0].strategy != BASELINE:
        first = one.kind == ON_DEMAND
        second = other.kind == ON_DEMAND
        if first != second:
            return first
    return one.order < other.order


@kernel
def wait(world: HybridTables, job: int) -> None:
    """Put a job into the queue."""
    world.jobs[job].status = WAITING
    place = world.clock[0].waiting
    while place > 0 and _goes_before(world, job, world.queue[place - 1]):
        world.queue[place] = world.queue[place - 1]
        place -= 1
    world.queue[place] = job
    world.clock[0].waiting += 1


@kernel
def unqueue(world: HybridTables, place: int) -> None:
    """Take the job at a place off the queue."""
    world.clock[0].waiting -= 1
    for later in range(place, world.clock[0].waiting):
        world.queue[later] = world.queue[later + 1]


@kernel
def place_of(world: HybridTables, job: int) -> int:
    """Return the place of a waiting job."""
    place = 0
    while world.queue[place] != job:
        place += 1
    return place
