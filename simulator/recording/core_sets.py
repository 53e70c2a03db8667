"""Which sets of cores occur among millions of parts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foundation.id_list import write_ids
from simulator.engine.kernels.field_records import Ints
from simulator.engine.state.cluster_view import members

_PIECE = 1 << 20


def core_sets(mask: Ints) -> tuple[list[str], npt.NDArray[np.integer]]:
    """Return the sets that occur, in Slurm's notation, and for each row of ``mask`` which one it is.

    There are millions of rows and few sets, so a piece at a time is sorted rather than the whole.
    """
    kinds, which = _distinct(mask)
    return [write_ids(members(kind)) for kind in kinds], which


def _distinct(mask: Ints) -> tuple[Ints, npt.NDArray[np.integer]]:
    if mask.shape[1] == 1:
        pieces = [mask[first : first + _PIECE, 0] for first in range(0, max(len(mask), 1), _PIECE)]
        kinds = np.unique(np.concatenate([np.unique(piece) for piece in pieces]))
        which = np.concatenate([np.searchsorted(kinds, piece).astype(np.int32) for piece in pieces])
        return kinds[:, np.newaxis], which
    rows = np.ascontiguousarray(mask).view(np.dtype((np.void, mask.dtype.itemsize * mask.shape[1])))
    _, first, inverse = np.unique(rows[:, 0], return_index=True, return_inverse=True)
    return mask[first], inverse
