"""Points of a sweep on the workers of any Dask scheduler."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from foundation.errors import OsubError, UsageError
from foundation.one_line import one_line
from osub.sweep.points import Point
from osub.sweep.workers import KILLED, Ended, Failure, Work

if TYPE_CHECKING:
    from distributed import Client


class Dask:
    """A Dask cluster that is there already.

    Parameters
    ----------
    work
        What runs a point; osub must be installed where the workers are, and files be where they are here.
    address
        Of its scheduler, such as ``tcp://10.0.0.1:8786``, or a file that it wrote (``--scheduler-file``).

    Raises
    ------
    OsubError
        No scheduler answers.
    UsageError
        Dask is not installed.
    """

    def __init__(self, work: Work, address: str) -> None:
        self._work = work
        self._address = address
        _client(address).close()

    def run(self, points: Sequence[Point]) -> Iterator[Ended]:
        """Yield each point as it ends."""
        with _client(self._address) as client:
            yield from gather(client, self._work, points)


def gather(client: Client, work: Work, points: Sequence[Point]) -> Iterator[Ended]:
    """Run ``work`` on each point, and yield each as it ends."""
    from distributed import KilledWorker, as_completed

    # Keys of this run's own: results of an earlier one that Dask still has are not taken for it.
    run = os.urandom(4).hex()
    futures = {
        client.submit(work, point.parameters, key=f"{point.key}-{run}", pure=False): point for point in points
    }
    for future in as_completed(futures, loop=client.loop):
        failure = future.exception()
        if failure is None:
            yield futures[future], future.result()
        elif isinstance(failure, KilledWorker):
            yield futures[future], KILLED
        else:
            why = one_line(f"{type(failure).__name__}: {failure}")
            yield futures[future], Failure(why, again=not isinstance(failure, OsubError))


def _client(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError("--dask needs Dask: pip install 'osub[sweep]'") from error
    is_file = "/" in address and "://" not in address
    where: dict[str, Any] = {"scheduler_file": address} if is_file else {"address": address}
    try:
        return Client(**where, timeout=10, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise OsubError(
            f"no Dask scheduler answers at {one_line(address, 100)}: {one_line(str(error))}"
        ) from error
