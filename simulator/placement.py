"""Which cores a job gets: the thesis's rule, Slurm's, those that know what sharing costs, or a user's.

The built-in placements, the thesis's and Slurm's, behind one kernel.

*The thesis's* (section 5.2.1): a job of ``n`` nodes and ``c`` cores on each goes to the ``n`` nodes with the
fewest occupied slots, lowest index first, among those with ``c`` cores that have a free slot and with the
memory; on each to the ``c`` cores with the fewest jobs, lowest index first.

*Slurm's*, with ``SelectTypeParameters=CR_Core,CR_LLN`` and ``OverSubscribe=FORCE:M``: first idle cores are
looked for, on the nodes with the most idle cores, lowest index first. If there are not enough, the rows are
tried, fullest first: on the nodes with the most cores that are free *in that row*, whatever other rows hold.
On a node the job gets the lowest of these cores. So, unlike in the thesis's rule, a node with many free slots
is not preferred to one whose cores are free in the row that is tried. Source: Slurm 22.05,
``cons_common/job_test.c`` (``_job_test``, steps 1 and 4) and ``cons_tres/job_test.c`` (``_eval_nodes_lln``).
With one slot a core it is the thesis's rule.

Placements as plug-ins: the thesis's and Slurm's, and those that know what neighbours cost.

The latter are ``lln-paired`` and ``lln-apart``. Idle cores first, as ``lln``. Where a job has to share, it
goes to the cores whose holders and it lose least to each other, and to the nodes whose worst core is best.
``lln-paired`` never waits for better company: what fits under ``lln`` fits here. ``lln-apart`` does: with a
job which it harms, or which harms it, beyond a threshold, no job starts. It waits for other cores then; on a
cluster that empties it fits in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from simulator.cores.core_slots import IDLE, taken_cores
from simulator.cores.node_classes import name_parts, next_chosen, take_piece, undo_divide
from simulator.cores.node_fitting import fits, job_fits
from simulator.cores.slurm_rows import sort_rows
from simulator.jit.compilation import kernel
from simulator.model.jobs import SimulatedJob
from simulator.state.allocations import PoolState
from simulator.state.engine_state import NEVER, EngineState, Rows
from simulator.state.node_sets import WORD_BITS, bit_index, lowest_bits

Cores: TypeAlias = Mapping[int, Sequence[int]]
"""Core ids by node index."""


class PlacementRule(Protocol):
    """Which cores a job gets."""

    def place(self, cluster: PoolState, job: SimulatedJob) -> Cores | None:
        """Return the cores that ``job`` would get now, or None if it does not fit.

        Parameters
        ----------
        cluster
            Who holds what. It is not to be changed.
        job
            A job that waits.

        Returns
        -------
        Cores or None
            ``job.cores`` different core ids with a free slot on each of ``job.nodes`` nodes with the memory.
        """


@kernel
def _place(state: EngineState, rows: Rows | None, job: int) -> bool:
    if rows is None:
        return place_by_occupation(state, job)
    return _place_in_rows(state, rows, job)


@kernel
def place(state: EngineState, job: int) -> bool:
    """Give ``job`` pieces of the cores that it gets now, of which it takes none yet; return whether it fits.

    It has to start then, or to have its pieces taken away (``undo_divide``). Where rows are kept they are
    Slurm's; with one slot a core both rules are the same.
    """
    return _place(state, state.rows, job)


@kernel
def place_parts(state: EngineState, job: int, by_occupation: bool) -> bool:
    """Name in the parts of ``job``, which may be running, the cores that it gets; return whether it fits."""
    pieces = state.jobs[job].pieces
    state.jobs[job].pieces = NEVER
    placed = place_by_occupation(state, job) if by_occupation else place(state, job)
    if placed:
        name_parts(state, job)
        undo_divide(state, job)
    state.jobs[job].pieces = pieces
    return placed


@kernel
def _choose_cores(state: EngineState, piece: int, cores: int) -> None:
    """Let a piece be of the ``cores`` least occupied cores of its nodes, lowest index first."""
    node_class = state.pieces[piece].node_class
    for word in range(len(state.valid)):
        state.piece_cores[piece, word] = 0
    for level in range(state.occupied.shape[1]):
        for word in range(len(state.valid)):
            least = state.valid[word] & ~state.occupied[node_class, level, word]
            if level > 0:
                least &= state.occupied[node_class, level - 1, word]
            if least == 0:
                continue
            found = least.bit_count()
            if found > cores:
                least = lowest_bits(least, cores)
                found = cores
            state.piece_cores[piece, word] |= least
            cores -= found
            if cores == 0:
                return


@kernel
def _choose_nodes(state: EngineState, job: int) -> bool:
    """Choose the nodes of ``job``, fewest occupied slots first; return whether there are enough."""
    if state.rules[0].nodes == 1:
        state.chosen[0] = 1
        return state.barred[0] == 0
    # with one slot a core every node with that load suits the job or none does
    return choose_nodes(state, 0, job, state.listed.shape[1], state.rules[0].slots == 1)


@kernel
def place_by_occupation(state: EngineState, job: int) -> bool:
    """Give ``job`` pieces of the cores that it gets now; return whether it fits."""
    if not job_fits(state, job) or not _choose_nodes(state, job):
        return False
    piece = NEVER
    word = next_chosen(state, 0)
    while word < len(state.chosen):
        piece = take_piece(state, job, word, piece)
        _choose_cores(state, piece, state.jobs[job].cores)
        word = next_chosen(state, word)
    return True


@kernel
def _choose_row_cores(state: EngineState, rows: Rows, kind: int, piece: int, cores: int) -> None:
    node_class = state.pieces[piece].node_class
    for word in range(len(state.valid)):
        spare = state.valid[word] & ~taken_cores(state, rows, kind, node_class, word)
        found = spare.bit_count()
        if found > cores:
            spare = lowest_bits(spare, cores)
            found = cores
        state.piece_cores[piece, word] = spare
        cores -= found


@kernel
def _place_among(state: EngineState, rows: Rows, kind: int, job: int) -> bool:
    """Place ``job`` on idle cores, or on those that are free in a row."""
    asked = state.jobs[job]
    if not choose_nodes(state, kind, job, state.rules[0].cores - asked.cores, True):
        return False
    piece = NEVER
    word = next_chosen(state, 0)
    while word < len(state.chosen):
        piece = take_piece(state, job, word, piece)
        _choose_row_cores(state, rows, kind, piece, asked.cores)
        word = next_chosen(state, word)
    return True


@kernel
def _place_in_rows(state: EngineState, rows: Rows, job: int) -> bool:
    """Give ``job`` pieces of the cores that it gets now; return whether it fits."""
    if not job_fits(state, job):
        return False
    placed = _place_among(state, rows, IDLE, job)
    if not placed:
        sort_rows(rows)
    rank = 0
    while not placed and rank < len(rows.order):
        placed = _place_among(state, rows, rows.order[rank] + 1, job)
        rank += 1
    return placed


@kernel
def _choose_at(state: EngineState, kind: int, load: int, job: int, wanted: int) -> int:
    """Choose up to ``wanted`` nodes with ``load`` that suit ``job``; return how many."""
    asked, sets = state.jobs[job], state.ranking.sets
    found = 0
    for word in range(len(state.chosen)):
        rest = sets[kind, load, word] & ~state.barred[word]
        while rest:
            bit = rest & -rest
            rest ^= bit
            if fits(asked, state.classes[state.class_of[word * WORD_BITS + bit_index(bit)]]):
                state.chosen[word] |= bit
                found += 1
                if found == wanted:
                    return found
    return found


@kernel
def _choose_some(state: EngineState, kind: int, load: int, wanted: int) -> None:
    """Choose the first ``wanted`` of more nodes with ``load``, of which any will do."""
    sets = state.ranking.sets
    word = 0
    found = sets[kind, load, 0].bit_count()
    while found <= wanted:
        state.chosen[word] |= sets[kind, load, word]
        wanted -= found
        word += 1
        found = sets[kind, load, word].bit_count()
    state.chosen[word] |= lowest_bits(sets[kind, load, word], wanted)


@kernel
def _choose_all(state: EngineState, kind: int, load: int) -> None:
    for word in range(len(state.chosen)):
        state.chosen[word] |= state.ranking.sets[kind, load, word]


@kernel
def _are_enough(state: EngineState, kind: int, most: int, wanted: int) -> bool:
    """Return whether there are enough nodes up to the load ``most``, whether they suit a job or not."""
    ranking = state.ranking
    for place in range(ranking.loads.shape[1]):
        rest = ranking.loads[kind, place]
        while rest:
            bit = rest & -rest
            rest ^= bit
            load = place * WORD_BITS + bit_index(bit)
            if load > most:
                return False
            wanted -= ranking.size[kind, load]
            if wanted <= 0:
                return True
    return False


@kernel
def choose_nodes(state: EngineState, kind: int, job: int, most: int, alike: bool) -> bool:
    """Choose the least loaded nodes for ``job``, up to the load ``most``; return whether there are enough.

    ``alike``: if they need no memory and no job owns one, every node of such a load suits the job.
    """
    ranking, barred = state.ranking, 0
    if not _are_enough(state, kind, most, state.jobs[job].nodes):
        return False
    for word in range(len(state.chosen)):
        state.chosen[word] = 0
        barred |= state.barred[word]
    wanted = state.jobs[job].nodes
    alike = alike and state.jobs[job].memory_kib == 0 and state.clock[0].closed == 0 and barred == 0
    for place in range(ranking.loads.shape[1]):
        rest = ranking.loads[kind, place]
        while rest and wanted > 0:
            bit = rest & -rest
            rest ^= bit
            load = place * WORD_BITS + bit_index(bit)
            if load > most:
                return False
            if not alike:
                wanted -= _choose_at(state, kind, load, job, wanted)
            elif ranking.size[kind, load] <= wanted:
                _choose_all(state, kind, load)
                wanted -= ranking.size[kind, load]
            else:
                _choose_some(state, kind, load, wanted)
                wanted = 0
    return wanted == 0


@dataclass(frozen=True, slots=True)
class ThesisPlacement:
    """Least occupied nodes, then least occupied cores; see ``builtin_placement``."""

    def place(self, cluster: PoolState, job: SimulatedJob) -> Cores | None:
        """See ``PlacementRule``."""
        return cluster.cores_of(job.index) if place_parts(cluster.state, job.index, True) else None


@dataclass(frozen=True, slots=True)
class SlurmPlacement:
    """Slurm's ``CR_Core,CR_LLN``: idle cores on the least loaded nodes, else row by row."""

    keeps_rows: ClassVar[bool] = True

    def place(self, cluster: PoolState, job: SimulatedJob) -> Cores | None:
        """See ``PlacementRule``."""
        return cluster.cores_of(job.index) if place_parts(cluster.state, job.index, False) else None


