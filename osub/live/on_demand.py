"""The hybrid mechanisms on a live Slurm: reservations, preemptions and shrinks for on-demand jobs.

What is done is decided by the simulator's code (``simulator.hybrid.live_pool``); here it is carried out, half
a second at a time. Each job that nodes are kept for has a reservation of its own. A reservation ends by
itself within three minutes unless it is renewed, so a replay that is killed leaves none for long.
"""

from __future__ import annotations

import os
import pwd
import queue
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from foundation.errors import ClusterError, OutputError
from foundation.files import write_whole
from foundation.one_line import one_line
from foundation.records import JobEntry
from foundation.slurm import CommandSlurm, Receiver, SlurmJob, SlurmJobState, SubmitRequest
from foundation.slurm.slurm_types import SlurmRefusedError
from foundation.units import US_PER_S
from simulator.hybrid import hybrid_state as state
from simulator.hybrid.hybrid_build import Mechanism
from simulator.hybrid.hybrid_family import Hybrid
from simulator.hybrid.live_pool import LiveJob, LiveOrders, LivePool
from simulator.recording import job_frame
from simulator.simulation import cleaning_of
from simulator.simulation_session import SimulationSession
from simulator.simulation_spec import SimulationSpec
from submitter.follow import JOBS_FOLDER, own_jobs
from submitter.plan import Clock, PlannedJob, SystemClock

_EVERY_S, _NODES_EVERY_S = 0.5, 10.0
_LEASE_S, _RENEWED_S = 180, 90
_TOP_PRIORITY = 4294967290
"""Above what Slurm gives to any job; sbatch takes less than 4294967294."""
_GUEST_SHARE = 0.4
"""Of a node's memory: two jobs of which one is on demand fit on a node, two others do not."""


def session_of(
    trace: Path, system: str, mechanism: str, settings: Sequence[str], seed: int
) -> SimulationSession:
    """Return the simulation of a trace under a mechanism such as ``cua-paa``; see ``SimulationSession``."""
    spec = SimulationSpec(
        trace=trace,
        system=system,
        policy=f"hybrid-{mechanism}",
        settings=list(settings),
        interactive_queue=-1,
        seed=seed,
    )
    return SimulationSession(trace, spec, cleaning_of(spec))


def absolute_settings(settings: Sequence[str]) -> tuple[str, ...]:
    """Return settings with the whole path of their file, so that ``--resume`` finds it from anywhere."""
    pairs = [setting.partition("=") for setting in settings]
    return tuple(
        f"jobs={Path(value).absolute()}" if name == "jobs" else name + is_ + value
        for name, is_, value in pairs
    )


def files_of(settings: Sequence[str]) -> list[Path]:
    """Return the files that settings name."""
    return [Path(value) for name, _, value in (one.partition("=") for one in settings) if name == "jobs"]


