"""The state of a simulation: what the kernels read and write.

The part of the state that is about jobs with common cores: who they are, and Slurm's rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.jit.compilation import kernel_state
from simulator.jit.field_records import IntegerGrid, IntegerRow, RecordTable, Short
from simulator.state.lifecycle_state import LifecycleTables
from simulator.state.node_sets import Ranking


@dataclass(slots=True, eq=False)
class LinkRecord:
    """One of the two records of a pair of running jobs that have a core in common.

    Record ``k`` is in the list of one of them and names the other (``job``); ``k ^ 1`` is the other way
    round. ``before`` and ``after`` are its neighbours in the list.
    """

    job: Short = 0
    before: Short = 0
    after: Short = 0


@dataclass(slots=True, eq=False)
class LinkedRecord:
    """Of a job: the first record of its list, and how many there are."""

    first: Short = -1
    count: Short = 0


@dataclass(slots=True, eq=False)
class LinkPoolRecord:
    """How many records were ever used, and the first of those that can be used again."""

    used: int = 0
    spare: int = -1


@kernel_state
class Links(NamedTuple):
    """Which running jobs have a core in common: a list of the others for each job."""

    pool: RecordTable[LinkPoolRecord]
    records: RecordTable[LinkRecord]
    of: RecordTable[LinkedRecord]


@dataclass(slots=True, eq=False)
class PackedRecord:
    """A running job among the rows.

    ``first_core`` and ``size`` decide when its turn is in packing, ``at`` is its place in that order (-1: it
    does not run). ``row`` is the row that it is in, or -1; ``next_row`` the one that the last attempt at
    packing gave it. ``blocked`` are the rows that this gave to jobs whose turn is before and who have some of
    its cores, as bits.
    """

    first_core: Short = 0
    size: Short = 0
    at: Short = -1
    row: Short = -1
    next_row: Short = -1
    blocked: Short = 0


@dataclass(slots=True, eq=False)
class PackingRecord:
    """State of the packing.

    ``count`` jobs are in rows, or could be; ``length`` is how many places their order has, gaps included.
    ``changed`` is the first place at which something has changed since the last attempt, ``failed_at`` that
    of the job that found no row in it (-1: all did). ``differing`` jobs have another row than in the last
    attempt, the first of them not before ``differs_from``; ``untidy`` says that jobs with equal turns may
    have to change places.
    """

    count: int = 0
    length: int = 0
    changed: int = 0
    failed_at: int = -1
    differing: int = 0
    differs_from: int = 0
    untidy: int = 0


@dataclass(slots=True, eq=False)
class BlockRecord:
    """Places that are packed one after the other.

    ``dirty``: a job has come or gone, or is blocked in other rows. ``tied``: one may have the same turn as
    the one before it. ``calm``: the order of the rows did not change here in the last attempt.
    """

    dirty: Short = 1
    tied: Short = 0
    calm: Short = 0


@kernel_state
class Rows(NamedTuple):
    """Slurm's rows.

    ``cells[r, c, w]`` are the cores in row ``r`` of the nodes of class ``c``, ``taken[k, c]`` is how many of
    a node's cores are not idle (``k`` is 0), or not free in row ``k - 1``; a projection does not keep it.
    ``size[r]`` is how many cores the row has, ``order`` are the rows in the order in which they are tried.
    ``turns`` are the running jobs in the order in which they are packed, with gaps (-1). ``blocking[j, r]``
    is how many jobs block row ``r`` for job ``j``.

    Of the last attempt at packing: ``starts`` are the sizes and the order of the rows at the beginning of
    each block, ``growth`` what the sizes grew by there, ``leads[b, i]`` the least by which the ``i``-th row
    was smaller than the one before it when it grew; ``next_size`` and ``next_order`` at the end.
    """

    cells: IntegerGrid
    taken: IntegerGrid
    size: IntegerRow
    order: IntegerRow
    jobs: RecordTable[PackedRecord]
    blocking: IntegerGrid
    packing: RecordTable[PackingRecord]
    turns: IntegerRow
    blocks: RecordTable[BlockRecord]
    starts: IntegerGrid
    leads: IntegerGrid
    growth: IntegerGrid
    next_size: IntegerRow
    next_order: IntegerRow


NEVER = -1
"""A time that has not come, or an index that points nowhere."""

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
class DependencyRecord:
    """Of a job: the first job that depends on it, and the next that depends on the same one as it does.

    ``think_us`` is how long after that one's end it is submitted; ``NEVER``: at its own time, but not before.
    """

    first: Short = NEVER
    next: Short = NEVER
    think_us: int = NEVER


@dataclass(slots=True, eq=False)
class EngineClockRecord:
    """The time, and how many there are of what.

    ``waiting`` in the queue, ``active`` holding cores, ``agenda`` on the agenda, ``affected`` by the last
    change, ``arrived`` is the place in the list of arrivals of the next one: the jobs that
    depend on others are on the list once those have ended, and it moves back then. ``events`` so far,
    ``restless`` active ones with idle phases; ``mark`` is the
    last one given to runs. ``due`` is the number of arrivals that no pass has followed yet, ``NEVER`` if
    something else has happened since the last pass. ``unreleased`` jobs depend on one that has not ended.
    ``classes``, ``pieces`` and ``sets`` is how many were ever used; ``spare_*`` the first of those that can
    be used again.
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
    unreleased: int = 0
    classes: int = 1
    spare_class: int = NEVER
    pieces: int = 0
    spare_piece: int = NEVER
    sets: int = 0
    spare_set: int = NEVER


