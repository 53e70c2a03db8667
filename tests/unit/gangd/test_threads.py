from __future__ import annotations

import queue
import threading

from gangd.daemon_process import Death, WatchedThread

DEADLINE_S = 10.0


def test_a_thread_that_dies_is_reported_and_begins_anew() -> None:
    deaths: queue.SimpleQueue[Death] = queue.SimpleQueue()
    lived = threading.Event()
    attempts = []

    def work() -> None:
        attempts.append(threading.current_thread().name)
        if len(attempts) == 1:
            raise KeyError("JobId")
        if len(attempts) == 2:
            raise SystemExit(3)
        lived.set()

    thread = WatchedThread("slurm", work, deaths.put)
    thread.start()
    assert lived.wait(DEADLINE_S)
    assert thread.stop(DEADLINE_S)
    first, second = deaths.get(timeout=1), deaths.get(timeout=1)
    assert (first.thread, first.count, second.count) == ("slurm", 1, 2)
    assert first.why.startswith("KeyError: 'JobId' (")
    assert "work:" in first.why
    assert second.why.startswith("SystemExit: 3")
    assert attempts == ["slurm"] * 3


def test_a_thread_whose_work_is_done_ends() -> None:
    deaths: queue.SimpleQueue[Death] = queue.SimpleQueue()
    thread = WatchedThread("short", lambda: None, deaths.put)
    thread.start()
    assert thread.stop(DEADLINE_S)
    assert deaths.empty()


def test_a_thread_that_dies_while_it_is_to_end_does_not_begin_anew() -> None:
    begun, end = threading.Semaphore(0), threading.Event()

    def work() -> None:
        begun.release()
        end.wait(DEADLINE_S)
        raise RuntimeError("torn down")

    thread = WatchedThread("late", work, lambda _: None)
    thread.start()
    assert begun.acquire(timeout=DEADLINE_S)
    end.set()
    assert thread.stop(DEADLINE_S)
    assert thread.deaths in (0, 1)
    assert not begun.acquire(blocking=False)
