from __future__ import annotations

import numpy as np

from gangd.controller.fanout import Fanout
from gangd.core import CoreMap
from gangd.core.scheduler_events import Exempt, ExemptKind, HoldMode, Publish, TrackMember, TrackPlan
from gangd.core.slice_timing import Timebase
from gangd.wire import Bounds, ControllerIdentity, JobCores, JobHold, PlanChange, SlicePlan
from gangd.wire import ExemptJobs as Listed

CONTROLLER = ControllerIdentity(b"c" * 16, 1)
BOUNDS = Bounds(5_000_000_000, 200_000_000)


def test_the_end_of_a_job_that_was_killed_is_reported_with_the_next_change() -> None:
    cores = CoreMap({"n1": 1})
    fanout = Fanout(CONTROLLER, cores, Timebase(0, 250_000_000), 2_000_000_000, BOUNDS)
    fanout.resend("n1")
    fanout.messages(0, 1)
    killed = TrackMember(7, ((7, cores.pack({"n1": (0,)})),))
    fanout.exempt(Exempt(killed, ExemptKind.TERMINATING, on=True))
    [message] = fanout.messages(0, 1)
    assert isinstance(message, PlanChange)
    assert message.exempt == Listed(never_freeze=(7,))
    fanout.exempt(Exempt(killed, ExemptKind.TERMINATING, on=False))
    assert fanout.messages(0, 1) == []  # worth no message of its own
    track = TrackPlan(7, 5, True, (killed,), np.ones((1, 1), dtype=np.bool_), [0], 0)  # it runs anew
    fanout.publish(Publish(1, 5, (track,), (), rebase=False))
    [message] = fanout.messages(0, 5)
    assert isinstance(message, PlanChange)
    assert message.exempt == Listed()


def test_other_bounds_are_sent_to_every_node_and_the_same_to_none() -> None:
    fanout = Fanout(CONTROLLER, CoreMap({"n1": 1, "n2": 1}), Timebase(0, 250_000_000), 2_000_000_000, BOUNDS)
    for node in ("n1", "n2"):
        fanout.resend(node)
    assert [one.bounds for one in fanout.messages(0, 1) if isinstance(one, SlicePlan)] == [BOUNDS] * 2
    fanout.set_terms(3_000_000_000, BOUNDS)
    assert fanout.messages(0, 1) == []
    shorter = Bounds(2_000_000_000, 0)
    fanout.set_terms(3_000_000_000, shorter)
    told = fanout.messages(0, 1)
    assert [one.bounds for one in told if isinstance(one, SlicePlan)] == [shorter] * 2
    assert {one.lease_ns for one in told} == {3_000_000_000}


def test_nodes_are_informed_which_of_their_jobs_yield() -> None:
    cores = CoreMap({"n1": 1, "n2": 1})
    fanout = Fanout(CONTROLLER, cores, Timebase(0, 250_000_000), 2_000_000_000, BOUNDS)
    wide = TrackMember(7, ((7, cores.pack({"n1": (0,), "n2": (0,)})),), HoldMode.YIELD)
    frozen = TrackMember(8, ((8, cores.pack({"n1": (0,)})),))
    run = np.array([[True, False], [False, True]])
    fanout.publish(Publish(1, 5, (TrackPlan(7, 5, True, (wide, frozen), run, [0, 1], 0),), ()))
    told = {message.node: message for message in fanout.messages(0, 5)}
    assert all(isinstance(message, SlicePlan) for message in told.values())
    holds = {node: [track.holds for track in getattr(one, "tracks", ())] for node, one in told.items()}
    assert holds == {"n1": [(JobHold(7, "yield"),)], "n2": [(JobHold(7, "yield"),)]}


def test_nodes_are_informed_how_many_cores_their_jobs_have_there() -> None:
    cores = CoreMap({"n1": 4, "n2": 2})
    cores.add_seats("n1", 1)
    fanout = Fanout(CONTROLLER, cores, Timebase(0, 250_000_000), 2_000_000_000, BOUNDS)
    wide = TrackMember(7, ((7, cores.pack({"n1": (0, 1, 3), "n2": (0,)}, {"n1": (0,)})),))
    narrow = TrackMember(8, ((8, cores.pack({"n1": (0,)})),))
    free = TrackMember(9, ((9, cores.pack({"n2": (0, 1)})),))
    run = np.array([[True, False], [False, True]])
    fanout.publish(Publish(1, 5, (TrackPlan(7, 5, True, (wide, narrow), run, [0, 1], 0),), ()))
    told = {message.node: message for message in fanout.messages(0, 5)}
    assert {node: set(getattr(one, "cores", ())) for node, one in told.items()} == {
        "n1": {JobCores(7, 3), JobCores(8, 1)},
        "n2": {JobCores(7, 1)},
    }
    fanout.exempt(Exempt(free, ExemptKind.FREE, on=True))
    [message] = fanout.messages(0, 6)
    assert isinstance(message, PlanChange)
    assert message.cores == (JobCores(9, 2),)
    fanout.publish(Publish(2, 8, (), (7,)))
    fanout.messages(0, 8)
    fanout.resend("n2")
    [whole] = fanout.messages(0, 9)
    assert isinstance(whole, SlicePlan)
    assert whole.cores == (JobCores(9, 2),)
