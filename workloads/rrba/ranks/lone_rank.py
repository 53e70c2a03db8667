"""A communicator of one rank, for jobs that run without MPI."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_T = TypeVar("_T")


class LoneRank:
    """What rrba calls of ``mpi4py.MPI.Comm``, among one rank: what is sent arrives here."""

    def Get_rank(self) -> int:  # noqa: N802 - the names of MPI, here and below
        """Return 0."""
        return 0

    def Get_size(self) -> int:  # noqa: N802
        """Return 1."""
        return 1

    def gather(self, own: _T) -> list[_T]:
        """Return what each rank has."""
        return [own]

    allgather = gather

    def bcast(self, own: _T) -> _T:
        """Return what the first rank has."""
        return own

    def Allreduce(self, own: NDArray[np.float64], into: NDArray[np.float64]) -> None:  # noqa: N802
        """Write the sum of one array."""
        into[...] = own

    def Sendrecv(self, own: NDArray[Any], _to: int, _tag: int, into: NDArray[Any], *_: int) -> None:  # noqa: N802
        """Send to the neighbour, which is this rank, and receive from it."""
        into[...] = own