@dataclass(frozen=True, slots=True, eq=False)
class PairedPlacement:
    """The placement.

    Parameters
    ----------
    loss
        E_v of each application with each other one, shape (A, A); ``SimulatedJob.app`` is a row of it.
    most
        No two jobs share cores of which one loses more; None: all may share.
    """

    loss: npt.NDArray[np.float64]
    most: float | None = None

    def place(self, cluster: PoolState, job: SimulatedJob) -> Cores | None:
        """See ``PlacementRule``."""
        own, other = self.loss[job.app], self.loss[:, job.app]
        harm = own + other
        if self.most is not None:
            harm = np.where(np.maximum(own, other) > self.most, np.inf, harm)
        state = cluster.state
        found: list[tuple[float, int, int, list[int]]] = []
        for node in range(cluster.nodes):
            here = state.classes[state.class_of[node]]
            if here.free < job.cores or here.free_kib < job.memory_kib:
                continue
            counts = cluster.jobs_a_core(node)
            if int((counts < cluster.multiplicity).sum()) < job.cores:
                continue
            costs = _costs(cluster, node, counts, harm)
            order = sorted(range(cluster.cores), key=lambda core: (costs[core], counts[core], core))
            if np.isinf(costs[order[job.cores - 1]]):
                continue
            chosen = sorted(order[: job.cores])
            found.append((max(costs[core] for core in chosen), int(counts.sum()), node, chosen))
        if len(found) < job.nodes:
            return None
        found.sort(key=lambda one: one[:3])
        return {node: chosen for _, _, node, chosen in sorted(found[: job.nodes], key=lambda one: one[2])}


def _costs(
    cluster: PoolState, node: int, counts: npt.NDArray[np.int64], harm: npt.NDArray[np.float64]
) -> list[float]:
    """Return what a job and the holders of each core would lose together; infinite where no slot is free."""
    costs = [0.0 if count < cluster.multiplicity else np.inf for count in counts.tolist()]
    if counts.any():
        apps = cluster.state.jobs
        for other, cores in cluster.holders(node).items():
            cost = float(harm[apps[other].app])
            for core in cores:
                costs[core] += cost
    return costs


__all__ = ["Cores", "PairedPlacement", "PlacementRule", "SlurmPlacement", "ThesisPlacement", "place"]
