"""What each shared job used in the time in which it ran, and what leaked while it was held.

Only time in which a job was not held counts as its span: a job that alternates between running and held
has one reading at the end of each of its slices, and what it uses between that reading and the next
thaw is a leak.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gangd.agent.usage import Reading, UsageMeter
from gangd.wire import JobSample

STEADY_SHARE = 0.5
STEADY_NS = 4_000_000_000
"""A job that used more than this share of a core in all samples of so long goes on so, as a rule."""
LEAK_NOISE_NS = 200_000
"""Less than this within one hold is the freeze taking effect, not a leak."""


@dataclass(slots=True)
class _Job:
    meter: UsageMeter = field(default_factory=UsageMeter)
    last: Reading | None = None
    ran_ns: int = 0  # time not held since the last reading, up to since_ns
    since_ns: int = 0
    held: bool = False
    fresh_hold: bool = False  # held, and read since: what it uses now leaks
    steady_ns: int | None = None  # since when it was clearly busy in all samples

    def advance(self, now_ns: int) -> None:
        if not self.held:
            self.ran_ns += max(0, now_ns - self.since_ns)
        self.since_ns = now_ns


class JobMeters:
    """Meters of the jobs that the schedule names."""

    def __init__(self) -> None:
        self._jobs: dict[int, _Job] = {}

    def track(self, pids_by_job: dict[int, tuple[int, ...]], now_ns: int) -> None:
        """Follow exactly these jobs with these processes."""
        for job in self._jobs.keys() - pids_by_job.keys():
            self._jobs.pop(job).meter.close()
        for job, pids in pids_by_job.items():
            if job not in self._jobs:
                self._jobs[job] = _Job(since_ns=now_ns)
            self._jobs[job].meter.watch(pids)

    def on_held(self, held: frozenset[int], at_ns: int) -> None:
        """Note which jobs are held from ``at_ns`` on; all others run."""
        for number, job in self._jobs.items():
            if (number in held) is not job.held:
                job.advance(at_ns)
                job.held = number in held
                job.fresh_hold = False

    def due(self, job: int, now_ns: int) -> bool:
        """Whether a job may be read again."""
        known = self._jobs.get(job)
        return known is not None and known.meter.due(now_ns)

    def sample(self, job: int, cgroups_ns: dict[str, int], now_ns: int) -> JobSample | None:
        """Read a job that ran; None at the first reading, which has nothing to compare with."""
        known = self._jobs[job]
        known.advance(now_ns)
        before, known.last = known.last, known.meter.read(cgroups_ns)
        ran_ns, known.ran_ns = known.ran_ns, 0
        known.fresh_hold = known.held
        if before is None:
            return None
        cpu_ns, delay_ns = known.last.cpu_ns - before.cpu_ns, known.last.delay_ns - before.delay_ns
        if cpu_ns + delay_ns <= STEADY_SHARE * ran_ns:
            known.steady_ns = None
        elif known.steady_ns is None:
            known.steady_ns = now_ns
        return JobSample(
            job=job,
            cpu_us=cpu_ns // 1000,
            delay_us=delay_ns // 1000,
            span_us=ran_ns // 1000,
            tasks=known.last.tasks,
        )

    def is_steady(self, job: int, now_ns: int) -> bool:
        """Whether a job has been clearly busy for seconds."""
        known = self._jobs.get(job)
        return known is not None and known.steady_ns is not None and now_ns >= known.steady_ns + STEADY_NS

    def leak(self, job: int, cgroups_ns: dict[str, int]) -> int | None:
        """CPU time (ns) that a held job has used since it was read after its freeze; None for nothing."""
        known = self._jobs.get(job)
        if known is None or not known.held or not known.fresh_hold or known.last is None:
            return None
        before, known.last = known.last, known.meter.read(cgroups_ns)
        used_ns = known.last.cpu_ns - before.cpu_ns
        return used_ns if used_ns > LEAK_NOISE_NS else None

    def close(self) -> None:
        """Close all files."""
        for job in self._jobs.values():
            job.meter.close()
        self._jobs.clear()
