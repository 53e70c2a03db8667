"""A TCP proxy between one agent and its controller, with weather: loss, delay, cuts, damage.

It knows where a ZMTP 3 frame begins and ends (RFC 23) and which frames are CURVE traffic (RFC 26), and
nothing else: keys and contents pass through it unread. Weather falls on traffic alone, one frame at a time,
so a message of two frames may lose one of them.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import threading
from dataclasses import dataclass, field

_GREETING_BYTES = 64
_LONGEST_FRAME = 1 << 26
_TRAFFIC = b"\x07MESSAGE"
_POLL_S = 0.02


@dataclass
class Weather:
    """What happens to frames now: probabilities of a frame, seconds of delay, and whether the line is cut.

    swap: a frame changes places with the next one.
    repeat: a frame that passed earlier is sent again.
    corrupt: one bit of a frame is flipped.
    drift: seconds by which downward frames become later each second; seen as a drift of the peers' clocks.
    """

    cut: bool = False
    loss: float = 0.0
    swap: float = 0.0
    repeat: float = 0.0
    corrupt: float = 0.0
    delay_s: tuple[float, float] = (0.0, 0.0)
    drift: float = 0.0
    drift_from_s: float = 0.0


@dataclass
class Counts:
    """What the weather did since the proxy began."""

    passed: int = 0
    lost: int = 0
    swapped: int = 0
    repeated: int = 0
    corrupted: int = 0


@dataclass(eq=False)
class Line:
    """One listening port and the port that it leads to."""

    name: str
    upstream: int
    port: int = 0
    servers: dict[str, asyncio.Server] = field(default_factory=dict)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)


class Proxy:
    """The two lines of one agent: ``plans`` (PUB to SUB) and ``reports`` (ROUTER to DEALER).

    loop: runs in another thread.
    upstreams: the controller's publish and report ports on this host.
    dice: decides which frames the weather hits.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, upstreams: tuple[int, int], dice: random.Random
    ) -> None:
        self.weather = Weather()
        self.counts = Counts()
        self._loop = loop
        self._dice = dice
        self.plans, self.reports = Line("plans", upstreams[0]), Line("reports", upstreams[1])
        for line in (self.plans, self.reports):
            asyncio.run_coroutine_threadsafe(self._listen(line, "127.0.0.1"), loop).result(5)

    def endpoints(self, host: str = "127.0.0.1") -> str:
        """Return what ``gang-agent --controller`` wants."""
        return f"tcp://{host}:{self.plans.port},tcp://{host}:{self.reports.port}"

    def calm(self) -> None:
        """End all weather."""
        self.weather = Weather()

    def reset(self) -> None:
        """Close every connection; the peers make new ones."""

        def close() -> None:
            for line in (self.plans, self.reports):
                for writer in line.writers:
                    writer.close()

        self._loop.call_soon_threadsafe(close)

    def lead(self, line: Line, upstream: int) -> None:
        """Lead a line to another port from now on."""
        line.upstream = upstream
        self.reset()

    def also_listen(self, host: str) -> None:
        """Listen on another address of this host too, with the same ports."""
        for line in (self.plans, self.reports):
            asyncio.run_coroutine_threadsafe(self._listen(line, host), self._loop).result(5)

    def forget(self, host: str) -> None:
        """Listen on an address no more."""
        for line in (self.plans, self.reports):
            server = line.servers.pop(host, None)
            if server is not None:
                self._loop.call_soon_threadsafe(server.close)

    def close(self) -> None:
        """Close everything."""
        for host in list(self.plans.servers):
            self.forget(host)
        self.reset()

    async def _listen(self, line: Line, host: str) -> None:
        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(line, reader, writer)
            writer.close()
            line.writers.discard(writer)

        server = line.servers[host] = await asyncio.start_server(take, host, line.port)
        line.port = server.sockets[0].getsockname()[1]

    async def _serve(self, line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while self.weather.cut:
            await asyncio.sleep(_POLL_S)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", line.upstream)
        line.writers |= {writer, up_writer}
        try:
            pumps = [
                asyncio.ensure_future(self._pump(up_reader, writer, down=True)),
                asyncio.ensure_future(self._pump(reader, up_writer, down=False)),
            ]
            _, others = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in others:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            up_writer.close()
            line.writers.discard(up_writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, down: bool) -> None:
        left = _GREETING_BYTES  # sent in parts: each side waits for the other's version
        while left:
            part = await reader.read(left)
            if not part:
                return
            left -= len(part)
            writer.write(part)
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(10_000)
        sender = asyncio.ensure_future(self._send(queue, writer))
        passed: collections.deque[bytes] = collections.deque(maxlen=100)
        kept: bytes | None = None
        try:
            while not sender.done():
                frame = await _read_frame(reader)
                while self.weather.cut:
                    await asyncio.sleep(_POLL_S)
                due_s = self._loop.time() + self._delay_s(down)
                if _TRAFFIC not in frame[:17]:
                    await queue.put((due_s, frame))
                    continue
                for each in self._fall(frame, passed):
                    if kept is None and self._hits(self.weather.swap):
                        kept = each
                        self.counts.swapped += 1
                        continue
                    await queue.put((due_s, each))
                    if kept is not None:
                        await queue.put((due_s, kept))
                        kept = None
        finally:
            sender.cancel()

    def _fall(self, frame: bytes, passed: collections.deque[bytes]) -> list[bytes]:
        """Apply loss, damage and repetition to a frame; returns what is sent instead."""
        passed.append(frame)
        self.counts.passed += 1
        if self._hits(self.weather.loss):
            self.counts.lost += 1
            return []
        frames = [frame]
        if self._hits(self.weather.corrupt):
            self.counts.corrupted += 1
            damaged = bytearray(frame)
            damaged[self._dice.randrange(17, len(frame))] ^= 1 << self._dice.randrange(8)
            frames = [bytes(damaged)]
        if self._hits(self.weather.repeat):
            self.counts.repeated += 1
            frames.append(self._dice.choice(passed))
        return frames

    def _delay_s(self, down: bool) -> float:
        delay_s = self._dice.uniform(*self.weather.delay_s) if self.weather.delay_s[1] else 0.0
        if down and self.weather.drift:
            delay_s += self.weather.drift * max(0.0, self._loop.time() - self.weather.drift_from_s)
        return delay_s

    def _hits(self, chance: float) -> bool:
        return chance > 0 and self._dice.random() < chance

    async def _send(self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due_s, frame = await queue.get()
            wait_s = due_s - self._loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            writer.write(frame)
            await writer.drain()


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    flags = await reader.readexactly(1)
    size = await reader.readexactly(8 if flags[0] & 2 else 1)
    length = int.from_bytes(size, "big")
    if length > _LONGEST_FRAME:
        raise OSError("no ZMTP frame")
    return flags + size + await reader.readexactly(length)


class ProxyThread:
    """The thread in which all proxies run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda _loop, _context: None)  # broken lines are the point
        self._thread = threading.Thread(target=self.loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def now_s(self) -> float:
        """Return the loop's clock."""
        return self.loop.time()

    def close(self) -> None:
        """End every connection and the thread."""

        def cancel() -> None:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.call_later(0.1, self.loop.stop)

        self.loop.call_soon_threadsafe(cancel)
        self._thread.join(5)
        self.loop.close()
