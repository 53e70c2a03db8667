"""Where metrics are handed out, as a configuration says it, and the token that guards them."""

from __future__ import annotations

import argparse
import ipaddress
import re
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from foundation.errors import InputError, TrustError, UsageError
from foundation.trust import read_trusted

LOOPBACK = "127.0.0.1"
LEAST_TOKEN, MOST_TOKEN = 16, 1_024
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")  # RFC 6750, section 2.1
_PRIVATE = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on."""

    host: str
    port: int

    @property
    def family(self) -> socket.AddressFamily:
        """IPv4 or IPv6."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def is_loopback(self) -> bool:
        """Whether only this host can reach it."""
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(text: str) -> ListenAddress:
    """Read ``PORT``, ``ADDRESS:PORT`` or ``[ADDRESS]:PORT``; a port alone is one of the loopback.

    Raises
    ------
    UsageError
        It is none of these.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or LOOPBACK
    try:
        ipaddress.ip_address(host)
        number = int(port) if port.isascii() and port.isdigit() else -1
    except ValueError:
        number = -1
    if not 0 <= number <= 65_535:
        raise UsageError(
            f"metrics {text!r}: expected PORT (of {LOOPBACK}), ADDRESS:PORT or [IPV6-ADDRESS]:PORT"
        )
    return ListenAddress(host, number)


def read_token(path: Path) -> str:
    """Read the token that a request for metrics must carry.

    Raises
    ------
    InputError
        The file cannot be read, or what is in it is no token.
    TrustError
        Others can read the file, or put it there.
    """
    try:
        mode = path.stat().st_mode
        token = read_trusted(path, MOST_TOKEN + 2).decode("ascii", "replace").strip()
    except OSError as error:
        raise InputError(f"cannot read the token for metrics {path}: {error.strerror}") from error
    if mode & _PRIVATE:
        raise TrustError(f"others may read the token for metrics {path}: chmod 600 {path}")
    if not LEAST_TOKEN <= len(token) <= MOST_TOKEN or not _TOKEN.fullmatch(token):
        raise InputError(
            f"{path}: a token has {LEAST_TOKEN} to {MOST_TOKEN} letters and digits: "
            f"head -c 32 /dev/urandom | base64 >{path}"
        )
    return token


def add_metrics_options(parser: argparse.ArgumentParser) -> None:
    """Give a daemon's command the options that say where, and for whom."""
    parser.add_argument(
        "--metrics",
        metavar="ADDR",
        help="hand out metrics and health at PORT of the loopback, or ADDRESS:PORT",
    )
    parser.add_argument(
        "--metrics-token", type=Path, metavar="FILE", help="file with the token that asks for metrics"
    )
