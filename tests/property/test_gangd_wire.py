"""Whatever bytes come, decoding ends in a valid message or a ``WireError``; what is sent comes back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangd.wire import messages as wire
from gangd.wire.messages import MAX_FRAME_BYTES, MAX_INSTANT_NS
from gangd.wire.slice_schedule import SliceSchedule
from gangd.wire.wire_frames import decode_down, decode_reply, decode_up, encode, encode_down, topic
from tests.fixtures.tier import examples

job_ids = st.integers(1, 2**32 - 1)
some_jobs = st.lists(job_ids, max_size=5).map(tuple)
small = st.integers(0, 1000)
node_names = st.from_regex(r"\A[A-Za-z0-9._-]{1,20}\Z")
slices = st.lists(st.builds(wire.SliceSets, some_jobs, some_jobs), min_size=1, max_size=4).map(tuple)
holds = st.lists(st.builds(wire.JobHold, job_ids, st.sampled_from(("freeze", "yield"))), max_size=3).map(
    tuple
)
tracks = st.lists(
    st.builds(wire.Track, job_ids, small, st.booleans(), slices, holds),
    max_size=3,
    unique_by=lambda t: t.track,
).map(tuple)
bounds = st.builds(
    wire.Bounds, st.integers(20_000_000, 60 * 10**9), st.integers(0, 60 * 10**9), st.booleans()
)
exempts = st.builds(wire.ExemptJobs, some_jobs, some_jobs, some_jobs)


def head(node: str | None) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "controller": st.builds(
            wire.ControllerIdentity, st.binary(min_size=16, max_size=16), st.integers(0, MAX_INSTANT_NS)
        ),
        "node": st.just(node),
        "epoch": small,
        "seq": small,
        "sent_ns": st.integers(0, 10**12),
        "lease_ns": st.just(2 * 10**9),
    }


def downs(node: str) -> st.SearchStrategy[Any]:
    plan = st.builds(
        wire.SlicePlan, **head(node), first_slice=small, first_start_ns=small,
        quantum_ns=st.integers(20_000_000, 5_000_000_000), horizon=small, bounds=bounds,
        tracks=tracks, exempt=exempts,
    )  # fmt: skip
    change = st.builds(
        wire.PlanChange, **head(node), base_epoch=small, first_slice=small, horizon=small,
        tracks=tracks, drop=some_jobs, exempt=st.none() | exempts,
    )  # fmt: skip
    beat = st.builds(wire.Beat, **head(node), horizon=small)
    thaw = st.builds(wire.ThawNow, **head(node), jobs=st.none() | some_jobs, reason=st.text(max_size=20))
    return st.one_of(plan, change, beat, thaw)


samples = st.lists(st.builds(wire.JobSample, job_ids, small, small, small, small), max_size=3).map(tuple)
reports = st.builds(
    wire.Report,
    node=st.just("n1"),
    incarnation=st.just(b"a" * 16),
    follows=st.none() | st.just(b"c" * 16),
    seq=small,
    offset_ns=st.integers(-(10**9), 10**9),
    rtt_us=small,
    slices=st.lists(
        st.builds(wire.SliceReport, small, small, small, st.integers(-1000, 1000), small, some_jobs, samples),
        max_size=3,
    ).map(tuple),
    ended=some_jobs,
)


@given(st.binary(max_size=300))
@example(b"")
@example(b"\xc1")
@example(b"\x91" * 2000)
def test_random_bytes_are_refused(body: bytes) -> None:
    for attempt in (
        lambda: decode_up(body, "n1"),
        lambda: decode_reply(body, "n1"),
        lambda: decode_down([topic("n1"), body], "n1"),
    ):
        with pytest.raises(wire.WireError):
            attempt()


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=8)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
fields_of_reports = st.sampled_from(
    [field.encode_name for field in msgspec.structs.fields(wire.Report)] + ["type"]
)


@examples(200)
@given(st.data())
def test_a_message_with_a_strange_field_is_valid_or_refused(data: st.DataObject) -> None:
    raw = msgspec.msgpack.decode(encode(data.draw(reports)))
    raw[data.draw(fields_of_reports | st.text(max_size=6))] = data.draw(json_like)
    try:
        message = decode_up(msgspec.msgpack.encode(raw), "n1")
    except wire.WireError:
        return
    assert decode_up(encode(message), "n1") == message


@examples(200)
@given(st.data())
def test_a_damaged_plan_is_valid_or_refused(data: st.DataObject) -> None:
    frames = encode_down(data.draw(downs("n1")))
    body = bytearray(frames[1])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    timeline = SliceSchedule("n1")
    try:
        timeline.accept(decode_down([frames[0], bytes(body)], "n1"), arrival_ns=0)
    except wire.WireError:
        return
    for number in (0, 1, 1000, 10**6):
        assert timeline.held(number) <= timeline.jobs(number)


@given(downs("n1"))
def test_what_is_published_comes_back(message: Any) -> None:
    assert decode_down(encode_down(message), "n1") == message


@given(reports)
def test_what_is_reported_comes_back(message: wire.Report) -> None:
    assert decode_up(encode(message), "n1") == message


@given(node_names, node_names)
def test_no_topic_is_the_beginning_of_anothers(one: str, other: str) -> None:
    assert one == other or not topic(other).startswith(topic(one))


def test_a_huge_frame_is_refused_before_it_is_read() -> None:
    with pytest.raises(wire.WireError, match="at most"):
        decode_up(b"\x00" * (MAX_FRAME_BYTES + 1), "n1")


@examples(200)
@given(st.lists(downs("n1"), max_size=8))
def test_no_order_of_messages_breaks_a_timeline(messages: list[Any]) -> None:
    timeline = SliceSchedule("n1")
    seen: set[tuple[wire.ControllerIdentity, int]] = set()
    for arrival, message in enumerate(messages):
        before = (timeline.epoch, timeline.controller)
        try:
            timeline.accept(message, arrival)
        except wire.WireError:
            continue
        assert (message.controller, message.seq) not in seen
        seen.add((message.controller, message.seq))
        if before[1] == timeline.controller and before[0] is not None and timeline.epoch is not None:
            assert timeline.epoch >= before[0]
        for number in range(0, 1010, 101):
            assert not timeline.held(number) & set(timeline.exempt.never_freeze)
