"""Points of a sweep on the workers of a Dask scheduler, whoever began them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from foundation.errors import OsubError
from foundation.one_line import one_line
from osub.sweep.points import Point
from osub.sweep.workers import KILLED, Ended, Failure, Work

if TYPE_CHECKING:
    from distributed import Client


def gather(client: Client, work: Work, points: Sequence[Point]) -> Iterator[Ended]:
    """Run ``work`` on each point, and yield each as it ends."""
    from distributed import KilledWorker, as_completed

    # Keys of this run's own: results of an earlier one that Dask still has are not taken for it.
    run = os.urandom(4).hex()
    futures = {
        client.submit(work, point.parameters, key=f"{point.key}-{run}", pure=False): point for point in points
    }
    for future in as_completed(futures, loop=client.loop):  # type: ignore[no-untyped-call]
        failure = future.exception()
        if failure is None:
            yield futures[future], future.result()
        elif isinstance(failure, KilledWorker):
            yield futures[future], KILLED
        else:
            why = one_line(f"{type(failure).__name__}: {failure}")
            yield futures[future], Failure(why, again=not isinstance(failure, OsubError))
