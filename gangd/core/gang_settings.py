"""What the administrator decides, checked. Times are integer nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

from gangd.core.cores import InvalidSettings

MS = 1_000_000
SECOND = 1_000_000_000
LEAST_QUANTUM_NS = 20 * MS
GREATEST_QUANTUM_NS = 5 * SECOND
LEAST_LEASE_NS = 1_500 * MS  # an agent with nothing to do reports once a second, and may be late
GREATEST_LEASE_NS = 60 * SECOND
GREATEST_FREEZE_NS = 60 * SECOND


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """Settings of the core; the defaults are those of the architecture.

    Attributes
    ----------
    quantum_ns
        Length of a slice, 20 ms to 5 s.
    lookahead
        Slices that are final at any moment, the current one included.
    adapt
        Whether both grow while switches are late (``pace.py``); these are the least then.
    quantum_max_ns
        Length that slices grow to at most.
    tune
        Whether each group of gangs gets slices, and a hold mode, by what is measured of it
        (``slice_timing.SliceTuner``), of ``quantum_min_ns`` to ``quantum_max_ns``.
    quantum_min_ns
        Length that slices shrink to at least where they tune themselves; None: not below ``quantum_ns``.
    lease_ns
        A node without a report for this long is lost; 1.5 s to 60 s.
    grace_ns
        Launch grace: a gang that just appeared is not held until its tasks run, or for this long.
    freeze_cap_ns
        Longest continuous freeze of a gang, at most 60 s; one that would exceed it runs together with the
        owner for a slice.
    busy_share, idle_share
        Demand in cores (CPU time plus run-queue delay over the observed time, of its busiest node): above
        the first a sample is busy, below the second it is idle, in between it says nothing.
    confirm_samples
        Busy samples that turn an idle gang busy.
    idle_samples, idle_samples_multi
        Most idle samples in a row that turn a busy gang idle: of one process, and of several.
    move_interval_ns
        At most one change of a job's end in this time.
    move_near_ns
        A job whose end is nearer than this gets what it is owed at once; one whose end is farther waits
        until it is worth a call (a minute, or a tenth of what remains).
    record
        Whether ``RecordRows`` commands are wanted.
    memory_kib
        A node with less memory available is short of it (``memory_pressure``); None: memory does not count.
    memory_stall
        A node is short of memory, too, where some task waited for memory for a larger share of the last 10 s.
    memory_freeze_ns
        A gang that is deferred for memory runs for a slice after so long, from ``freeze_cap_ns`` to 60 s.
    """

    quantum_ns: int = 250 * MS
    lookahead: int = 2
    adapt: bool = True
    quantum_max_ns: int = 1 * SECOND
    tune: bool = False
    quantum_min_ns: int | None = None
    lease_ns: int = 2 * SECOND
    grace_ns: int = 1 * SECOND
    freeze_cap_ns: int = 5 * SECOND
    busy_share: float = 0.20
    idle_share: float = 0.10
    confirm_samples: int = 2
    idle_samples: int = 3
    idle_samples_multi: int = 6
    move_interval_ns: int = 60 * SECOND
    move_near_ns: int = 180 * SECOND
    record: bool = False
    memory_kib: int | None = None
    memory_stall: float | None = None
    memory_freeze_ns: int = 5 * SECOND

    def __post_init__(self) -> None:
        freeze = f"{self.freeze_cap_ns / MS:g} ms"
        quantum = f"{self.quantum_ns / MS:g} ms"
        shares = f"idle share {self.idle_share} and busy share {self.busy_share}"
        samples = min(self.confirm_samples, self.idle_samples, self.idle_samples_multi)
        checks = (
            (
                LEAST_QUANTUM_NS <= self.quantum_ns <= GREATEST_QUANTUM_NS,
                f"quantum is {quantum}; 20 ms to 5 s are possible",
            ),
            (self.quantum_max_ns > 0, "the greatest length that slices grow to is not positive"),
            (
                not self.tune or LEAST_QUANTUM_NS <= self.least_ns <= self.quantum_ns,
                f"quantum_min_ms is {self.least_ns / MS:g}; from 20 ms to {quantum} is possible",
            ),
            (
                not self.tune or self.quantum_ns <= self.quantum_max_ns <= GREATEST_QUANTUM_NS,
                f"quantum_max_ms is {self.quantum_max_ns / MS:g}; from {quantum} to 5 s is possible",
            ),
            (1 <= self.lookahead <= 64, f"lookahead is {self.lookahead} slices; 1 to 64 are possible"),
            (
                LEAST_LEASE_NS <= self.lease_ns <= GREATEST_LEASE_NS,
                f"lease is {self.lease_ns / MS:g} ms; 1500 ms to 60 s are possible",
            ),
            (self.grace_ns >= 0, "the launch grace is negative"),
            (
                self.freeze_cap_ns >= self.quantum_ns,
                f"longest freeze {freeze} is less than a quantum of {quantum}: make the quantum shorter",
            ),
            (self.freeze_cap_ns <= GREATEST_FREEZE_NS, f"longest freeze {freeze} is above 60 s"),
            (
                0 < self.idle_share <= self.busy_share <= 1,
                f"{shares} must satisfy 0 < idle share <= busy share <= 1",
            ),
            (
                self.memory_kib is None or self.freeze_cap_ns <= self.memory_freeze_ns <= GREATEST_FREEZE_NS,
                f"memory_freeze_ms is {self.memory_freeze_ns / MS:g}; from {freeze} to 60 s is possible",
            ),
            (samples >= 1, "at least one sample is needed to change a demand class"),
            (min(self.move_interval_ns, self.move_near_ns) >= 0, "a time of the end's moving is negative"),
        )
        for right, wrong in checks:
            if not right:
                raise InvalidSettings(wrong)

    @property
    def least_ns(self) -> int:
        """Length that slices have at least."""
        return self.quantum_ns if self.quantum_min_ns is None else self.quantum_min_ns

    def cap_slices(self, quantum_ns: int) -> int:
        """Whole slices of a length that a gang may be frozen without a break."""
        return self.freeze_cap_ns // quantum_ns
