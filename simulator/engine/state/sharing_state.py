"""The part of the state that is about jobs with common cores: who they are, and Slurm's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.engine.kernels.field_records import IntegerGrid, IntegerRow, RecordTable, Short


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


class Rows(NamedTuple):
    """Slurm's rows.

    ``cells[r, n, w]`` are the cores of node ``n`` in row ``r``, ``taken[k, n]`` is how many of its cores are
    not idle (``k`` is 0), or not free in row ``k - 1``; a projection keeps neither. ``size[r]`` is how many
    cores the row has, ``order`` are the rows in the order in which they are tried. ``turns`` are the running
    jobs in the order in which they are packed, with gaps (-1). ``blocking[j, r]`` is how many jobs block row
    ``r`` for job ``j``.

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
