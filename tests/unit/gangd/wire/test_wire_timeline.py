from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangd.wire import messages as wire
from gangd.wire.slice_schedule import SliceSchedule
from gangd.wire.wire_frames import decode_down, decode_up, encode, encode_down

MS = 1_000_000
QUANTUM = 250 * MS
LEASE = 2_000 * MS
BOUNDS = wire.Bounds(5_000 * MS, 0)
FIRST = wire.ControllerIdentity(b"1" * 16, 100)
LATER = wire.ControllerIdentity(b"0" * 16, 200)


def turns(track: int, first: int, *pairs: tuple[int, int], repeat: bool = True) -> wire.Track:
    return wire.Track(track, first, repeat, tuple(wire.SliceSets((run,), (held,)) for run, held in pairs))


def head(
    seq: int, epoch: int, *, sent_ns: int = 0, controller: wire.ControllerIdentity = FIRST
) -> dict[str, Any]:
    return {
        "controller": controller, "node": "n1", "epoch": epoch, "seq": seq, "sent_ns": sent_ns,
        "lease_ns": LEASE,
    }  # fmt: skip


def plan(seq: int = 1, epoch: int = 1, *tracks: wire.Track, first: int = 10, **more: Any) -> wire.SlicePlan:
    controller = more.pop("controller", FIRST)
    sent_ns = more.pop("sent_ns", 0)
    return wire.SlicePlan(
        **head(seq, epoch, controller=controller, sent_ns=sent_ns), first_slice=first,
        first_start_ns=first * QUANTUM, quantum_ns=QUANTUM, horizon=first + 2,
        bounds=more.pop("bounds", BOUNDS), tracks=tracks or (turns(7, first, (7, 8), (8, 7)),),
        **more,
    )  # fmt: skip


def change(seq: int, epoch: int, base: int, first: int, *tracks: wire.Track, **more: Any) -> wire.PlanChange:
    return wire.PlanChange(
        **head(seq, epoch), base_epoch=base, first_slice=first, horizon=first + 2, tracks=tracks, **more
    )


def beat(seq: int, epoch: int, horizon: int = 0, sent_ns: int = 0) -> wire.Beat:
    return wire.Beat(**head(seq, epoch, sent_ns=sent_ns), horizon=horizon)


@pytest.fixture
def timeline() -> SliceSchedule:
    """Return a timeline that has taken the plan in."""
    timeline = SliceSchedule("n1")
    timeline.accept(plan(), 0)
    return timeline


def test_a_repeating_track_goes_round(timeline: SliceSchedule) -> None:
    assert [sorted(timeline.held(n)) for n in range(9, 14)] == [[], [8], [7], [8], [7]]
    assert timeline.run(12) == {7}
    assert timeline.slice_at(10 * QUANTUM) == 10
    assert timeline.slice_at(12 * QUANTUM - 1) == 11
    assert timeline.slice_at(0) is None
    assert timeline.start_ns(13) == 13 * QUANTUM


def test_a_track_that_does_not_repeat_ends_with_everything_running() -> None:
    timeline = SliceSchedule("n1")
    timeline.accept(plan(1, 1, turns(7, 10, (7, 8), (8, 7), repeat=False)), 0)
    assert [sorted(timeline.held(n)) for n in range(10, 13)] == [[8], [7], []]


def test_a_revision_is_in_force_from_its_first_slice_only(timeline: SliceSchedule) -> None:
    timeline.accept(change(2, 2, 1, 13, turns(3, 13, (3, 4), (4, 3)), drop=(7,)), 0)
    assert [sorted(timeline.held(n)) for n in range(11, 16)] == [[7], [8], [4], [3], [4]]
    assert (timeline.epoch_of(12), timeline.epoch_of(13)) == (1, 2)


def test_a_difference_leaves_the_other_tracks_in_phase(timeline: SliceSchedule) -> None:
    timeline.accept(change(2, 2, 1, 13, turns(3, 13, (3, 4), (4, 3))), 0)
    assert timeline.held(13) == {7, 4}
    assert timeline.held(14) == {8, 3}


def test_final_slices_cannot_be_changed(timeline: SliceSchedule) -> None:
    with pytest.raises(wire.MalformedError, match="those below 12 are final"):
        timeline.accept(change(2, 2, 1, 11), 0)
    assert timeline.held(11) == {7}


