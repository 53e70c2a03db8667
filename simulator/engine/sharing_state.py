"""The part of the state that is about jobs with common cores: who they are, and Slurm's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simulator.engine.records import Grid, Row, Short, Table


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

    pool: Table[LinkPoolRecord]
    records: Table[LinkRecord]
    of: Table[LinkedRecord]


@dataclass(slots=True, eq=False)
class PackedRecord:
    """A running job among the rows.

    ``first_core`` and ``size`` decide when its turn is in packing, ``at`` is its place in that order (-1: it
    does not run). ``row`` is the row that it is in, or -1; ``next_row`` the one that the last attempt at
    packing gave it. ``blocked`` are the rows in which, in that attempt, jobs before it held some of its
    cores, as bits; ``stale`` says that they have to be looked for again.
    """

    first_core: Short = 0
    size: Short = 0
    at: Short = -1
    row: Short = -1
    next_row: Short = -1
    blocked: Short = 0
    stale: Short = 0


@dataclass(slots=True, eq=False)
class PackingRecord:
    """Where packing stands.

    ``count`` jobs are in rows, or could be. ``changed`` is the first place in their order at which something
    has changed since the last attempt, ``failed_at`` the place of the job that found no row in it (-1: all
    did), ``differing`` how many jobs have another row than in the last attempt; ``untidy`` says that jobs
    with equal turns may have to change places.
    """

    count: int = 0
    changed: int = 0
    failed_at: int = -1
    differing: int = 0
    untidy: int = 0


class Rows(NamedTuple):
    """Slurm's rows.

    ``cells[r, n, w]`` are the cores of node ``n`` in row ``r`` (a projection keeps none), ``size[r]`` is how
    many cores the row has, ``order`` are the rows in the order in which they are tried. ``by_core`` are the
    running jobs in the order in which they are packed. ``next_size`` and ``next_order`` are of an attempt at
    packing; ``marks`` keeps both as they were before every 32nd job.
    """

    cells: Grid
    size: Row
    order: Row
    jobs: Table[PackedRecord]
    by_core: Row
    packing: Table[PackingRecord]
    next_size: Row
    next_order: Row
    marks: Grid
