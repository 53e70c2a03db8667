"""What switches take from gangs in slices that adapt and in slices that tune themselves; prints a table.

Run it anywhere, for nothing is timed: both rules get the reports of agents whose switches end so much after
their instants, for ten minutes::

    pytest -m benchmark -s tests/benchmarks/test_slice_tuning.py

A switch takes that and what gangs lose by cold caches, which no agent reports: it is varied, too, as the rule
takes it for 2 ms whatever it is.
"""

from __future__ import annotations

import pytest

from gangd.core.gang_settings import MS, SECOND, CoreSettings
from gangd.core.slice_timing import LOOK_NS, Contenders, QuantumPace
from tests.fixtures.voice import say

pytestmark = [pytest.mark.benchmark]

PAIR = (Contenders((1, 2), frozenset({0}), 2, False),)
LATE_US = (50, 100, 300, 1_000, 2_000, 3_000, 5_000)
REFILLS_MS = (0.0, 1.0, 2.0, 4.0)
TEN_MINUTES = 600 * SECOND // LOOK_NS


def lost(settings: CoreSettings, late_us: int, refill_ms: float) -> tuple[int, float]:
    """Return the length of turns in the end (ms), and the share that switches took over ten minutes."""
    pace, shares = QuantumPace(settings, 0), []
    for number in range(1, TEN_MINUTES + 1):
        pace.note(0, [late_us] * 9, 300, number * LOOK_NS)
        pace.look(number * LOOK_NS, 2, lambda: PAIR, {1, 2})
        turn_ns = min((group.turn_ns for group in pace.tuner.groups.values()), default=pace.quantum_ns)
        shares.append((1000 * late_us + refill_ms * MS) / turn_ns)
    return turn_ns // MS, sum(shares) / len(shares)


@pytest.mark.parametrize("quantum_ms", [250, 1000])
def test_what_switches_take(quantum_ms: int) -> None:
    asked = {"quantum_ns": quantum_ms * MS, "quantum_max_ns": SECOND}
    adapts = CoreSettings(**asked)  # type: ignore[arg-type]
    tunes = CoreSettings(**asked, tune=True, quantum_min_ns=50 * MS)  # type: ignore[arg-type]
    say(f"\nasked for: {quantum_ms} ms; bounds 50 and 1000 ms")
    for refill_ms in REFILLS_MS:
        say(f"| a switch also costs {refill_ms:g} ms | adapts | tunes | gain |\n| --- | --- | --- | --- |")
        for late_us in LATE_US:
            (slices, was), (turns, is_now) = (lost(one, late_us, refill_ms) for one in (adapts, tunes))
            say(
                f"| {late_us / 1000:g} ms late | {was:.2%} of {slices} ms | {is_now:.2%} of {turns} ms "
                f"| {was - is_now:+.2%} |"
            )
            assert is_now <= was + 0.02
