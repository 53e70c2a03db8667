"""Messages to systemd: what is sent, how often, and that nothing goes wrong where systemd does not listen."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation.notify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listening:
        listening.bind(str(tmp_path / "notify"))
        yield listening


def heard(manager: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(manager.recv(4096).decode())
        except BlockingIOError:
            return found


def test_it_reports_what_happens_once(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    notifier.ready()
    notifier.status("2 nodes\n3 jobs")
    notifier.status("2 nodes\n3 jobs")
    notifier.reloading(5_000)
    notifier.alive(1)
    notifier.leaving()
    notifier.close()
    notifier.ready()
    assert heard(manager) == [
        "READY=1",
        "STATUS=2 nodes 3 jobs",
        "RELOADING=1\nMONOTONIC_USEC=5",
        "STOPPING=1",
    ]


def test_it_is_alive_as_often_as_it_is_wanted(manager: socket.socket) -> None:
    asked = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "4000000"}
    notifier = Notifier(asked | {"WATCHDOG_PID": str(os.getpid())})
    assert notifier.every_ns == 2_000_000_000
    for now_ns in range(0, 10_000_000_000, 100_000_000):
        notifier.alive(now_ns)
    assert len(heard(manager)) == 10
    notifier.close()
    for other in ({"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "0"}):
        deaf = Notifier(asked | other)
        deaf.alive(0)
        assert deaf.every_ns is None
        deaf.close()
    assert heard(manager) == []


def test_an_abstract_socket_is_found() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listening:
        listening.bind(f"\0osub-test-{os.getpid()}")
        notifier = Notifier({"NOTIFY_SOCKET": f"@osub-test-{os.getpid()}"})
        notifier.ready()
        assert listening.recv(100) == b"READY=1"
        notifier.close()


def test_no_listener_is_no_error(tmp_path: Path) -> None:
    for address in ("", "relative", str(tmp_path / "nothing"), "@" + "x" * 500, "/" + "x" * 500):
        notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"})
        assert notifier.every_ns is None
        notifier.ready()
        notifier.alive(1)
        notifier.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    notifier.ready()
    notifier.close()
