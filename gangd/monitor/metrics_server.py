"""Hands metrics and health out over HTTP: one thread, no connection that lasts, everything bounded.

A client is a monitoring system, or means harm. A connection has ``PATIENCE_S`` for everything,
``MOST_BYTES`` for its question, and there are ``MOST`` of them; when another comes, the one that has waited
for longest is closed. Pages are made anew once in ``AGAIN_S`` at most, so that asking often costs little.

Figures become text by Prometheus's own library, so this is imported only where metrics are on.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from foundation.errors import HostError, UsageError
from gangd.daemon_process import Death, WatchedThread
from gangd.monitor.address import ListenAddress
from gangd.monitor.metrics_requests import BAD, END, MOST_BYTES, TOO_LONG, Health, answer, parse, text
from gangd.monitor.metrics_table import Buckets, Figures, Metric, MetricKind, Values, complete

try:
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.core import Metric as Family
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.utils import floatToGoString
except ImportError as error:
    raise UsageError(
        "metrics need the package prometheus-client, which is missing: pip install 'osub[metrics]'"
    ) from error

MOST = 32
PATIENCE_S = 5.0
AGAIN_S = 0.5
ACCEPTED_A_TURN = 16
PAUSE_S = 0.01
"""Rest after each turn: a flood of questions gets a hundred turns a second, and leaves the rest to others."""


@dataclass(slots=True)
class _Client:
    """One connection: since when, what came, what is still to go."""

    socket: socket.socket
    since_s: float
    came: bytearray = field(default_factory=bytearray)
    going: memoryview | None = None


class Pages:
    """What is handed out, made anew at most once in ``AGAIN_S``.

    Parameters
    ----------
    metrics
        Renders the page for a value of ``Accept``.
    health
        Looks at how things are.
    token
        What must be shown to see metrics; None: nothing.
    """

    def __init__(
        self,
        metrics: Callable[[str], tuple[str, bytes]],
        health: Callable[[], Health],
        token: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._health = health
        self._token = token
        self._clock = clock
        self._page: tuple[str, bytes] | None = None
        self._for = ("", float("-inf"))

    def answer(self, head: bytes) -> bytes:
        """Answer the head of a request."""
        request = parse(head)
        if request is None:
            return BAD.encode()
        try:
            found = answer(request, self._token, self._health, self._rendered)
        except Exception as error:  # one page that cannot be made must not end the others
            found = text("500 Internal Server Error", f"cannot be computed: {type(error).__name__}")
        return found.encode(with_body=request.method != "HEAD")

    def _rendered(self, accept: str) -> tuple[str, bytes]:
        accept = accept if "openmetrics" in accept else ""
        then, at_s = self._for
        if self._page is None or then != accept or self._clock() - at_s >= AGAIN_S:
            self._page = self._metrics(accept)
            self._for = accept, self._clock()
        return self._page


class MetricsServer:
    """Listens, in a thread of its own, from ``start`` to ``stop``.

    Parameters
    ----------
    address
        Where.
    pages
        What is handed out.
    on_death
        Called, in the thread, when it dies of something unexpected and begins anew.

    Raises
    ------
    HostError
        It cannot listen there.
    """

    def __init__(
        self,
        address: ListenAddress,
        pages: Pages,
        on_death: Callable[[Death], None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._pages = pages
        self._patience_s = patience_s
        self._clients: dict[int, _Client] = {}
        try:
            self._listener = socket.create_server(
                (address.host, address.port), family=address.family, backlog=MOST
            )
        except OSError as error:
            raise HostError(
                f"cannot listen on {address} for metrics: {error.strerror}; is another daemon there?"
            ) from error
        self._listener.setblocking(False)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread = WatchedThread("metrics", self._run, on_death)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and every connection."""
        os.write(self._wake_write, b"x")
        if self._thread.stop(1.0):
            for fd in list(self._clients):
                self._close(fd)
            self._selector.close()
            self._listener.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _run(self) -> None:
        while True:
            ready = self._selector.select(self._wait_s())
            now_s = time.monotonic()
            for key, _ in ready:
                if key.fd == self._wake_read:
                    return
                if key.fd == self._listener.fileno():
                    self._accept(now_s)
                elif key.fd in self._clients:
                    self._serve(key.fd)
            for fd in [fd for fd, one in self._clients.items() if now_s - one.since_s > self._patience_s]:
                self._close(fd)
            if ready:
                time.sleep(PAUSE_S)

    def _wait_s(self) -> float | None:
        if not self._clients:
            return None
        oldest_s = next(iter(self._clients.values())).since_s
        return max(0.0, oldest_s + self._patience_s - time.monotonic()) + 0.01

    def _accept(self, now_s: float) -> None:
        for _ in range(ACCEPTED_A_TURN):
            try:
                one, _ = self._listener.accept()
            except OSError:  # no more clients, or no file left for one more
                return
            one.setblocking(False)
            if len(self._clients) >= MOST:
                self._close(next(iter(self._clients)))
            self._clients[one.fileno()] = _Client(one, now_s)
            self._selector.register(one, selectors.EVENT_READ)

    def _serve(self, fd: int) -> None:
        client = self._clients[fd]
        try:
            if client.going is None:
                part = client.socket.recv(MOST_BYTES + 1)
                if not part:
                    self._close(fd)
                    return
                client.came += part
                reply = self._reply(bytes(client.came))
                if reply is None:
                    return
                client.going = memoryview(reply)
                self._selector.modify(client.socket, selectors.EVENT_WRITE)
            client.going = client.going[client.socket.send(client.going) :]
            if not client.going:
                self._close(fd)
        except BlockingIOError:
            return
        except OSError:
            self._close(fd)

    def _reply(self, came: bytes) -> bytes | None:
        head, end, _ = came.partition(END)
        if len(head) > MOST_BYTES:
            return TOO_LONG.encode()
        return self._pages.answer(head) if end else None

    def _close(self, fd: int) -> None:
        client = self._clients.pop(fd)
        with suppress(KeyError, ValueError):
            self._selector.unregister(client.socket)
        with suppress(OSError):
            client.socket.shutdown(socket.SHUT_WR)
        client.socket.close()


class Exposition:
    """Renders what ``figures`` returns at that moment.

    Parameters
    ----------
    table
        What is exported.
    figures
        Called for each page, in the thread that serves it.
    """

    def __init__(self, table: Iterable[Metric], figures: Callable[[], Figures]) -> None:
        self._table = tuple(table)
        self._figures = figures
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def describe(self) -> list[Family]:
        """Nothing is checked when this is registered: the table is checked by its tests."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield the families, for the library."""
        for metric, series in complete(self._table, self._figures()).items():
            yield _family(metric, series)

    def page(self, accept: str) -> tuple[str, bytes]:
        """Return content type and text, in the format that the header ``Accept`` asks for."""
        encode, kind = choose_encoder(accept)
        return kind, encode(self._registry)


def _family(metric: Metric, series: Values | Buckets) -> Family:
    if isinstance(series, Buckets):
        bounds = (*map(floatToGoString, series.bounds_s), "+Inf")
        histogram = HistogramMetricFamily(metric.name, metric.text)
        histogram.add_metric([], list(zip(bounds, series.counts, strict=True)), series.sum_s)
        return histogram
    family: GaugeMetricFamily | CounterMetricFamily
    if metric.kind is MetricKind.COUNTER:
        family = CounterMetricFamily(metric.name, metric.text, labels=metric.label_names)
    else:
        family = GaugeMetricFamily(metric.name, metric.text, labels=metric.label_names)
    for labels, value in series.items():
        family.add_metric(list(labels), value)
    return family
