"""What the ranks of a periodic cube exchange: the faces of their boxes, and the whole of a small cube."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from workloads.rrba.cuts.boxes import Box
from workloads.rrba.ranks.communication_time import Waiting
from workloads.rrba.solvers.kernels.solved_model import Array


class TorusExchange:
    """Fills the outermost layer of a rank's arrays, edges and corners included, axis after axis."""

    def __init__(self, comm: MPI.Comm, box: Box, waiting: Waiting) -> None:
        self._comm = comm
        self._box = box
        self._waiting = waiting

    def exchange(self, array: Array) -> None:
        """Exchange the faces of ``array``, shape (planes + 2, rows + 2, columns + 2)."""
        for axis in range(3):
            layers = np.moveaxis(array, axis, 0)
            if self._box.parts[axis] == 1:
                layers[0], layers[-1] = layers[-2], layers[1]
                continue
            before, after = self._box.neighbour(axis, -1), self._box.neighbour(axis, 1)
            self._hand_on(layers[-2], after, layers[0], before, 2 * axis)
            self._hand_on(layers[1], before, layers[-1], after, 2 * axis + 1)

    def _hand_on(self, leaving: Array, to: int, arriving: Array, of: int, tag: int) -> None:
        outgoing, incoming = np.ascontiguousarray(leaving), np.empty(arriving.shape)
        self._waiting.begin()
        self._comm.Sendrecv(outgoing, to, tag, incoming, of, tag)
        self._waiting.end()
        arriving[...] = incoming

    def gather(self, inner: Array) -> Array:
        """Return the whole cube, of which ``inner`` is this rank's part, on every rank."""
        parts = self._box.parts
        ranks = parts[0] * parts[1] * parts[2]
        if ranks == 1:
            return inner
        pieces: Array = np.empty((ranks, *inner.shape))
        self._waiting.begin()
        self._comm.Allgather(np.ascontiguousarray(inner), pieces)
        self._waiting.end()
        edge = inner.shape[0] * parts[0]
        whole: Array = (
            pieces.reshape(*parts, *inner.shape).transpose(0, 3, 1, 4, 2, 5).reshape(edge, edge, edge)
        )
        return whole
