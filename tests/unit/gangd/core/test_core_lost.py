from __future__ import annotations

from gangd.core.gang import LostTime

MS = 1_000_000
SECOND = 1_000 * MS


def test_no_more_is_lost_than_was_planned_to_be() -> None:
    lost = LostTime()
    for number in range(10):
        lost.tell(number, 250 * MS, 250 * MS, again=True)
    lost.plan(500 * MS)
    assert (lost.take(0), lost.take(0)) == (500 * MS, 0)
    lost.plan(5_000 * MS)
    assert lost.take(0) == 2_000 * MS, "what was reported is not forgotten"


def test_no_more_is_lost_than_was_reported() -> None:
    lost = LostTime()
    lost.plan(SECOND)
    assert lost.take(0) == 0
    lost.tell(1, 100 * MS, 250 * MS, again=False)
    assert lost.take(0) == 100 * MS


def test_of_several_nodes_the_one_that_lost_most_of_a_slice_counts() -> None:
    lost = LostTime()
    lost.plan(SECOND)
    for lost_ms in (100, 240, 0, 170, 900):
        lost.tell(7, lost_ms * MS, 250 * MS, again=True)
    assert lost.reported_ns == 250 * MS


def test_a_slice_too_old_to_be_remembered_counts_for_nothing() -> None:
    lost = LostTime()
    for number in range(1_000):
        lost.tell(number, MS, MS, again=True)
    lost.tell(0, MS, MS, again=True)
    assert lost.reported_ns == 1_000 * MS
    assert len(lost._slices) < 300


def test_the_share_is_that_of_late() -> None:
    lost = LostTime(0)
    assert lost.share(0) == 0.0
    for second in range(1, 61):
        lost.tell(second, SECOND // 2, SECOND, again=False)
        lost.plan(SECOND)
        lost.take(second * SECOND)
    assert 0.45 <= lost.share(60 * SECOND) <= 0.55
    for second in range(61, 90):
        lost.plan(SECOND)
        lost.take(second * SECOND)
    assert lost.share(90 * SECOND) == 0.0