def test_a_beat_makes_more_slices_final(timeline: SliceSchedule) -> None:
    timeline.accept(beat(2, 1, horizon=20), 0)
    with pytest.raises(wire.MalformedError, match="those below 20 are final"):
        timeline.accept(change(3, 2, 1, 19), 0)


def test_replayed_and_reordered_messages_are_refused() -> None:
    timeline = SliceSchedule("n1")
    timeline.accept(plan(seq=5), 0)
    for message in (plan(seq=5), plan(seq=4), beat(3, 1)):
        with pytest.raises(wire.ReplayedError):
            timeline.accept(message, 0)
    with pytest.raises(wire.ReplayedError, match="epoch 0 came after 1"):
        timeline.accept(beat(6, 0), 0)


def test_a_lost_plan_voids_the_schedule_until_it_is_sent_again(timeline: SliceSchedule) -> None:
    with pytest.raises(wire.MissedPlanError, match="epoch 2 never came, the newest is of 1"):
        timeline.accept(beat(3, 2), 0)
    assert timeline.held(10) == frozenset()
    assert timeline.epoch is None
    timeline.accept(plan(4, 2), 0)
    assert timeline.held(10) == {8}


def test_a_difference_against_an_unknown_plan_is_a_lost_plan() -> None:
    with pytest.raises(wire.MissedPlanError):
        SliceSchedule("n1").accept(change(2, 2, 1, 13), 0)


def test_the_lease_runs_from_the_sending() -> None:
    timeline = SliceSchedule("n1")
    assert timeline.lease_over(0)
    timeline.accept(plan(sent_ns=50 * MS), arrival_ns=100 * MS)
    assert not timeline.lease_over(50 * MS + LEASE - 1)
    assert timeline.lease_over(50 * MS + LEASE)
    timeline.accept(beat(2, 1, sent_ns=60 * MS), arrival_ns=60_000 * MS)
    assert timeline.lease_over(60_000 * MS)


def test_the_lease_honours_the_clock_offset_but_never_outlasts_the_arrival() -> None:
    timeline = SliceSchedule("n1")
    timeline.accept(plan(sent_ns=7_050 * MS), arrival_ns=100 * MS, offset_ns=7_000 * MS)
    assert timeline.lease_until_ns == 50 * MS + LEASE
    timeline = SliceSchedule("n1")
    timeline.accept(plan(sent_ns=9_999 * MS), arrival_ns=100 * MS, offset_ns=0)
    assert timeline.lease_until_ns == 100 * MS + LEASE


def test_exemptions_hold_at_once_and_the_latch_outlives_the_list(timeline: SliceSchedule) -> None:
    timeline.accept(change(2, 2, 1, 13, exempt=wire.ExemptJobs(never_freeze=(8,), opt_out=(7,))), 0)
    assert timeline.held(10) == timeline.held(11) == frozenset()
    timeline.accept(change(3, 3, 2, 15, exempt=wire.ExemptJobs()), 0)
    assert timeline.held(10) == frozenset()
    assert timeline.held(11) == {7}
    timeline.keep(frozenset({7, 8}))
    assert timeline.held(10) == frozenset()
    timeline.keep(frozenset({7}))
    assert timeline.held(10) == {8}


def test_what_is_listed_stays_exempt_though_it_has_no_process_yet() -> None:
    timeline = SliceSchedule("n1")
    timeline.accept(plan(exempt=wire.ExemptJobs(never_freeze=(8,))), 0)
    timeline.keep(frozenset({7}))
    assert timeline.held(10) == frozenset()
    timeline.accept(change(2, 2, 1, 13), 0)
    assert timeline.held(10) == frozenset()
    timeline.accept(change(3, 3, 2, 15, exempt=wire.ExemptJobs()), 0)
    assert timeline.held(10) == {8}


def test_a_thaw_of_all_voids_plan_and_lease(timeline: SliceSchedule) -> None:
    timeline.accept(wire.ThawNow(**head(2, 0) | {"node": None}, jobs=None, reason="the controller leaves"), 0)
    assert timeline.lease_over(1)
    assert timeline.held(10) == frozenset()


def test_an_announcement_changes_nothing_and_grants_no_lease(timeline: SliceSchedule) -> None:
    timeline.accept(wire.ThawNow(**head(2, 0) | {"node": None, "sent_ns": LEASE}, jobs=(), reason=""), LEASE)
    assert timeline.held(10) == {8}
    assert timeline.lease_over(LEASE)


