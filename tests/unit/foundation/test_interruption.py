"""A signal ends a command in time, whatever its main thread does."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from foundation import interruption
from foundation.interruption import MOST_EVENTS, ShortCalls

PROGRAM = """
import hashlib, queue, signal, sys, time
from foundation.interruption import interrupted_by_signals, signals_deferred, status

def ready():
    print("ready", flush=True)

def computes():
    ready()
    while True:
        pass

def waits_on_after_signals():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.siginterrupt(number, False)
    ready()
    queue.SimpleQueue().get()

def is_in_a_library():
    ready()
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 1 << 30)

def cleans_up():
    try:
        computes()
    finally:
        time.sleep({cleanup_s})
        print("clean")

def takes_down():
    with signals_deferred():
        ready()
        sys.stdin.readline()
        print("taken down")
    print("goes on")

code = 0
with interrupted_by_signals():
    try:
        {what}()
    except KeyboardInterrupt:
        code = status()
sys.exit(code)
"""


@pytest.fixture(autouse=True)
def signals_reach_children() -> Iterator[None]:
    """A suite that runs in the background may ignore SIGINT, and its children with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ended(what: str, *numbers: signal.Signals, cleanup_s: float = 0) -> tuple[int, str]:
    command = [sys.executable, "-c", PROGRAM.format(what=what, cleanup_s=cleanup_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in numbers:
            process.send_signal(number)
            time.sleep(2 * interruption.GRACE_S if number != numbers[-1] else 0)
        try:
            said, _ = process.communicate("\n", timeout=60)
        finally:
            process.kill()
    return process.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("computes", signal.SIGTERM),
        ("waits_on_after_signals", signal.SIGINT),
        ("is_in_a_library", signal.SIGINT),
    ],
)
def test_it_ends_with_the_status_of_its_signal(what: str, number: signal.Signals) -> None:
    assert ended(what, number)[0] == 128 + number


@pytest.mark.slow
def test_what_cleans_up_is_waited_for() -> None:
    assert ended("cleans_up", signal.SIGTERM, cleanup_s=2 * interruption.GRACE_S) == (143, "clean\n")


@pytest.mark.slow
def test_what_must_reach_its_end_does_whatever_comes() -> None:
    assert ended("takes_down", signal.SIGINT, signal.SIGTERM) == (130, "taken down\n")
    assert ended("takes_down") == (0, "taken down\ngoes on\n")


def test_a_compiled_loop_comes_back_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events cost a microsecond each, then a millisecond, then a microsecond again."""
    now_s, cost_s, calls = 0.0, 1e-6, []

    def loop(word: str, events: int) -> str:
        nonlocal now_s
        now_s += events * cost_s
        calls.append(events)
        return word

    monkeypatch.setattr("foundation.interruption.time.perf_counter", lambda: now_s)
    short = ShortCalls(loop)
    for cost in (1e-6, 1e-3, 1e-6):
        cost_s = cost
        for _ in range(12):
            assert short("done") == "done"
    light, heavy, again = calls[11], calls[23], calls[35]
    assert light == again == MOST_EVENTS
    assert heavy * 1e-3 <= 2 * interruption.CALL_S
    assert sum(count > heavy for count in calls[12:24]) == 1
    single = ShortCalls(loop, 1)
    for _ in range(5):
        single("done")
    assert calls[-5:] == [1] * 5
