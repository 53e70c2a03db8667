from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangd.clock import KEEP, MAX_DRIFT_NS, MAX_TRUSTED_RTT_NS, SURE_PROBES, OffsetEstimate

MS = 1_000_000
SECOND = 1_000 * MS


@dataclass
class Host:
    """An agent's clock against a controller's: ``offset_ns`` apart and drifting, with delays either way."""

    offset_ns: int = 40 * SECOND
    drift_ppm: int = 0
    now_ns: int = 1_000 * SECOND
    estimate: OffsetEstimate = field(default_factory=OffsetEstimate)

    def controller_ns(self) -> int:
        return self.now_ns + self.true_offset()

    def true_offset(self) -> int:
        return self.offset_ns + (self.now_ns - 1_000 * SECOND) * self.drift_ppm // 1_000_000

    def probe(self, out_ns: int = MS // 10, back_ns: int = MS // 10, busy_ns: int = MS // 5) -> None:
        sent = self.now_ns
        self.now_ns += out_ns
        received = self.controller_ns()
        self.now_ns += busy_ns
        answered = self.controller_ns()
        self.now_ns += back_ns
        self.estimate = self.estimate.on_probe(sent, received, answered, self.now_ns)

    def rest(self, ns: int = SECOND) -> None:
        self.now_ns += ns

    def error_ns(self) -> int:
        estimate = self.estimate.at(self.now_ns)
        assert estimate is not None
        return abs(estimate.offset_ns - self.true_offset())


def joined(drift_ppm: int = 0) -> Host:
    host = Host(drift_ppm=drift_ppm)
    for _ in range(SURE_PROBES):
        host.probe()
    assert host.estimate.trusted(host.now_ns)
    return host


def test_nothing_is_known_before_the_first_probe_nor_trusted_before_several() -> None:
    host = Host()
    assert host.estimate.at(0) is None
    for _ in range(SURE_PROBES - 1):
        host.probe()
        assert not host.estimate.trusted(host.now_ns)
    host.probe()
    assert host.estimate.trusted(host.now_ns)


def test_shortest_round_trip_wins() -> None:
    host = joined()
    host.probe(out_ns=20 * MS, back_ns=0)
    assert host.error_ns() < MS // 1000


def test_asymmetry_stays_within_the_bound() -> None:
    host = Host()
    for _ in range(SURE_PROBES):
        host.probe(out_ns=3 * MS, back_ns=0)
    estimate = host.estimate.at(host.now_ns)
    assert estimate is not None
    assert host.error_ns() <= estimate.bound_ns
    assert estimate.rtt_ns == 3 * MS


def test_follows_drift() -> None:
    host = joined(drift_ppm=200)
    for _ in range(600):
        host.rest()
        host.probe()
        assert host.estimate.trusted(host.now_ns)
        assert host.error_ns() < MS
    assert (host.estimate.jumps, len(host.estimate.probes)) == (0, KEEP)


def test_long_silence_ends_trust() -> None:
    host = joined()
    host.rest(60 * SECOND)
    assert not host.estimate.trusted(host.now_ns)
    host.probe()
    assert host.estimate.trusted(host.now_ns)


def test_jump_ends_trust_at_once_and_is_taken_over_when_it_is_sure() -> None:
    host = joined()
    host.offset_ns += 5 * SECOND
    host.probe()
    assert not host.estimate.trusted(host.now_ns)
    for _ in range(SURE_PROBES - 1):
        host.probe()
    assert host.estimate.trusted(host.now_ns)
    assert (host.estimate.jumps, host.error_ns()) == (1, 0)


def test_long_way_with_little_jitter_is_trusted_and_its_error_is_of_the_jitter() -> None:
    """Ten milliseconds each way: a bound of ten says nothing of what the estimate is really off by."""
    host = Host(drift_ppm=200)
    draw = random.Random(1)
    errors = []
    for _ in range(600):
        host.probe(*(int(draw.uniform(9.7, 10.3) * MS) for _ in range(2)))
        host.rest()
        errors.append(host.error_ns())
        assert host.estimate.trusted(host.now_ns) is (len(errors) >= SURE_PROBES)
    assert max(errors[SURE_PROBES:]) < MS
    assert host.estimate.jumps == 0


@pytest.mark.parametrize("drift_ppm", [0, 20, 200])
@pytest.mark.parametrize("wait_ms", [0.0, 0.5, 2.0])
def test_probes_together_are_nearer_than_the_best_of_them(wait_ms: float, drift_ppm: int) -> None:
    """Four hosts with a jitter of 0.3 ms each way, whose probes also wait for a CPU: how far apart are they?

    That is what nodes switch apart by.
    """
    draw = random.Random(2)
    hosts = [Host(drift_ppm=drift_ppm) for _ in range(4)]
    together, alone = list[int](), list[int]()
    for turn in range(300):
        errors: list[tuple[int, int]] = []
        for host in hosts:
            host.probe(
                *(int((draw.uniform(0.7, 1.3) + draw.expovariate(1) * wait_ms) * MS) for _ in range(2))
            )
            host.rest(draw.randrange(SECOND))
            estimate, best = host.estimate.at(host.now_ns), host.estimate.best
            assert estimate is not None
            assert best is not None
            errors.append((estimate.offset_ns - host.true_offset(), best.offset_ns - host.true_offset()))
        if turn > KEEP:
            for kind, ones in zip((together, alone), zip(*errors, strict=True), strict=True):
                kind.append(max(ones) - min(ones))
    found, of_best = (float(np.quantile(ones, 0.99)) for ones in (together, alone))
    assert found < 0.6 * of_best
    assert found < 1.2 * MS


def test_clock_that_begins_to_drift_is_followed() -> None:
    host = joined()
    for _ in range(KEEP):
        host.rest()
        host.probe()
    host.offset_ns, host.drift_ppm = (
        host.true_offset() - 500 * (host.now_ns - 1_000 * SECOND) // 1_000_000,
        500,
    )
    errors = []
    for _ in range(KEEP):
        host.rest()
        errors.append(host.error_ns())
        host.probe()
        assert host.estimate.trusted(host.now_ns)
    assert max(errors) < 2 * MS
    assert errors[-1] < MS // 10


def test_longer_way_out_than_back_moves_the_estimate_by_half_of_it_unseen() -> None:
    host = Host()
    for _ in range(KEEP):
        host.probe(out_ns=14 * MS, back_ns=6 * MS)
        host.rest()
    assert host.error_ns() == 4 * MS
    assert host.estimate.trusted(host.now_ns)


def test_way_of_more_than_twenty_milliseconds_is_not_trusted() -> None:
    host = Host()
    for _ in range(KEEP):
        host.probe(out_ns=21 * MS, back_ns=20 * MS)
    assert not host.estimate.trusted(host.now_ns)


def test_one_lie_is_forgotten() -> None:
    host = joined()
    host.estimate = host.estimate.on_probe(host.now_ns, 0, 0, host.now_ns + MS)
    assert not host.estimate.trusted(host.now_ns)
    host.probe()
    assert host.estimate.trusted(host.now_ns)
    assert host.estimate.jumps == 0


def test_impossible_round_trips_are_refused() -> None:
    estimate = (
        OffsetEstimate().on_probe(100, 50, 40, 200).on_probe(100, 0, 500, 200).on_probe(0, 0, 0, 10**12)
    )
    assert (estimate.probes, estimate.refused) == ((), 3)


@given(
    st.lists(
        st.tuples(st.integers(0, 25 * MS), st.integers(0, 25 * MS), st.integers(0, 2 * SECOND)), min_size=3
    ),
    st.integers(-(10**15), 10**15),
    st.integers(-400, 400),
)
def test_true_offset_is_always_within_the_bound(
    trips: list[tuple[int, int, int]], offset_ns: int, drift_ppm: int
) -> None:
    host = Host(offset_ns=offset_ns, drift_ppm=drift_ppm)
    for out_ns, back_ns, rest_ns in trips:
        host.probe(out_ns, back_ns)
        host.rest(rest_ns)
        estimate = host.estimate.at(host.now_ns)
        assert estimate is not None
        assert host.error_ns() <= estimate.bound_ns
        best = host.estimate.best
        assert best is not None
        least_ns = min(probe.bound_ns(host.now_ns) for probe in host.estimate.probes)
        beyond_ns = abs(estimate.offset_ns - best.offset_ns)
        assert estimate.bound_ns - beyond_ns - least_ns <= 1  # what rounding makes of it
        assert beyond_ns <= least_ns + 1
    assert host.estimate.jumps == 0
    best = host.estimate.best
    assert best is not None
    near = best.rtt_ns <= MAX_TRUSTED_RTT_NS and best.drift_ns(host.now_ns) <= MAX_DRIFT_NS
    assert host.estimate.trusted(host.now_ns) is near


def test_clocks_that_keep_step_are_steady() -> None:
    host = joined(drift_ppm=20)
    for _ in range(KEEP):
        host.rest(3 * SECOND)
        host.probe(MS // 4, MS // 20)
        assert host.estimate.steady
        assert host.estimate.trusted(host.now_ns)


def test_clocks_are_not_steady_before_they_are_known_nor_while_one_is_set() -> None:
    host = Host()
    for _ in range(SURE_PROBES - 1):
        host.probe()
        assert not host.estimate.steady
    host = joined()
    host.drift_ppm = 400
    host.rest(3 * SECOND)
    host.probe()
    assert host.estimate.probes[-1].offset_ns != host.estimate.probes[-2].offset_ns, "it is a good probe"
    assert not host.estimate.steady
    host = joined()
    host.offset_ns += SECOND
    host.probe()
    assert not host.estimate.steady


def test_a_slow_answer_reports_too_little_to_be_steady() -> None:
    host = joined()
    host.probe(2 * MS, MS)
    assert not host.estimate.steady
    host.probe()
    assert not host.estimate.steady
    host.probe()
    assert host.estimate.steady
