"""Telling the service manager how a daemon is (``sd_notify(3)``): ready, alive, leaving, and what it does.

Without a service manager that asks (``NOTIFY_SOCKET``) every call does nothing. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

_LONGEST = 200


class Notifier:
    """The line to the service manager.

    Parameters
    ----------
    environment
        Where ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` are looked up.

    Attributes
    ----------
    every_ns
        How often ``alive`` is to be called at least, half of what systemd waits for; None: it does not wait.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        found = os.environ if environment is None else environment
        self._socket = _connected(found.get("NOTIFY_SOCKET", ""))
        self.every_ns = _every_ns(found) if self._socket is not None else None
        self._alive_ns: int | None = None
        self._status = ""

    def ready(self) -> None:
        """Tell that the daemon serves."""
        self._send("READY=1")

    def leaving(self) -> None:
        """Tell that it ends, in order."""
        self._send("STOPPING=1")

    def reloading(self, now_ns: int) -> None:
        """Tell that settings are read again, at an instant of CLOCK_MONOTONIC, until ``ready`` is said."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={now_ns // 1000}")

    def status(self, text: str) -> None:
        """Send a status line for ``systemctl status``, unless it equals the last one."""
        line = text.replace("\n", " ")[:_LONGEST]
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def alive(self, now_ns: int) -> None:
        """Tell that the loop turns, as often as systemd wants to hear it and no oftener."""
        if self.every_ns is None:
            return
        if self._alive_ns is not None and now_ns < self._alive_ns + self.every_ns // 2:
            return
        self._alive_ns = now_ns
        self._send("WATCHDOG=1")

    def close(self) -> None:
        """Close the line."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # a manager that does not listen must not end its daemon
                self._socket.send(text.encode())


def _connected(address: str) -> socket.socket | None:
    """Return a socket to a path, or to an abstract name (``@...``); None where there is none."""
    if address[:1] not in {"/", "@"}:
        return None
    line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        line.connect("\0" + address[1:] if address.startswith("@") else address)
    except OSError:
        line.close()
        return None
    return line


def _every_ns(environment: Mapping[str, str]) -> int | None:
    """Return half of the watchdog's time; None where it is off, or meant for another process."""
    asked, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    if not asked.isdecimal() or pid != str(os.getpid()) or int(asked) == 0:
        return None
    return int(asked) * 1000 // 2
