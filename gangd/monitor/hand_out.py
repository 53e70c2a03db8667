"""Handing metrics out for as long as a daemon runs, if its configuration asks for it."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from gangd.daemon_process import Death
from gangd.monitor.address import ListenAddress, read_token
from gangd.monitor.metrics_requests import Health
from gangd.monitor.metrics_table import Figures, Metric

log = logging.getLogger("gangd")
R = TypeVar("R")


@dataclass(kw_only=True)
class MetricsSource(ABC, Generic[R]):
    """What a daemon's loop knew when it said so last; asked in the thread that serves.

    Attributes
    ----------
    is_served
        Set once anybody can ask; if not, none needs to be updated.
    deaths
        What befell the thread that serves, for the loop.
    """

    clock: Callable[[], int] = time.monotonic_ns
    is_served: bool = False
    deaths: deque[Death] = field(default_factory=lambda: deque(maxlen=8))
    _reading: R | None = None
    _since_ns: int = field(default_factory=time.monotonic_ns)

    def update(self, reading: R) -> None:
        """Take what the loop knows."""
        self._reading = reading

    @abstractmethod
    def figures(self) -> Figures:
        """Return the value of every metric that is known."""

    @abstractmethod
    def health(self) -> Health:
        """Look how things are."""


@contextmanager
def handed_out(
    address: ListenAddress | None, token: Path | None, table: Iterable[Metric], source: MetricsSource[Any]
) -> Iterator[int | None]:
    """Hand metrics of a table out while the context lasts; yields the port, None where no address is given.

    Raises
    ------
    UsageError
        The package that it needs is not installed.
    InputError, TrustError
        The token cannot be used.
    HostError
        That address cannot be listened on.
    """
    if address is None:
        yield None
        return
    from gangd.monitor.metrics_server import Exposition, MetricsServer, Pages

    secret = None if token is None else read_token(token)
    pages = Pages(Exposition(table, source.figures).page, source.health, secret)
    server = MetricsServer(address, pages, source.deaths.append)
    if secret is None and not address.is_loopback:
        log.warning("metrics are handed out at %s to everybody who can connect: set a token", address)
    source.is_served = True
    server.start()
    try:
        yield server.port
    finally:
        server.stop()
