"""What a monitoring system may ask, judged: pure, from the bytes that came to the bytes that go.

Only the request line and two headers are looked at; everything else that a client says is ignored. HTTP/1.1
(RFC 9112) with one answer a connection.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MOST_BYTES = 8_192
"""Bytes of a request's head; one that is longer is refused."""
END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """What was asked: method, path without its query, and the headers that matter."""

    method: str
    path: str
    accept: str = ""
    authorization: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer."""

    status: str
    kind: str
    body: bytes
    more: tuple[tuple[str, str], ...] = ()

    def encode(self, *, with_body: bool = True) -> bytes:
        """Return the bytes that go."""
        lines = [
            f"HTTP/1.1 {self.status}",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
            *(f"{name}: {value}" for name, value in self.more),
        ]
        return "\r\n".join(lines).encode("ascii") + END + (self.body if with_body else b"")


def text(status: str, body: str, *more: tuple[str, str]) -> Response:
    """Return an answer of a line."""
    return Response(status, "text/plain; charset=utf-8", f"{body}\n".encode(), more)


BAD = text("400 Bad Request", "not a request of HTTP")
TOO_LONG = text("431 Request Header Fields Too Large", f"more than {MOST_BYTES} bytes of headers")


def parse(head: bytes) -> MetricsRequest | None:
    """Read the head of a request, up to its empty line; None if it is none."""
    lines = head.split(b"\r\n")
    words = lines[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not words[1].startswith(b"/"):
        return None
    if not words[0].isalpha() or not words[1].isascii():
        return None
    found: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if colon and name.lower() in (b"accept", b"authorization"):
            found[name.lower().decode()] = value.strip().decode("latin-1")
    path = words[1].partition(b"?")[0].decode("ascii")
    return MetricsRequest(words[0].decode("ascii"), path, **found)


@dataclass(frozen=True, slots=True)
class Health:
    """Whether each check holds, and a sentence on it."""

    checks: Mapping[str, tuple[bool, str]]

    @property
    def is_well(self) -> bool:
        """Whether all hold."""
        return all(holds for holds, _ in self.checks.values())

    def figures(self) -> dict[tuple[str, ...], float]:
        """Return for each check 1 or 0, as a metric has it."""
        return {(check,): float(holds) for check, (holds, _) in self.checks.items()}

    def lines(self) -> str:
        """Return a line for each check."""
        return "\n".join(
            f"{'ok' if holds else 'NOT OK'} {name}: {detail}" for name, (holds, detail) in self.checks.items()
        )


def answer(
    request: MetricsRequest,
    token: str | None,
    health: Callable[[], Health],
    metrics: Callable[[str], tuple[str, bytes]],
) -> Response:
    """Answer a request.

    Parameters
    ----------
    request
        From ``parse``.
    token
        What ``Authorization: Bearer`` must say to see metrics, and why something is not well; None:
        everybody may.
    health
        Looks at how things are.
    metrics
        Renders the page for a value of ``Accept``.
    """
    if request.method not in ("GET", "HEAD"):
        return text("405 Method Not Allowed", "GET only", ("Allow", "GET, HEAD"))
    allowed = token is None or hmac.compare_digest(
        request.authorization.encode("latin-1"), f"Bearer {token}".encode()
    )
    if request.path == "/healthz":
        found = health()
        status = "200 OK" if found.is_well else "503 Service Unavailable"
        return text(status, found.lines() if allowed else ("ok" if found.is_well else "NOT OK"))
    if request.path == "/metrics":
        if not allowed:
            return text(
                "401 Unauthorized",
                "metrics are shown to those who send the token",
                ("WWW-Authenticate", 'Bearer realm="metrics"'),
            )
        kind, page = metrics(request.accept)
        return Response("200 OK", kind, page)
    return text("404 Not Found", "/metrics and /healthz are what there is")