class MechanismDriver:
    """Carries a mechanism out for jobs that a subclass chooses; the pool knows them by index.

    Parameters
    ----------
    client
        Slurm, for this object alone.
    pool, mechanism
        What decides.
    nodes
        Names of the nodes.
    clock
        Tests have their own.
    """

    job_word = "job"
    """What the number of a job is called in events."""

    def __init__(
        self,
        client: CommandSlurm,
        pool: LivePool,
        mechanism: Mechanism,
        nodes: Sequence[str],
        clock: Clock | None = None,
    ) -> None:
        self.events: queue.SimpleQueue[tuple[str, dict[str, object]]] = queue.SimpleQueue()
        self._client, self._clock = client, clock or SystemClock()
        self._pool, self._mechanism = pool, mechanism
        self._names, self._user = tuple(nodes), pwd.getpwuid(os.geteuid()).pw_name
        self._place = {name: place for place, name in enumerate(nodes)}
        self._index: dict[int, int] = {}
        self._number: dict[int, int] = {}
        self._prefix, self._origin = "", 0.0
        self._made: dict[int, tuple[frozenset[int], str, float]] = {}
        self._warned: dict[int, tuple[SlurmJob, float]] = {}
        self._jobs: dict[int, SlurmJob] = {}
        self._resized: set[int] = set()
        self._down: set[str] = set()
        self._nodes_at = 0.0
        self._is_away = False

    def refuse_without_rights(self) -> None:
        """Raise ClusterError where this user may not reserve nodes."""
        name = f"osub-trial-{os.getpid()}"
        try:
            self._client.reserve(name, self._names[:1], 60, self._user, anew=True)
            self._client.unreserve(name)
        except SlurmRefusedError as error:
            raise ClusterError(
                "on-demand jobs need reservations, which only an administrator of Slurm may make (SlurmUser, "
                f"root, an operator): {error}"
            ) from error

    def _begin(self, name: str, origin: float) -> None:
        """Take the name of reservations and the epoch second 0; drop what was left under that name."""
        self._prefix, self._origin = f"osub-{name}-", origin
        self._sweep()

    def _sweep(self) -> None:
        for reservation in self._client.reservations():
            if reservation.name.startswith(self._prefix):
                self._try("unreserve", None, self._client.unreserve, reservation.name)

    def step(self) -> float | None:
        """Ask Slurm, decide and act; see ``Worker``."""
        try:
            snapshot = self._client.jobs()
            self._jobs = self._own(snapshot.jobs)
            now_us = round((self._clock.wall() - self._origin) * US_PER_S)
            orders = self._pool.step(now_us, *self._seen(snapshot.jobs))
            self._is_away = False
        except ClusterError as error:
            if not self._is_away:
                self._say("on-demand: Slurm is away", why=str(error))
            self._is_away = True
            return 2 * _EVERY_S
        self._reserve(orders.reserved)
        self._join(orders)
        for job, warned in orders.preempt.items():
            self._preempt(job, warned=warned)
        for job, nodes in orders.shrink.items():
            self._shrink(job, nodes)
        for job, (slurm, until) in list(self._warned.items()):
            if self._clock.monotonic() >= until:
                del self._warned[job]
                self._put_back(job, slurm)
        return _EVERY_S

    def _own(self, jobs: Sequence[SlurmJob]) -> dict[int, SlurmJob]:
        """Return the jobs that are decided on."""
        raise NotImplementedError

    def _seen(self, jobs: Sequence[SlurmJob]) -> tuple[dict[int, LiveJob], set[int]]:
        """Return our jobs, and the nodes that are not ours to give."""
        if self._clock.monotonic() >= self._nodes_at:
            self._nodes_at = self._clock.monotonic() + _NODES_EVERY_S
            self._down = self._unusable()
        away = {place for name, place in self._place.items() if name in self._down}
        ours = {job.job_id for job in self._jobs.values()}
        away.update(*(self._held(job) for job in jobs if job.job_id not in ours and job.state.holds_cores))
        return {index: self._live(job) for index, job in self._jobs.items()}, away

    def _unusable(self) -> set[str]:
        """Return the nodes that no job of ours gets."""
        return {node.name for node in self._client.nodes() if not node.is_up}

    def _held(self, job: SlurmJob) -> tuple[int, ...]:
        return tuple(sorted(self._place[cell.node] for cell in job.cores if cell.node in self._place))

    def _live(self, job: SlurmJob) -> LiveJob:
        if not job.state.holds_cores:
            return LiveJob(state.OVER if job.state.is_over else state.WAITING, job.restarts)
        status = state.LEAVING if job.state is SlurmJobState.COMPLETING else state.RUNNING
        since_us = round(((job.start_time or self._origin) - self._origin) * US_PER_S)
        return LiveJob(status, job.restarts, since_us, self._held(job))

    def _reserve(self, wanted: Mapping[int, frozenset[int]]) -> None:
        """Make reservations be as they are wanted: only differences are written, and what is about to end."""
        now = self._clock.monotonic()
        for job, nodes in wanted.items():
            known, before, until = self._made.get(job, (None, "", 0.0))
            user = self._user_of(job)
            if (nodes, user) == (known, before) and until - now > _RENEWED_S:
                continue
            names, anew = [self._names[node] for node in sorted(nodes)], known is None
            name = self._name(job)
            if self._try("reserve", job, self._client.reserve, name, names, _LEASE_S, user, anew=anew):
                self._made[job] = nodes, user, now + _LEASE_S
                if nodes != known:
                    self._say("reserved", job, nodes=names)
            elif not anew:
                del self._made[job]  # it may have ended: the next step makes it anew
        for job in self._made.keys() - wanted.keys():
            slurm = self._jobs.get(job)
            if slurm is not None and slurm.reservation == self._name(job) and not slurm.state.is_over:
                self._try("leave", job, self._client.change_job, slurm.spec, ReservationName="")
            if self._try("unreserve", job, self._client.unreserve, self._name(job)):
                self._say("released", job)
            del self._made[job]

    def _join(self, orders: LiveOrders) -> None:
        """Send waiting jobs to their reservations; let jobs that were put back start again at once."""
        for job, slurm in self._jobs.items():
            changes: dict[str, str] = {}
            if not (slurm.reservation or self._prefix).startswith(self._prefix):
                continue
            if slurm.state is SlurmJobState.PENDING:
                user = self._made[job][1] if job in orders.reserved and job in self._made else None
                name = self._name(job) if user == slurm.user else ""
                if name != (slurm.reservation or ""):
                    changes["ReservationName"] = name
                if slurm.restarts and "begintime" in slurm.reason.lower():
                    changes["StartTime"] = "now"
                if job in self._resized:
                    self._resized.discard(job)
                    entry = self._pool.world.jobs[job]
                    changes["NumNodes"] = f"{entry.least}-{entry.asked}"
            elif slurm.reservation and slurm.state.holds_cores:
                changes["ReservationName"] = ""
            if changes:
                self._try("change", job, self._client.change_job, slurm.spec, **changes)

    def _preempt(self, job: int, *, warned: bool) -> None:
        slurm = self._jobs[job]
        self._say("preempted", job, warned=warned)
        if warned:
            self._try("signal", job, self._client.signal, slurm.spec, "USR1", Receiver.BATCH)
            warning_s = self._mechanism.warning_us / US_PER_S
            self._warned[job] = slurm, self._clock.monotonic() + warning_s
        else:
            self._put_back(job, slurm)

    def _put_back(self, job: int, slurm: SlurmJob) -> None:
        """Put a job back to the queue, unless this run of it is over."""
        now = self._jobs.get(job)
        if now is None or not now.state.holds_cores:
            return
        if (now.job_id, now.restarts) != (slurm.job_id, slurm.restarts):
            return
        if not self._try("put back", job, self._client.put_back, slurm.spec):
            self._pool.meet_again(job)

    def _shrink(self, job: int, nodes: Sequence[int]) -> None:
        names, slurm = [self._names[node] for node in nodes], self._jobs[job]
        if self._try("shrink", job, self._client.change_job, slurm.spec, ReqNodeList=",".join(names)):
            self._say("shrank", job, nodes=names)
            self._resized.add(job)
            self._shrank(job, len(names))
        else:
            self._pool.meet_again(job, rigid=True)

    def _shrank(self, job: int, nodes: int) -> None:
        """Let a job know how many nodes it keeps."""

    def close(self) -> None:
        """Leave no reservation, and no job that has saved and waits to be put back."""
        try:
            self._jobs = self._own(self._client.jobs().jobs)
        except ClusterError:
            return  # reservations end by themselves
        for job, (slurm, _) in self._warned.items():
            self._put_back(job, slurm)
        self._warned.clear()
        self._reserve({})

    def _name(self, job: int) -> str:
        return f"{self._prefix}{self._number[job]}"

    def _user_of(self, job: int) -> str:  # noqa: ARG002 - a subclass looks at the job
        """Return the user whose jobs may use a reservation."""
        return self._user

    def _say(self, kind: str, job: int | None = None, **fields: object) -> None:
        known = {} if job is None else {self.job_word: self._number[job]}
        self.events.put((kind, known | fields))

    def _try(
        self, what: str, job: int | None, act: Callable[..., None], *args: object, **named: object
    ) -> bool:
        """Do something; what Slurm refuses, or does not answer, is recorded. Return whether it was done."""
        try:
            act(*args, **named)
        except ClusterError as error:
            self._say("on-demand: not done", job, what=what, why=one_line(str(error)))
            return False
        return True


