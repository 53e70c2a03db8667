"""The calibration of ``rrba``: kinds of jobs run alone on a cluster, with a few numbers of steps each.

Jobs that run alone, one after another, are what calibration and its check are made of.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from foundation.errors import ClusterError, HostError
from foundation.mpi_start import mpi_environment
from foundation.one_line import last_words
from foundation.slurm import SlurmClient, SubmitRequest
from foundation.units import counted, verb
from submitter.follow import read_stamps
from submitter.plan import RRBA, PlannedJob, TargetCluster, batch_script, job_environment
from workloads.rrba.calibration_kinds import CalibrationKind
from workloads.rrba.steps.calibrations import Calibration, Key, refuse_unstorable, store_calibration
from workloads.rrba.steps.step_plan import DedicatedRun, StepLine, fit_line, sample_lengths

PILOT_STEPS = 12
_MOST_DOUBLINGS = 3

_POLL_S = 0.05
_LOOK_S = 5.0
# A job that Slurm no longer knows and that left no end is given so long for its files to appear.
_GRACE_S = 5.0


class RunsAlone(Protocol):
    """Runs a job of a kind with some arguments, alone on its cores."""

    def run(self, kind: CalibrationKind, length: Sequence[str]) -> CalibrationOutcome:
        """Run a job to its end."""
        ...


@dataclass(frozen=True, slots=True)
class CalibrationRow:
    """One calibrated kind."""

    name: str
    ranks: int
    nodes: int
    step_ms: float
    overhead_s: float
    worst_share: float
    core_share: float | None
    samples: int
    host_type: str


@dataclass(slots=True)
class Sampled:
    """A kind, the numbers of steps to run it with, and what its runs took; the pilot is the first of them."""

    kind: CalibrationKind
    lengths: tuple[int, ...]
    outcomes: list[tuple[int, CalibrationOutcome]]

    def sample(self, jobs: RunsAlone) -> None:
        """Run each length once more."""
        self.outcomes.extend((steps, jobs.run(self.kind, ("--itr", str(steps)))) for steps in self.lengths)

    def sample_longer(self, jobs: RunsAlone, rounds: int, least_share: float) -> None:
        """Run twice as many steps, and again, where noise hides that more steps take longer."""
        for _ in range(_MOST_DOUBLINGS):
            shares = self.core_shares()
            if (shares and max(shares) < least_share) or self.line(least_share) is not None:
                return
            self.lengths = tuple(2 * steps for steps in self.lengths)
            for _ in range(rounds):
                self.sample(jobs)

    def line(self, least_share: float) -> StepLine | None:
        """Return the line through the samples; None where times do not grow with the steps."""
        return fit_line(self.samples(least_share))

    def samples(self, least_share: float) -> list[DedicatedRun]:
        """Return the runs that count: of the longest those in which no rank lacked its core."""
        outcomes = self._with_pilot()
        longest = max(steps for steps, _ in outcomes)
        return [
            DedicatedRun(steps, outcome.run_s)
            for steps, outcome in outcomes
            if steps < longest or outcome.core_share is None or outcome.core_share >= least_share
        ]

    def core_shares(self) -> list[float]:
        """Return the part of its core that the worst rank had in each of the longest runs, where known."""
        outcomes = self._with_pilot()
        longest = max(steps for steps, _ in outcomes)
        shares = [outcome.core_share for steps, outcome in outcomes if steps == longest]
        return [share for share in shares if share is not None]

    def _with_pilot(self) -> list[tuple[int, CalibrationOutcome]]:
        # Where a step is as long as the longest sample, the pilot is the second length.
        return self.outcomes if len(self.lengths) == 1 else self.outcomes[1:]


def try_out(jobs: RunsAlone, kind: CalibrationKind, sample_s: float) -> Sampled:
    """Run a kind for a moment, to know what lengths to sample."""
    pilot = jobs.run(kind, ("--itr", str(PILOT_STEPS)))
    lengths = sample_lengths(float(pilot.report["busy_s"]) / PILOT_STEPS, sample_s)
    return Sampled(kind, lengths, [(PILOT_STEPS, pilot)])


def fit_kind(sampled: Sampled, path: Path, least_share: float) -> CalibrationRow:
    """Fit a line through a kind's samples and store it.

    Raises
    ------
    HostError
        If a rank lacked its core in all of the longest runs, or times do not grow with the steps.
    """
    kind = sampled.kind
    known = sampled.core_shares()
    what = f"{kind.name} on {counted(kind.ranks, 'rank')}"
    if known and max(known) < least_share:
        raise HostError(
            f"{what}: not stored, a rank had {max(known):.0%} of its core; are more ranks on it than it has "
            "cores?"
        )
    line = sampled.line(least_share)
    if line is None:
        raise HostError(
            f"{what}: times do not grow with the steps; calibrate on an idle host, or raise --sample-s"
        )
    samples = sampled.samples(least_share)
    host_type = str(sampled.outcomes[-1][1].report["host_type"])
    key = Key(host_type, kind.calibrated_as, str(kind.grid), kind.ranks, kind.nodes)
    steps = sum(sample.steps for sample in samples)
    now_ms = round(time.time() * 1000)
    store_calibration(path, Calibration(key, line.step_s, line.overhead_s, steps, now_ms))
    return CalibrationRow(
        kind.name,
        kind.ranks,
        kind.nodes,
        1e3 * line.step_s,
        line.overhead_s,
        line.worst,
        max(known, default=None),
        len(samples),
        host_type,
    )


def calibrate_kinds(
    jobs: RunsAlone,
    kinds: Iterable[CalibrationKind],
    path: Path,
    *,
    sample_s: float,
    rounds: int,
    least_share: float,
    tell: Callable[[str], object] = lambda _: None,
) -> list[CalibrationRow]:
    """Sample kinds in turn, for a host's pace drifts, and store a line for each.

    Parameters
    ----------
    path
        The file of stored step times.
    sample_s
        Length of the longest sample, s.
    rounds
        How often every kind is sampled.
    least_share
        A sample counts if no rank had less of its core.
    tell
        Called with what is sampled.

    Raises
    ------
    HostError
        As ``fit_kind``.
    InputError, OutputError
        Nothing could be stored in the file; nothing is run.
    """
    refuse_unstorable(path)
    sampled = [try_out(jobs, kind, sample_s) for kind in sorted(kinds)]
    for turn in range(1, rounds + 1):
        for number, one in enumerate(sampled, start=1):
            kind = f"{one.kind.name} on {counted(one.kind.ranks, 'rank')}"
            tell(f"{kind}, {number} of {len(sampled)}, round {turn} of {rounds}")
            one.sample(jobs)
    for one in sampled:
        one.sample_longer(jobs, rounds, least_share)
    return [fit_kind(one, path, least_share) for one in sampled]


@dataclass(frozen=True, slots=True)
class CalibrationOutcome:
    """A job's run time between its wrapper's stamps, and rrba's report."""

    run_s: float
    report: dict[str, Any]

    @property
    def core_share(self) -> float | None:
        """CPU time over wall time in steps, of the rank with least; None where a benchmark does not tell."""
        share = self.report["core_share"]
        return None if share is None else float(share)