def test_a_thaw_of_some_latches_them(timeline: SliceSchedule) -> None:
    timeline.accept(wire.ThawNow(**head(2, 1), jobs=(8,), reason="cancelled"), 0)
    assert timeline.held(10) == frozenset()
    assert timeline.held(11) == {7}


def test_a_later_controller_takes_over_and_the_earlier_one_is_refused() -> None:
    timeline = SliceSchedule("n1")
    timeline.accept(plan(seq=900, epoch=50, exempt=wire.ExemptJobs(never_freeze=(8,))), 0)
    timeline.accept(plan(1, 1, turns(7, 0, (7, 8), (8, 9)), first=0, controller=LATER), 0)
    assert timeline.controller == LATER
    assert timeline.held(0) == frozenset()
    assert timeline.held(1) == {9}
    with pytest.raises(wire.ForeignControllerError):
        timeline.accept(plan(seq=901, epoch=51), 0)


def test_a_later_controller_voids_the_old_plan_even_if_its_own_was_lost(timeline: SliceSchedule) -> None:
    lost = wire.Beat(**head(3, 2, controller=LATER), horizon=0)
    with pytest.raises(wire.MissedPlanError):
        timeline.accept(lost, 0)
    assert timeline.held(10) == frozenset()
    assert timeline.lease_over(1)


def test_a_controller_whose_clock_was_set_back_is_followed_once_the_lease_is_over() -> None:
    timeline = SliceSchedule("n1")
    timeline.accept(plan(controller=LATER), 0)
    with pytest.raises(wire.ForeignControllerError):
        timeline.accept(plan(), LEASE - 1)
    timeline.accept(plan(sent_ns=LEASE), LEASE)
    assert timeline.controller == FIRST
    assert timeline.held(10) == {8}


def test_a_controller_that_was_shut_out_by_a_wrong_number_is_let_in_by_its_welcome() -> None:
    timeline = SliceSchedule("n1")
    timeline.accept(plan(seq=50_000, epoch=9_000), arrival_ns=0)
    timeline.greet(FIRST, now_ns=LEASE - 1)
    with pytest.raises(wire.ReplayedError):
        timeline.accept(plan(seq=2, epoch=1, sent_ns=LEASE), arrival_ns=LEASE)
    timeline.greet(FIRST, now_ns=LEASE)
    timeline.accept(plan(seq=2, epoch=1, sent_ns=LEASE), arrival_ns=LEASE)
    assert timeline.epoch == 1
    assert not timeline.lease_over(2 * LEASE - 1)


def test_passed_plans_are_dropped(timeline: SliceSchedule) -> None:
    timeline.accept(change(2, 2, 1, 13), 0)
    timeline.prune(12)
    assert timeline.first_slice() == 10
    timeline.prune(13)
    assert (timeline.first_slice(), timeline.slice_at(13 * QUANTUM)) == (13, 13)


def test_messages_for_others_are_refused() -> None:
    frames = encode_down(plan())
    with pytest.raises(wire.WrongNodeError):
        decode_down(frames, "n10")
    with pytest.raises(wire.WrongNodeError):
        decode_down([b"*/", frames[1]], "n1")
    with pytest.raises(wire.MalformedError):
        decode_down(frames[1:], "n1")
    with pytest.raises(wire.WrongNodeError):
        decode_up(encode(wire.Ping(node="n1", agent_ns=0)), "n2")


def test_another_protocol_version_is_distinguished_from_rubbish() -> None:
    raw = msgspec.msgpack.decode(encode(wire.Ping(node="n1", agent_ns=0)))
    raw["version"] = wire.VERSION - 2
    with pytest.raises(wire.VersionError, match="upgrade the older one"):
        decode_up(msgspec.msgpack.encode(raw), "n1")
    raw["version"] = wire.VERSION
    raw["agent_ns"] = "now"
    with pytest.raises(wire.MalformedError, match="agent_ns"):
        decode_up(msgspec.msgpack.encode(raw), "n1")


@pytest.mark.parametrize("quantum", [19_999_999, 5_000_000_001])
def test_times_out_of_bounds_are_refused(quantum: int) -> None:
    frames = encode_down(plan())
    raw = msgspec.msgpack.decode(frames[1])
    raw["quantum_ns"] = quantum
    with pytest.raises(wire.MalformedError):
        decode_down([frames[0], msgspec.msgpack.encode(raw)], "n1")


