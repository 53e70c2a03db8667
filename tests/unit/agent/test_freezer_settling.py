from __future__ import annotations

from gangd.freezer.holder import StepState
from gangd.freezer.settling import Next, Patience, Settling

PATIENCE = Patience(patience_ns=100, retries=2)


def test_frozen_or_gone_is_done() -> None:
    start = Settling(0, 0)
    assert start.on_state(StepState.FROZEN, 1, PATIENCE) == (start, Next.DONE)
    assert start.on_state(StepState.GONE, 500, PATIENCE) == (start, Next.DONE)


def test_stuck_freeze_is_retried_then_given_up() -> None:
    settling, said = Settling(0, 0), []
    for now in range(0, 500, 50):
        settling, what = settling.on_state(StepState.FREEZING, now, PATIENCE)
        said.append(what)
    wait, retry = Next.WAIT, Next.RETRY
    assert said == [wait, wait, retry, wait, retry, wait, Next.GIVE_UP, *[Next.GIVE_UP] * 3]
    assert settling.began_ns == 0


def test_looks_soon_at_first_and_then_rarely() -> None:
    settling = Settling(0, 0)
    assert settling.look_ns(0) == 16_000_000
    assert settling.look_ns(20_000_000) == 40_000_000
    assert settling.look_ns(80_000_000) == 130_000_000