class LoneJobs:
    """Runs jobs one at a time on a cluster without other jobs.

    Parameters
    ----------
    client, target
        The cluster.
    folder
        For scripts and stamps; every node sees it.
    pin
        Whether ranks bind themselves to Slurm's cores, as in a replay.
    one_host
        Whether all nodes are this host, as an embedded cluster's are.
    """

    def __init__(
        self, client: SlurmClient, target: TargetCluster, folder: Path, *, pin: bool, one_host: bool = False
    ) -> None:
        self._client = client
        self._target = target
        self._folder = folder
        self._pin = pin
        self._environment = job_environment(mpi_environment(os.environ, one_host=one_host))
        self._count = 0
        self._run_id = secrets.token_hex(3)
        (folder / "jobs").mkdir(parents=True, exist_ok=True)

    def check_idle(self) -> None:
        """Refuse a cluster with jobs.

        Raises
        ------
        ClusterError
            There are some.
        """
        snapshot = self._client.jobs()
        active = sum(not job.state.is_over for job in snapshot.jobs) + len(snapshot.unreadable)
        if active:
            raise ClusterError(
                f"{counted(active, 'job')} {verb(active)} on the cluster; wait until it is "
                "idle, or cancel them"
            )

    def run(
        self, kind: CalibrationKind, length: Sequence[str], calibration: Path | None = None
    ) -> CalibrationOutcome:
        """Run rrba as ``kind`` says with ``length`` (such as ``--itr 100``); return when it has ended.

        Raises
        ------
        HostError
            It failed; the message has its last words.
        ClusterError
            Slurm lost it.
        """
        self._count += 1
        job = PlannedJob(
            trace_job=self._count,
            kind="batch",
            app=RRBA,
            args=(*kind.arguments, *length),
            partition=self._target.batch.partition,
            nodes=kind.nodes,
            cores_per_node=kind.ranks // kind.nodes,
            due_s=0.0,
            dedicated_s=0.0,
            busy_s=0.0,
        )
        output = self._folder / "jobs" / f"{self._count}.out"
        request = SubmitRequest(
            script=batch_script(job, self._folder, pin=self._pin, calibration=calibration),
            name=f"osub-{self._run_id}-{self._count}",
            nodes=job.nodes,
            tasks_per_node=job.cores_per_node,
            partition=job.partition,
            output=output,
            comment="osub workloads",
            environment=self._environment,
        )
        try:
            self._wait(self._client.submit(request))
        except BaseException:
            self._cancel(request.name)
            raise
        return self._outcome(output)

    def _cancel(self, name: str) -> None:
        """Cancel our job of a name; its number is not known where a signal came while Slurm took it."""
        jobs = self._client.jobs().jobs
        ours = [job for job in jobs if (job.name, job.uid) == (name, os.geteuid())]
        self._client.cancel([job.job_id for job in ours if not job.state.is_over])

    def _wait(self, job_id: int) -> None:
        folder, looked_s, over_s = self._folder / "jobs", time.monotonic(), None
        while read_stamps(folder, self._count).end_ms is None:
            time.sleep(_POLL_S)
            now_s = time.monotonic()
            if now_s - looked_s < _LOOK_S:
                continue
            looked_s = now_s
            job = self._client.job(job_id)
            if job is not None and not job.state.is_over:
                continue
            over_s = over_s or now_s
            if now_s - over_s > _GRACE_S:
                raise ClusterError(f"Slurm job {job_id} left no end; see {folder / f'{self._count}.out'}")
        # The next job must not start during the end of this one.
        deadline_s = time.monotonic() + 60.0
        while time.monotonic() < deadline_s:
            job = self._client.job(job_id)
            if job is None or job.state.is_over:
                return
            time.sleep(_POLL_S)

    def _outcome(self, output: Path) -> CalibrationOutcome:
        folder = self._folder / "jobs"
        stamps = read_stamps(folder, self._count)
        if stamps.exit_code != 0 or stamps.start_ms is None or stamps.end_ms is None:
            raise HostError(f"rrba ended with code {stamps.exit_code}: {last_words(output) or 'no output'}")
        report = json.loads((folder / f"{self._count}.report").read_text(encoding="utf-8"))
        return CalibrationOutcome((stamps.end_ms - stamps.start_ms) / 1000, report)
