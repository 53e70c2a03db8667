"""The offset between an agent's and the controller's monotonic clock, and how far it can be trusted.

Clock offset from round trips with four time stamps, as NTP does it (RFC 5905, sections 8 and 10).

A probe leaves the agent at ``sent_ns``, reaches the controller at ``received_ns``, leaves it at
``answered_ns`` and is back at ``returned_ns``; the middle two are on the controller's clock. Then ::

    offset = ((received - sent) + (answered - returned)) / 2      controller minus agent
    rtt    = (returned - sent) - (answered - received)

and the true offset is within ``rtt / 2`` of it, whatever the asymmetry. Rules:

* Of the last ``KEEP`` probes the one with the least *bound* says where the offset must be: ``rtt / 2`` plus
  the drift that may have come since (``DRIFT_PPM`` of its age; the kernel slews CLOCK_MONOTONIC by at most
  500 ppm).
* Within that, a straight line through all of them says where it is (weighted least squares, ``_line_of``).
  A round trip that took longer than the shortest one waited somewhere, on either way, so that it tells less.
* A probe whose interval does not meet the estimate's is a *suspect*: one clock jumped (a host was suspended,
  a guest migrated, another controller answers), or time stamps lie. While there is a suspect the estimate
  is not trusted. ``SURE_PROBES`` suspects in a row that agree with each other replace all that was known; a
  probe that agrees with the estimate clears them.
* Nothing is trusted before ``SURE_PROBES`` probes, nor by a round trip above ``MAX_TRUSTED_RTT_NS``, nor when
  clocks may have drifted apart by more than ``MAX_DRIFT_NS`` since, as they may in ten seconds.

Half of the round trip is the error only where all of it is spent one way. Of a long way with some jitter
only the jitter is in the error. A way that always takes longer one way than the other moves the estimate by
half of the difference, which no exchange of messages can show.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

DRIFT_PPM = 500
KEEP = 32
FLOOR_NS, WANDER_PPM, USUAL_DRIFT_PPM = 50_000, 15, 100
"""Usual errors: of the quickest probe, of what drift changes with age (RFC 5905), of no drift at all."""
SURE_PROBES = 3
MAX_TRUSTED_RTT_NS, MAX_DRIFT_NS = 40_000_000, 5_000_000
MAX_RTT_NS = 1_000_000_000
QUICK_RTT_NS, STEADY_PPM = 2_000_000, 50
"""Clocks keep step that move apart by no more between two quick probes, unless set."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One round trip of ``span_ns`` that was complete at ``returned_ns``, on the agent's clock."""

    returned_ns: int
    span_ns: int
    offset_ns: int
    rtt_ns: int

    def bound_ns(self, now_ns: int) -> int:
        """How far the true offset can be from ``offset_ns`` at ``now_ns`` (agent's clock)."""
        return self.rtt_ns // 2 + self.drift_ns(now_ns) + 2

    def drift_ns(self, now_ns: int) -> int:
        """How far the clocks can have drifted apart since it began."""
        return _drift_ns(abs(now_ns - self.returned_ns) + self.span_ns)


@dataclass(frozen=True, slots=True)
class Offset:
    """An estimate at one instant: controller minus agent, its greatest error, and its round trip."""

    offset_ns: int
    bound_ns: int
    rtt_ns: int


@dataclass(frozen=True, slots=True)
class Line:
    """The likely offset: ``offset_ns`` at ``now_ns`` of the agent's clock, from where it drifts."""

    now_ns: int
    offset_ns: int
    drift: float

    def at(self, now_ns: int) -> int:
        """Return the offset at another instant."""
        return self.offset_ns + round(self.drift * (now_ns - self.now_ns))