class OnDemandDriver(MechanismDriver):
    """Carries a mechanism out for the jobs of one replay.

    Parameters
    ----------
    client, nodes, clock
        See ``MechanismDriver``.
    session
        Which jobs there are, of which kinds, and the mechanism.
    memory_mib
        Of a node.
    """

    job_word = "trace_job"

    def __init__(
        self,
        client: CommandSlurm,
        session: SimulationSession,
        nodes: Sequence[str],
        memory_mib: int,
        clock: Clock | None = None,
    ) -> None:
        policy, workload = session.setting.rules.policy, session.workload
        assert isinstance(policy, Hybrid)
        jobs = workload.pool_jobs(np.arange(workload.count), with_memory=False)
        pool = LivePool(jobs, len(nodes), policy.mechanism)
        super().__init__(client, pool, policy.mechanism, nodes, clock)
        self._session, self._memory_mib = session, memory_mib
        self._number = dict(enumerate(workload.number.tolist()))
        self._index = {number: job for job, number in self._number.items()}
        self._run_id, self._folder = "", Path()

    def begin(self, run_id: str, origin: float, run: Path) -> None:
        """Take id, epoch second 0 and RUN of the replay; drop what an earlier part of it left."""
        self._run_id, self._folder = run_id, run / JOBS_FOLDER
        self._begin(run_id, origin)

    @contextmanager
    def applications(self) -> Iterator[Path]:
        """Give, while the context lasts, a table of what each job runs (``submitter.plan.read_apps``)."""
        with tempfile.TemporaryDirectory(prefix="osub-apps-") as folder:
            path = Path(folder, "apps.csv")
            rows = [f"{number},{sys.executable},{self._words(job)}" for number, job in self._index.items()]
            write_whole(path, "\n".join(["trace_job,app,args", *rows, ""]))
            yield path

    def _words(self, job: int) -> str:
        entry, rules = self._pool.world.jobs[job], self._pool.world.rules[0]
        unit = rules.whole * US_PER_S
        width = entry.asked if entry.kind == state.MALLEABLE else 1
        units = {"setup": entry.setup, "every": entry.every, "save": entry.save, "work": entry.work // width}
        seconds = {name: value / unit for name, value in units.items()}
        seconds["warning"] = rules.warning_us / US_PER_S
        seconds["longest-tick"] = 0.1 if rules.strategy == state.SHARE else 0
        asked = f" --asked {entry.asked}" if entry.kind == state.MALLEABLE else ""
        words = "".join(f" --{name} {value:.6f}" for name, value in seconds.items() if value)
        return f"-P -m workloads.checkpointed{asked}{words}"

    def request(self, job: PlannedJob, request: SubmitRequest) -> SubmitRequest:
        """Return what is asked of Slurm for a job, by its kind."""
        index = self._index[job.trace_job]
        entry = self._pool.world.jobs[index]
        options, limit = ["requeue"], request.time_limit_minutes
        if entry.kind == state.ON_DEMAND:
            options = [f"priority={_TOP_PRIORITY - index}"]
        elif entry.kind == state.MALLEABLE:
            request = replace(request, nodes=entry.least, most_nodes=entry.asked)
            limit = None if limit is None else -(-limit * entry.asked // entry.least)
        share = 1.0
        if self._mechanism.strategy != state.SHARE:
            options.append("exclusive")  # where cores are shared by force all memory keeps others off
        elif entry.kind == state.ON_DEMAND:
            share = _GUEST_SHARE
            request = replace(request, comment=f"{request.comment} gangd-weight={self._mechanism.weight}")
        else:
            share -= _GUEST_SHARE
        return replace(
            request,
            options=(*request.options, *options),
            time_limit_minutes=limit,
            memory_per_cpu_mib=None,
            memory_per_node_mib=int(self._memory_mib * share),
            environment={**request.environment, "OSUB_STATE": str(self._state(job.trace_job))},
        )

    def _state(self, number: int) -> Path:
        return self._folder / f"{number}.state"

    def _own(self, jobs: Sequence[SlurmJob]) -> dict[int, SlurmJob]:
        found = own_jobs(jobs, self._run_id, {os.geteuid()})
        return {self._index[key]: copies[0] for key, copies in found.items() if key in self._index}

    def _shrank(self, job: int, nodes: int) -> None:
        with suppress(OutputError):
            write_whole(self._state(self._number[job]).with_suffix(".state.nodes"), f"{nodes}\n")

    def amended(self, entry: JobEntry) -> JobEntry:
        """Return the entry of a job with its kind, and what it lost as its checkpoints say."""
        job = self._index.get(entry.job.trace_job)
        if job is None:
            return entry
        known, lost = self._pool.world.jobs[job], [us / US_PER_S for us in self._pool.lost_us.get(job, ())]
        notice = known.notice_us < state.FAR_US
        row = msgspec.structs.replace(
            entry.job,
            kind="ondemand" if known.kind == state.ON_DEMAND else "batch",
            elasticity="malleable" if known.kind == state.MALLEABLE else "rigid",
            preemptions=max(entry.job.preemptions, len(lost)),
            notice_s=known.notice_us / US_PER_S if notice else None,
            predicted_s=known.predicted_us / US_PER_S if notice else None,
            wasted_s=sum(lost) if lost else entry.job.wasted_s,
        )
        rows = list(entry.allocations or ())
        for place, (held, lost_s) in enumerate(zip(rows, lost, strict=False)):
            if held.wasted_s is not None:
                rows[place] = msgspec.structs.replace(held, wasted_s=min(lost_s, held.wasted_s))
        return msgspec.structs.replace(entry, job=row, allocations=tuple(rows) or None)

    def simulated(self) -> pl.DataFrame:
        """Return the jobs of the simulation of the same trace under the same mechanism."""
        return job_frame(self._session.run())


_INSTANT_S = 5.0


def compared(live: pl.DataFrame, simulated: pl.DataFrame) -> list[str]:
    """Return lines that compare a live run's jobs with those of the simulation of its trace."""
    left, right = _figures(live), _figures(simulated)
    width = max(map(len, left))
    lines = [f"{name:{width}}  {left[name]:>10}  {right[name]:>10}" for name in left]
    return [f"{'':{width}}  {'live':>10}  {'simulated':>10}", *lines]


def _figures(jobs: pl.DataFrame) -> dict[str, str]:
    demand, others = (jobs.filter((pl.col("kind") == "ondemand") == asked) for asked in (True, False))
    waits_s = demand["start_s"] - demand["submit_s"]
    instant = (waits_s <= _INSTANT_S).sum()
    lost = jobs["wasted_s"].fill_null(0) * jobs["nodes"] if "wasted_s" in jobs.columns else jobs["nodes"] * 0
    return {
        f"on-demand jobs that start within {_INSTANT_S:.0f} s": f"{instant} of {len(waits_s)}",
        "their mean wait": f"{_mean(waits_s):.1f} s",
        "mean turnaround of the others": f"{_mean(others['end_s'] - others['submit_s']):.1f} s",
        "preemptions": str(jobs["preemptions"].sum()),
        "node seconds of lost work": f"{lost.sum():.0f}",
    }


def _mean(values: pl.Series) -> float:
    known = values.drop_nulls().to_list()
    return float(sum(known)) / max(1, len(known))
