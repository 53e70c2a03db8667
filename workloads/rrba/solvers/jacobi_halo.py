"""The exchange of border planes between neighbouring slabs, by persistent requests.

A persistent request is set up once and started every step: the least that a step can spend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from workloads.rrba.ranks.communication_time import Waiting

UPWARD, DOWNWARD = 0, 1


class SlabHalo:
    """Fills the outer planes of a rank's arrays with the neighbours' border planes.

    Parameters
    ----------
    comm
        The ranks in the order of their slabs.
    arrays
        Shape (planes + 2, ...), contiguous, all alike; plane 0 and the last are to be filled. At the
        ends of the grid they are its walls and stay as they are.
    waiting
        Told of each exchange.
    """

    def __init__(self, comm: MPI.Comm, arrays: Sequence[NDArray[np.float64]], waiting: Waiting) -> None:
        rank, ranks = comm.Get_rank(), comm.Get_size()
        above = rank - 1 if rank > 0 else None
        below = rank + 1 if rank < ranks - 1 else None
        self._waiting = waiting
        self._requests: list[list[MPI.Prequest]] = []
        for array in arrays:
            requests: list[MPI.Prequest] = []
            if above is not None:
                requests.append(comm.Recv_init(array[0], above, DOWNWARD))
                requests.append(comm.Send_init(array[1], above, UPWARD))
            if below is not None:
                requests.append(comm.Recv_init(array[-1], below, UPWARD))
                requests.append(comm.Send_init(array[-2], below, DOWNWARD))
            self._requests.append(requests)

    def exchange(self, index: int) -> None:
        """Exchange the border planes of array ``index``; return when those of the neighbours are here."""
        requests = self._requests[index]
        if not requests:
            return
        self._waiting.begin()
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        self._waiting.end()

    def close(self) -> None:
        """Free the requests."""
        for requests in self._requests:
            for request in requests:
                request.Free()
        self._requests = []