@dataclass(slots=True, eq=False)
class EngineJobRecord:
    """What a job is, and asks for.

    ``app`` is its class of application (for pairwise models); ``phase_at`` and ``part_at`` say where its
    phases and its parts begin; ``shape`` is a number for all jobs of the same shape, memory and class.
    ``pieces`` is the first of its pieces, while it has any.
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
    pieces: Short = NEVER


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
class NodeClassRecord:
    """A class of nodes: ``nodes`` with the same jobs on the same cores; 0: it is not in use.

    Of each of them: cores with a free slot, free memory, occupied slots, pieces listed, speed in parts of
    ``ONE``, and the one job that may be placed there (``owner``; ``NEVER``: any may). ``then_*`` is the same
    at the earliest start of the queue's head. The nodes are the set ``row``, in its words ``low`` to
    ``high``; where it is ``NEVER`` the only node is ``first``, and of a class that is not in use this is the
    next such class. ``piece`` is that of the job whose parts are named.
    """

    free: Short = 0
    used: Short = 0
    free_kib: int = 0
    then_kib: int = 0
    then_free: Short = 0
    then_used: Short = 0
    listed: Short = 0
    factor: Short = ONE
    owner: Short = NEVER
    nodes: Short = 0
    first: Short = 0
    row: Short = NEVER
    low: Short = 0
    high: Short = 0
    piece: Short = NEVER


@dataclass(slots=True, eq=False)
class PieceRecord:
    """A piece: what a job has on a class of nodes, namely the same cores on each of them.

    ``place`` is its place in the list of its class, ``next`` and ``prev`` are others of its job. ``origin``
    is the class that was divided for the piece; it is that of the piece if all of it was the job's.
    """

    node_class: Short = 0
    job: Short = 0
    place: Short = 0
    next: Short = 0
    prev: Short = 0
    origin: Short = 0


@dataclass(slots=True, eq=False)
class PartRecord:
    """A part: a node on which a job is, or would be."""

    node: Short = 0


class Timeline(NamedTuple):
    """What happens to jobs: the real course of things, or a projection with a clock of its own."""

    clock: RecordTable[EngineClockRecord]
    runs: RecordTable[RunRecord]
    lists: RecordTable[ListRecord]


@kernel_state
class EngineState(NamedTuple):
    """All of it.

    ``phase_us`` holds the periods idle, busy, idle, ... of every job (idle first; only the first may be
    zero). ``class_of`` is the class of each node, ``sets`` has the nodes of classes of several.
    ``occupied[c, k, w]`` is the set of cores with more than ``k`` jobs of the nodes of class ``c``, ``busy``
    the same for jobs that compute at this instant (None where M is 1), ``then_stack`` the same at the
    earliest start of the queue's head; ``valid`` are all cores of a node, ``mask`` those of a part,
    ``piece_cores`` those of a piece.
    ``open_nodes[f]`` counts the nodes with at least ``f`` cores that have a free slot.
    ``listed[c]`` are the pieces on class ``c``, in no order. ``speeds[m]`` is the speed at multiplicity ``m``
    in units a microsecond; ``excess[a, b]`` by how much an application of class ``a`` is slowed by one of
    class ``b``, in parts of ``ONE`` (None unless the model is pairwise). ``ranking`` has the nodes by load:
    occupied slots, or where rows are kept what ``Rows`` counts. ``chosen`` is scratch for a set of nodes, and
    a placement keeps off the nodes in ``barred``. ``rows`` are kept where Slurm's placement shares cores,
    ``links`` wherever cores have several slots. ``dependencies`` has a record a job
    where any depends on another.
    """

    rules: RecordTable[EngineRulesRecord]
    clock: RecordTable[EngineClockRecord]
    jobs: RecordTable[EngineJobRecord]
    runs: RecordTable[RunRecord]
    lists: RecordTable[ListRecord]
    classes: RecordTable[NodeClassRecord]
    class_of: IntegerRow
    sets: IntegerGrid
    pieces: RecordTable[PieceRecord]
    parts: RecordTable[PartRecord]
    phase_us: IntegerRow
    open_nodes: IntegerRow
    listed: IntegerGrid
    valid: IntegerRow
    occupied: IntegerGrid
    busy: IntegerGrid | None
    then_stack: IntegerGrid
    piece_cores: IntegerGrid
    mask: IntegerGrid
    speeds: IntegerRow
    excess: IntegerGrid | None
    ranking: Ranking
    chosen: IntegerRow
    barred: IntegerRow
    rows: Rows | None
    links: Links | None
    dependencies: RecordTable[DependencyRecord]
    lifecycles: LifecycleTables | None = None
