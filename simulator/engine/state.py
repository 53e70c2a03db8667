"""The state of a simulation as a struct of arrays: what the kernels read and write.

Jobs, nodes and parts are indices. Job indices ascend with the job's number in the trace, so that "in order of
job number" is "in order of index". A *part* is what a job holds on one node: a set of cores. The parts of job
``j`` are ``PART_AT`` of ``j`` to ``PART_AT`` of ``j + 1``, in order of node. Each of the C cores of a node
has M slots.

A table has one row a field and one column a job, node or part: ``state.run[LEFT, job]``. (One array a table
rather than one a field, because numba unpacks every array of a tuple at every call.)

Work is counted in *units*: a job on dedicated cores does ``SCALE`` units a microsecond, where the sharing
model chooses the scale such that its speeds are whole numbers. Progress is then exact, however often it is
settled.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from simulator.engine.bits import WORD_BITS

Ints: TypeAlias = npt.NDArray[np.int64]
Shorts: TypeAlias = npt.NDArray[np.int32]

NEVER = -1
"""A time that has not come, or an index that points nowhere."""

FAR_US = 1 << 62
"""When a job ends that does not get on."""

# Fields of ``jobs``: when it arrives, the time it asks for, its shape, its class of application (for pairwise
# models), where its phases and its parts begin; a number for all jobs of the same shape, memory and class;
# ARRIVAL lists the jobs by submit time, then index.
SUBMIT_US, REQUEST_US, NODES, CORES, MEMORY_KIB, APP, PHASE_AT, PART_AT, SHAPE, ARRIVAL = range(10)
JOB_FIELDS = 10

# Fields of ``run``: units left of the phase and of the requested time as of SINCE_US, at SPEED units a
# microsecond; the present phase, whether it is BUSY, whether it is the LAST, and when it ends (NEXT_US).
LEFT, REQUEST_LEFT, SPEED, SINCE_US, PHASE, BUSY, LAST, NEXT_US, START_US, END_US = range(10)
# The agenda (a heap of jobs) and each job's place in it; the set of running jobs and each one's place in it;
# the links of the queue, with the column after the last job as both ends; the jobs affected by a change, and
# the mark of it.
HEAP, HEAP_AT, RUNNING, RUNNING_AT, QUEUE_NEXT, QUEUE_PREV, AFFECTED, STAMP = range(10, 18)
# Slurm's placement only: the row of a job, the one it is to have, and the running jobs by first core.
ROW, NEW_ROW, BY_CORE = range(18, 21)
RUN_FIELDS = 21

# Fields of ``nodes``: cores with a free slot, occupied slots, free memory, parts listed, speed in parts of
# ONE, and a number that a placement may keep there while it chooses.
FREE, USED, FREE_KIB, LISTED, FACTOR, SPARE = range(6)
NODE_FIELDS = 6

# Fields of ``parts``: its node, its job, its place in the list of its node.
NODE, JOB, PLACE = range(3)
PART_FIELDS = 3

# Places in ``clock``: the time, sizes of queue, running set, agenda and list of affected jobs, the last mark
# given, how many jobs have arrived, how many events there were, how many running jobs have idle phases.
NOW, WAITING, ACTIVE, AGENDA, TOUCHED, MARK, ARRIVED_JOBS, EVENTS, RESTLESS = range(9)
CLOCK_FIELDS = 9

# Places in ``rules``: which built-in policy, placement and kind of sharing; whether nodes differ in speed;
# units a microsecond on a dedicated core.
POLICY, PLACEMENT, KIND, NODES_DIFFER, SCALE = range(5)
RULE_FIELDS = 5
FCFS, EASY, EASY_ELSEWHERE = range(3)
THESIS, LLN = range(2)
BY_MULTIPLICITY, BY_PAIR = range(2)

ONE = 1 << 17
"""One, in the fixed-point numbers of pairwise and node factors, and the scale of the pairwise model."""


class State(NamedTuple):
    """All of it.

    ``phase_us`` holds the periods idle, busy, idle, ... of every job (idle first; only the first may be
    zero). ``occupied[n, k, w]`` is the set of cores of node ``n`` with more than ``k`` jobs, ``busy`` the
    same for jobs that compute at this instant (not kept where M is 1), ``valid`` all cores of a node,
    ``mask`` those of a part. ``roomy[f]`` counts the nodes with at least ``f`` cores that have a free slot.
    ``listed[n]`` are the parts on node ``n``, in no order. ``speeds[m]`` is the speed at multiplicity ``m``
    in units a microsecond; ``excess[a, b]`` by how much an application of class ``a`` is slowed by one of
    class ``b``, in parts of ``ONE``. ``by_load[u]`` is the set of nodes with ``u`` occupied slots,
    ``load_size[u]`` how many they are, ``loads`` the set of the ``u`` that occur; ``chosen`` is scratch for a
    set of nodes, and a placement keeps off the nodes in ``barred``. ``rows[r, n]`` are the cores of node
    ``n`` in row ``r`` of Slurm's placement, ``row_size[r]`` how many cores the row has, ``row_order`` the
    rows in the order in which they are tried (``row_kept`` keeps an order while another is tried).
    """

    rules: Ints
    clock: Ints
    jobs: Ints
    phase_us: Ints
    run: Ints
    nodes: Ints
    roomy: Ints
    listed: Shorts
    valid: Ints
    occupied: Ints
    busy: Ints
    parts: Shorts
    mask: Ints
    speeds: Ints
    excess: Ints
    by_load: Ints
    load_size: Ints
    loads: Ints
    chosen: Ints
    barred: Ints
    rows: Ints
    row_order: Ints
    row_kept: Ints
    row_size: Ints


def full_set(size: int) -> Ints:
    """Return the set of all of ``size`` cores (or nodes), shape (words,)."""
    words = -(-size // WORD_BITS)
    every = np.full(words, (1 << WORD_BITS) - 1, dtype=np.int64)
    if size % WORD_BITS:
        every[-1] = (1 << size % WORD_BITS) - 1
    return every


def run_table(jobs: int) -> Ints:
    """Return the table of a run of ``jobs`` in which nothing has happened."""
    run = np.zeros((RUN_FIELDS, jobs + 1), dtype=np.int64)
    run[[NEXT_US, START_US, END_US, HEAP_AT, RUNNING_AT]] = NEVER
    run[[QUEUE_NEXT, QUEUE_PREV]] = jobs
    return run