@dataclass(frozen=True, slots=True)
class OffsetEstimate:
    """What is known about the controller's clock; immutable, each probe gives a successor.

    Attributes
    ----------
    probes
        The newest good probes, oldest first.
    best
        The one of them with the least bound: drift adds the same to all, so that it stays the best.
    line
        What the good probes say together.
    suspects
        Probes since the last good one that contradict it.
    jumps
        How often the estimate was replaced.
    refused
        Probes that could not be true (negative or absurd round trip).
    """

    probes: tuple[Probe, ...] = ()
    best: Probe | None = None
    line: Line | None = None
    suspects: tuple[Probe, ...] = ()
    jumps: int = 0
    refused: int = 0

    def on_probe(self, sent_ns: int, received_ns: int, answered_ns: int, returned_ns: int) -> OffsetEstimate:
        """Take in a round trip."""
        span_ns = returned_ns - sent_ns
        rtt_ns = span_ns - (answered_ns - received_ns)
        if not -_drift_ns(span_ns) <= rtt_ns <= MAX_RTT_NS or answered_ns < received_ns:
            return replace(self, refused=self.refused + 1)
        offset_ns = ((received_ns - sent_ns) + (answered_ns - returned_ns)) // 2
        probe = Probe(returned_ns, span_ns, offset_ns, max(0, rtt_ns))
        if self.best is None or _agree(self.best, probe, returned_ns):
            return self._from((*self.probes[-KEEP + 1 :], probe), returned_ns)
        suspects = (*(old for old in self.suspects if _agree(old, probe, returned_ns)), probe)
        if len(suspects) < SURE_PROBES:
            return replace(self, suspects=suspects)
        return replace(self._from(suspects, returned_ns), jumps=self.jumps + 1)

    def at(self, now_ns: int) -> Offset | None:
        """Return the best estimate at ``now_ns`` (agent's clock), trusted or not; None without any probe."""
        best, line = self.best, self.line
        if best is None or line is None:
            return None
        bound_ns = best.bound_ns(now_ns)
        apart_ns = max(-bound_ns, min(bound_ns, line.at(now_ns) - best.offset_ns))
        return Offset(best.offset_ns + apart_ns, bound_ns + abs(apart_ns), best.rtt_ns)

    def trusted(self, now_ns: int) -> bool:
        """Whether slices may be acted on at ``now_ns``."""
        return (
            self.best is not None
            and not self.suspects
            and len(self.probes) >= SURE_PROBES
            and self.best.rtt_ns <= MAX_TRUSTED_RTT_NS
            and self.best.drift_ns(now_ns) <= MAX_DRIFT_NS
        )

    @property
    def steady(self) -> bool:
        """Whether the two newest probes were quick, and the clocks kept step between them.

        Then a few seconds more bring no surprise: what is known can be asked for more seldom.
        """
        if self.suspects or len(self.probes) < SURE_PROBES:
            return False
        one, other = self.probes[-2:]
        apart_ns = abs(other.offset_ns - one.offset_ns) - (one.rtt_ns + other.rtt_ns) // 2
        step_ns = (other.returned_ns - one.returned_ns) * STEADY_PPM // 1_000_000 + 2
        return max(one.rtt_ns, other.rtt_ns) <= QUICK_RTT_NS and apart_ns <= step_ns

    def _from(self, probes: tuple[Probe, ...], now_ns: int) -> OffsetEstimate:
        best = min(probes, key=lambda probe: probe.bound_ns(now_ns))
        return replace(self, probes=probes, best=best, line=_line_of(probes, now_ns), suspects=())


def _line_of(probes: tuple[Probe, ...], now_ns: int) -> Line:
    """Return the line through probes, each with its usual error; a drift is believed as far as they show it.

    The error is half of what the round trip took beyond the shortest one, and something for age. Without any
    drift to be seen the line is a weighted mean (a ridge: the drift has an error of ``USUAL_DRIFT_PPM``).
    """
    shortest_ns, newest_ns = min(probe.rtt_ns for probe in probes), probes[-1].offset_ns
    total = ages = squares = offsets = products = 0.0
    for probe in probes:
        age_ns, offset_ns = now_ns - probe.returned_ns, probe.offset_ns - newest_ns
        error_ns = (probe.rtt_ns - shortest_ns) / 2 + FLOOR_NS + WANDER_PPM * 1e-6 * age_ns
        weight = 1 / error_ns**2
        total += weight
        ages -= weight * age_ns
        squares += weight * age_ns**2
        offsets += weight * offset_ns
        products -= weight * age_ns * offset_ns
    squares += 1 / (USUAL_DRIFT_PPM * 1e-6) ** 2
    divisor = total * squares - ages**2
    return Line(
        now_ns=now_ns,
        offset_ns=newest_ns + round((offsets * squares - products * ages) / divisor),
        drift=(total * products - ages * offsets) / divisor,
    )


def _drift_ns(span_ns: int) -> int:
    return span_ns * DRIFT_PPM // 1_000_000 + 1


def _agree(one: Probe, other: Probe, now_ns: int) -> bool:
    return abs(one.offset_ns - other.offset_ns) <= one.bound_ns(now_ns) + other.bound_ns(now_ns)
