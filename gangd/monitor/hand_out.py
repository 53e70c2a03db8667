"""Handing metrics out for as long as a daemon runs, if its configuration asks for it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from gangd.daemon_process import Death
from gangd.monitor.address import ListenAddress, read_token
from gangd.monitor.metrics_requests import Health
from gangd.monitor.metrics_table import Figures, Metric

log = logging.getLogger("gangd")


class MetricsSource(Protocol):
    """What a daemon knows of itself; asked in the thread that serves.

    Attributes
    ----------
    is_served
        Set once anybody can ask.
    """

    is_served: bool

    def figures(self) -> Figures:
        """Return the values of metrics."""

    def health(self) -> Health:
        """Look how things are."""

    def on_death(self, death: Death) -> None:
        """Take note that the thread died and began anew."""


@contextmanager
def handed_out(
    address: ListenAddress | None, token: Path | None, table: Iterable[Metric], source: MetricsSource
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
    server = MetricsServer(address, pages, source.on_death)
    if secret is None and not address.is_loopback:
        log.warning("metrics are handed out at %s to everybody who can connect: set a token", address)
    source.is_served = True
    server.start()
    try:
        yield server.port
    finally:
        server.stop()