def test_the_bounds_of_the_newest_plan_hold() -> None:
    timeline = SliceSchedule("n1")
    assert timeline.bounds is None
    timeline.accept(plan(), 0)
    assert timeline.bounds == BOUNDS
    timeline.accept(change(2, 2, 1, 14), 0)
    assert timeline.bounds == BOUNDS
    other = wire.Bounds(2_000 * MS, 100 * MS)
    timeline.accept(plan(3, 3, first=20, bounds=other), 0)
    assert timeline.bounds == other


def test_a_plan_says_which_jobs_yield_and_that_one_freezes_counts_from_its_slice_on() -> None:
    timeline = SliceSchedule("n1")
    track = turns(7, 10, (7, 8), (8, 7))
    mixed = msgspec.structs.replace(track, holds=(wire.JobHold(8, "yield"), wire.JobHold(7, "freeze")))
    timeline.accept(plan(1, 1, mixed), 0)
    assert timeline.yielding(10) == {8}
    assert timeline.held(11) == {7}
    both = msgspec.structs.replace(track, holds=(wire.JobHold(8, "yield"), wire.JobHold(7, "yield")))
    timeline.accept(plan(2, 2, both, first=14), 0)
    assert timeline.yielding(13) == {7, 8}, "what yields soon may begin to: nothing is lost"
    timeline.accept(plan(3, 3, track, first=18), 0)
    assert timeline.yielding(17) == {7, 8}
    assert timeline.yielding(18) == frozenset()
    assert timeline.ahead(17) == {7, 8}
    assert SliceSchedule("n1").yielding(10) == frozenset()


def test_an_unknown_way_of_holding_is_refused() -> None:
    track = msgspec.structs.replace(turns(7, 10, (7, 8)), holds=(wire.JobHold(8, "yield"),))
    frames = encode_down(plan(1, 1, track))
    raw = msgspec.msgpack.decode(frames[1])
    assert raw["tracks"][0][4] == [[8, "yield"]]
    raw["tracks"][0][4][0][1] = "sleep"
    with pytest.raises(wire.MalformedError):
        decode_down([frames[0], msgspec.msgpack.encode(raw)], "n1")


@pytest.mark.parametrize("gangs", [1, 2, 3, 4, 5])
def test_a_job_that_opted_out_gets_as_much_next_to_owners_as_each_of_them(gangs: int) -> None:
    jobs = tuple(range(1, gangs + 1))
    rounds = [(job, *(other for other in jobs if other != job)) for job in jobs]
    track = wire.Track(
        7, 10, True, tuple(wire.SliceSets(run=(job,), held=tuple(held)) for job, *held in rounds)
    )
    timeline = SliceSchedule("n1")
    timeline.accept(plan(1, 1, track, exempt=wire.ExemptJobs(opt_out=(99, 98), suspended=(98,))), 0)
    shares = dict.fromkeys((*jobs, 99), 0.0)
    span = range(10, 10 + gangs * (gangs + 1) * 2)
    for number in span:
        (owner,) = timeline.run(number)
        co_located = 99 not in timeline.held(number, frozenset({99}))
        assert timeline.held(number, frozenset({99, 98})) - {99} == set(jobs) - {owner}
        shares[owner] += 0.5 if co_located else 1.0
        shares[99] += 0.5 if co_located else 0.0
        assert 99 not in timeline.held(number), "it cannot yield"
    assert all(share / len(span) == pytest.approx(1 / (gangs + 1)) for share in shares.values())


def test_cores_of_jobs_are_known_while_they_are_here_or_planned() -> None:
    timeline = SliceSchedule("n1")
    timeline.accept(plan(cores=(wire.JobCores(7, 2), wire.JobCores(8, 1), wire.JobCores(5, 3))), 0)
    timeline.accept(change(2, 2, 1, 13, turns(7, 13, (7, 8), (8, 7)), cores=(wire.JobCores(7, 4),)), 0)
    assert timeline.cores == {7: 4, 8: 1, 5: 3}
    timeline.keep(frozenset({5}))
    assert timeline.cores == {7: 4, 8: 1, 5: 3}
    timeline.keep(frozenset({8}))
    assert timeline.cores == {7: 4, 8: 1}
    timeline.accept(plan(3, 3, turns(3, 20, (3, 8), (8, 3)), first=20), 0)  # of a controller of version 3
    timeline.prune(20)
    timeline.keep(frozenset({8}))
    assert timeline.cores == {8: 1}
