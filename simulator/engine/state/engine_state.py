"""The state of a simulation: what the kernels read and write.

Jobs, nodes and parts are indices. Job indices ascend with the job's number in the trace, so that "in order of
job number" is "in order of index". A *part* is what a job holds on one node: a set of cores. The parts of job
``j`` are ``jobs[j].part_at`` to ``jobs[j].part_end``, in order of node. Each of the C cores of a node has
M slots.

Everything that has a name is a field of a record (see ``records``): ``state.runs[job].left``. What there is
one of, such as the clock, is a table of one record.

Work is counted in *units*: a job on dedicated cores does ``rules[0].scale`` units a microsecond, where the
sharing model chooses the scale such that its speeds are whole numbers. Progress is then exact, however often
it is settled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.engine.kernels.field_records import IntegerGrid, IntegerRow, RecordTable, Short
from simulator.engine.state.lifecycle_state import Lives
from simulator.engine.state.node_ranking import Ranking
from simulator.engine.state.sharing_state import Links, Rows

NEVER = -1
"""A time that has not come, or an index that points nowhere."""

FAR_US = 1 << 62
"""When a job ends that does not get on."""

ONE = 1 << 17
"""One, in the fixed-point numbers of pairwise and node factors, and the scale of the pairwise model."""


@dataclass(slots=True, eq=False)
class EngineRulesRecord:
    """What does not change: sizes, and the sharing model's kind.

    ``scale`` is in units a microsecond on a dedicated core; ``nodes_differ`` says whether nodes differ in
    speed, ``alike`` that neither nodes nor jobs do: speed hangs on the multiplicity alone. ``slots`` is M.
    ``together`` says whether all that happens at one instant comes before one scheduling pass.
    """

    scale: int = 0
    nodes_differ: int = 0
    alike: int = 0
    jobs: int = 0
    nodes: int = 0
    cores: int = 0
    slots: int = 0
    together: int = 0


@dataclass(slots=True, eq=False)
class EngineClockRecord:
    """The time, and how many there are of what.

    ``waiting`` in the queue, ``active`` holding cores, ``agenda`` on the agenda, ``affected`` by the last
    change, ``arrived`` so far, ``events`` so far, ``restless`` active ones with idle phases; ``mark`` is the
    last one given to runs. ``due`` is the number of arrivals that no pass has followed yet, ``NEVER`` if
    something else has happened since the last pass.
    """

    now_us: int = 0
    waiting: int = 0
    active: int = 0
    agenda: int = 0
    affected: int = 0
    mark: int = 0
    arrived: int = 0
    events: int = 0
    restless: int = 0
    closed: int = 0
    due: int = 0


@dataclass(slots=True, eq=False)
class EngineJobRecord:
    """What a job is, and asks for.

    ``app`` is its class of application (for pairwise models); ``phase_at`` and ``part_at`` say where its
    phases and its parts begin; ``shape`` is a number for all jobs of the same shape, memory and class.
    """

    submit_us: int = 0
    request_us: int = 0
    nodes: Short = 0
    cores: Short = 0
    memory_kib: int = 0
    app: Short = 0
    shape: Short = 0
    phase_at: int = 0
    part_at: int = 0
    part_end: int = 0
    index: Short = 0


@dataclass(slots=True, eq=False)
class RunRecord:
    """What becomes of a job, or would in a projection.

    ``left`` and ``request_left`` are the units left of the phase and of the requested time as of
    ``since_us``, at ``speed`` units a microsecond. ``phase`` is the present one, ``busy`` whether it
    computes, ``last`` whether it is the last, ``next_us`` when it ends. Then its places on the agenda and
    among the running jobs, its neighbours in the queue (the record after the last job is both ends), the mark
    of the change that affected it last, and how many busy jobs share a core with it (``co_located``).
    """

    left: int = 0
    request_left: int = 0
    speed: int = 0
    since_us: int = 0
    phase: Short = 0
    busy: Short = 0
    last: Short = 0
    next_us: int = NEVER
    start_us: int = NEVER
    end_us: int = NEVER
    agenda_at: int = NEVER
    running_at: int = NEVER
    queue_next: int = 0
    queue_prev: int = 0
    mark: int = 0
    co_located: Short = 0


@dataclass(slots=True, eq=False)
class ListRecord:
    """The jobs that have this place in lists: by arrival, on the agenda (a heap), and so on.

    ``running`` and ``affected`` are in no order.
    """

    arrival: Short = 0
    agenda: Short = 0
    running: Short = 0
    affected: Short = 0


@dataclass(slots=True, eq=False)
class EngineNodeRecord:
    """A node: cores with a free slot, free memory, occupied slots, parts listed, speed in parts of ``ONE``.

    ``owner`` is the one job that may be placed there; ``NEVER``: any may.
    """

    free: int = 0
    free_kib: int = 0
    used: int = 0
    listed: int = 0
    factor: int = ONE
    owner: int = NEVER


@dataclass(slots=True, eq=False)
class PartRecord:
    """A part: its node, its job, its place in the list of its node."""

    node: Short = 0
    job: Short = 0
    place: Short = 0


class Timeline(NamedTuple):
    """What happens to jobs: the real course of things, or a projection with a clock of its own."""

    clock: RecordTable[EngineClockRecord]
    runs: RecordTable[RunRecord]
    lists: RecordTable[ListRecord]


class EngineState(NamedTuple):
    """All of it.

    ``phase_us`` holds the periods idle, busy, idle, ... of every job (idle first; only the first may be
    zero). ``occupied[n, k, w]`` is the set of cores of node ``n`` with more than ``k`` jobs, ``busy`` the
    same for jobs that compute at this instant (None where M is 1), ``valid`` all cores of a node, ``mask``
    those of a part. ``open_nodes[f]`` counts the nodes with at least ``f`` cores that have a free slot.
    ``listed[n]`` are the parts on node ``n``, in no order. ``speeds[m]`` is the speed at multiplicity ``m``
    in units a microsecond; ``excess[a, b]`` by how much an application of class ``a`` is slowed by one of
    class ``b``, in parts of ``ONE`` (None unless the model is pairwise). ``ranking`` has the nodes by load:
    occupied slots, or where rows are kept what ``Rows`` counts. ``chosen`` is scratch for a set of nodes, and
    a placement keeps off the nodes in ``barred``. ``rows`` are kept where Slurm's placement shares cores,
    ``links`` wherever cores have several slots.
    """

    rules: RecordTable[EngineRulesRecord]
    clock: RecordTable[EngineClockRecord]
    jobs: RecordTable[EngineJobRecord]
    runs: RecordTable[RunRecord]
    lists: RecordTable[ListRecord]
    nodes: RecordTable[EngineNodeRecord]
    parts: RecordTable[PartRecord]
    phase_us: IntegerRow
    open_nodes: IntegerRow
    listed: IntegerGrid
    valid: IntegerRow
    occupied: IntegerGrid
    busy: IntegerGrid | None
    mask: IntegerGrid
    speeds: IntegerRow
    excess: IntegerGrid | None
    ranking: Ranking
    chosen: IntegerRow
    barred: IntegerRow
    rows: Rows | None
    links: Links | None
    lives: Lives | None = None
