"""On-demand jobs that users submit to a live Slurm: their notices, and the service that frees nodes for them.

A notice is a word in the comment of a job that waits and may not start yet, for it is held, or has a begin
time or a dependency. The service answers by another word there, so the two need nothing but Slurm between
them. What a job says of itself can make it a likelier victim, and never a less likely one.
"""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from foundation.errors import ClusterError, UsageError
from foundation.slurm import CommandSlurm, Receiver, SlurmJob, SlurmJobState
from foundation.units import US_PER_S
from osub.live.on_demand import MechanismDriver
from simulator.hybrid import hybrid_state as state
from simulator.hybrid.hybrid_build import Mechanism
from simulator.hybrid.hybrid_family import FAMILIES, Hybrid
from simulator.hybrid.live_pool import LiveJob, LivePool
from submitter.plan import Clock

SETTINGS = ("warning", "release", "preemption")
AHEAD_S = 24 * 3600
"""A notice is at most so long before the arrival that it names."""
_ANSWER_S, _LOOK_S = 20.0, 0.3
_LONGEST_S = 365 * 24 * 3600
_NOTICE, _LEAST, _EVERY, _ANSWER = (
    re.compile(rf"(?:^|\s){word}=({value})(?=\s|$)")
    for word, value in (
        ("osub-notice", "[0-9]{10}"),
        ("osub-min-nodes", "[1-9][0-9]{0,5}"),
        ("osub-checkpoint", "[1-9][0-9]{0,6}"),
        ("osub-on-demand", "[a-z]+"),
    )
)
_IS_TO_COME = frozenset({"JobHeldUser", "JobHeldAdmin", "BeginTime", "Dependency"})
_TAKEN, _CAME = "taken", "came"
REFUSALS = {
    "user": "the service serves other users only: ask its administrator for --user with your name",
    "nodes": "with other on-demand jobs it needs more nodes than --most-nodes of the service: ask for fewer",
    "time": f"the arrival must be to come, and at most {AHEAD_S // 3600} h ahead",
    "unused": "nodes that were kept for an earlier notice of yours were not used: try again as much later",
    "array": "it is an array or a heterogeneous job: submit a job of its own for each",
    "expired": "it did not start in time, and waits as any other job now: look at `squeue`",
}


def mechanism_named(name: str, settings: Sequence[str]) -> Mechanism:
    """Return a mechanism such as ``cua-paa``; raises UsageError for a name or a setting that there is not."""
    families = {one.name.removeprefix("hybrid-"): one for one in FAMILIES if one.name != "hybrid-share"}
    if name not in families:
        raise UsageError(f"--mechanism {name}: there are {', '.join(families)}")
    for setting in settings:
        if setting.partition("=")[0] not in SETTINGS:
            raise UsageError(f"--set {setting}: the service has {', '.join(SETTINGS)}")
    policy = families[name].make(families[name].values(settings))
    assert isinstance(policy, Hybrid)
    return policy.mechanism


@dataclass(slots=True)
class _Demand:
    """An on-demand job: whose it is, and when it gave notice, came (None: not yet) and ran."""

    user: str
    noticed_s: float
    came_s: float | None = None
    has_run: bool = False


class NoticeService(MechanismDriver):
    """Frees nodes of a partition for the on-demand jobs of some users.

    Parameters
    ----------
    client, mechanism, nodes, clock
        See ``MechanismDriver``.
    partition
        Whose nodes and jobs.
    users
        Who may give notice.
    most_nodes
        So many nodes on-demand jobs have together, at most.
    """

    def __init__(
        self,
        client: CommandSlurm,
        mechanism: Mechanism,
        nodes: Sequence[str],
        *,
        partition: str,
        users: Collection[str],
        most_nodes: int,
        clock: Clock | None = None,
    ) -> None:
        pool = LivePool.empty(4 * len(nodes) + 64, len(nodes), mechanism)
        super().__init__(client, pool, mechanism, nodes, clock)
        self._partition, self._users, self._most_nodes = partition, frozenset(users), most_nodes
        self._demands: dict[int, _Demand] = {}
        self._plain: set[int] = set()
        self._barred: dict[str, float] = {}
        self._shared: frozenset[int] = frozenset()
        self._answers: list[tuple[SlurmJob, str]] = []
        self._begin(f"{partition}.live", self._clock.wall())

    def step(self) -> float | None:
        """Ask Slurm, decide and act; then answer those who gave notice."""
        pause_s = super().step()
        for slurm, word in self._answers:
            said = _ANSWER.sub("", slurm.comment or "")
            comment = f"{said} osub-on-demand={word}".strip()
            self._try(
                "answer", self._index.get(slurm.job_id), self._client.change_job, slurm.spec, Comment=comment
            )
        self._answers.clear()
        return pause_s

    def _answer(self, slurm: SlurmJob, word: str) -> None:
        self._answers.append((slurm, word))
        self.events.put((word if word in (_TAKEN, _CAME) else f"refused: {word}", {"job": slurm.job_id}))

    def _own(self, jobs: Sequence[SlurmJob]) -> dict[int, SlurmJob]:
        held = Counter(cell.node for job in jobs if job.state.holds_cores for cell in job.cores)
        self._shared = frozenset(
            self._place[name] for name, count in held.items() if count > 1 and name in self._place
        )
        for job_id, index in list(self._index.items()):
            if self._pool.world.jobs[index].status == state.OVER and index not in self._made:
                self._drop(job_id, index)
        for job in sorted(jobs, key=lambda job: job.job_id):
            if job.job_id not in self._index and job.partition == self._partition:
                self._consider(job)
        known = {job.job_id: job for job in jobs}
        self._plain &= known.keys()
        return {index: known[job_id] for job_id, index in self._index.items() if job_id in known}

    def _drop(self, job_id: int, index: int) -> None:
        """Forget a job; a user whose notice was for nothing gives none for as long as nodes were kept."""
        del self._index[job_id], self._number[index]
        self._warned.pop(index, None)
        self._resized.discard(index)
        demand = self._demands.pop(job_id, None)
        if demand is not None and not demand.has_run:
            now = self._clock.monotonic()
            self._barred[demand.user] = 2 * now - demand.noticed_s

    def _consider(self, job: SlurmJob) -> None:
        """Take a job that gives notice, or that runs on nodes of its own."""
        notice = _NOTICE.search(job.comment or "")
        if notice is not None and not job.state.is_over and job.job_id not in self._plain:
            why = self._refusal(job, int(notice[1]))
            if why is None:
                if self._enter(job, round((int(notice[1]) - self._origin) * US_PER_S)):
                    return
                why = "nodes"
            self._plain.add(job.job_id)
            self._answer(job, why)
        is_ours = (job.reservation or self._prefix).startswith(self._prefix) and job.het_job_id is None
        if job.state is SlurmJobState.RUNNING and is_ours and self._held(job):
            self._enter(job, None)

    def _refusal(self, job: SlurmJob, at_s: int) -> str | None:
        now = self._clock.wall()
        if job.user not in self._users:
            return "user"
        if job.array_job_id is not None or job.het_job_id is not None:
            return "array"
        if self._taken() + job.num_nodes > self._most_nodes:
            return "nodes"
        if job.state is not SlurmJobState.PENDING:
            return None
        release_s = self._mechanism.release_us / US_PER_S
        if not now - release_s <= at_s <= (job.submit_time or now) + AHEAD_S:
            return "time"
        return "unused" if self._clock.monotonic() < self._barred.get(job.user, 0.0) else None

    def _taken(self) -> int:
        """Return the nodes of on-demand jobs, but for late ones, for which none are kept."""
        entries = ((self._pool.world.jobs[self._index[job]], one) for job, one in self._demands.items())
        return sum(
            entry.asked for entry, one in entries if one.came_s is not None or entry.notice != state.PAST
        )

    def _enter(self, job: SlurmJob, predicted_us: int | None) -> bool:
        """Take a job, on demand if its arrival is predicted; return whether there was a place for it."""
        now_us = round((self._clock.wall() - self._origin) * US_PER_S)
        said = job.comment or ""
        least, every = _LEAST.search(said), _EVERY.search(said)
        asked = job.num_nodes
        work = (job.time_limit_s or _LONGEST_S) * US_PER_S
        entry = state.HybridJobRecord(asked=asked, least=asked, order=job.job_id, work=work)
        if predicted_us is not None:
            entry.kind, entry.notice = state.ON_DEMAND, state.SILENT
            entry.notice_us, entry.predicted_us = now_us, predicted_us
        elif least is not None and int(least[1]) <= asked:
            entry.kind, entry.least, entry.work = state.MALLEABLE, int(least[1]), work * asked
        elif every is not None:
            entry.every = int(every[1]) * US_PER_S
        index = self._pool.enter(entry)
        if index is None:
            return False
        self._index[job.job_id], self._number[index] = index, job.job_id
        if predicted_us is not None:
            self._demands[job.job_id] = _Demand(job.user, self._clock.monotonic())
            self._answer(job, _TAKEN)
        return True

    def _held(self, job: SlurmJob) -> tuple[int, ...]:
        """Return the nodes that a job has for itself; others are no job's to give."""
        places = super()._held(job)
        return tuple(one for one in places if one not in self._shared and self._names[one] not in self._down)

    def _unusable(self) -> set[str]:
        now = self._clock.wall()
        others = [one for one in self._client.reservations() if not one.name.startswith(self._prefix)]
        return super()._unusable().union(*(one.nodes for one in others if one.start_s <= now < one.end_s))

    def _seen(self, jobs: Sequence[SlurmJob]) -> tuple[dict[int, LiveJob], set[int]]:
        live, away = super()._seen(jobs)
        for job_id, index in self._index.items():
            slurm, demand = self._jobs.get(index), self._demands.get(job_id)
            if slurm is None or (slurm.state is SlurmJobState.RUNNING and not live[index].nodes):
                live[index] = LiveJob(state.OVER)
            elif demand is not None and slurm.state.is_over:
                demand.has_run |= slurm.state is not SlurmJobState.CANCELLED
            elif demand is not None:
                self._follow(slurm, demand, index, live)
        return live, away | self._shared

    def _follow(self, slurm: SlurmJob, demand: _Demand, index: int, live: dict[int, LiveJob]) -> None:
        """Look whether an on-demand job has come, and whether it starts in time."""
        now, waits = self._clock.monotonic(), slurm.state is SlurmJobState.PENDING
        is_to_come = waits and slurm.reason in _IS_TO_COME
        if demand.came_s is None and is_to_come:
            del live[index]
            return
        why = None
        demand.has_run |= not waits
        if demand.came_s is None:
            demand.came_s = now
            why = "nodes" if waits and self._taken() > self._most_nodes else None
            self._answer(slurm, why or _CAME)
        elif waits and (is_to_come or now - demand.came_s > self._mechanism.release_us / US_PER_S):
            why = "expired"
            self._answer(slurm, why)
        if why is not None:
            self._plain.add(slurm.job_id)
            live[index] = LiveJob(state.OVER)

    def _user_of(self, job: int) -> str:
        """Return the job's user once it is about to start there; until then no user gets in."""
        slurm, entry = self._jobs.get(job), self._pool.world.jobs[job]
        waits = slurm is not None and slurm.state is SlurmJobState.PENDING and entry.status == state.WAITING
        return slurm.user if slurm is not None and waits and entry.missing <= 0 else self._user

    def _preempt(self, job: int, *, warned: bool) -> None:
        if not warned and self._pool.world.jobs[job].every:
            self._try("signal", job, self._client.signal, self._jobs[job].spec, "USR1", Receiver.BATCH)
        super()._preempt(job, warned=warned)

    def close(self) -> None:
        """Leave no reservation, one whose making was interrupted among them."""
        super().close()
        self._sweep()


def serve_alone(about: str) -> socket.socket:
    """Hold what a second service for the same partition finds held; it goes with the process."""
    held = socket.socket(socket.AF_UNIX)
    try:
        held.bind(f"\0osub-on-demand-{sha256(about.encode()).hexdigest()[:32]}")
    except OSError as error:
        held.close()
        raise ClusterError(
            "another `osub on-demand serve` runs for this partition on this host: end it, or leave it to it"
        ) from error
    return held


def instant_of(text: str, now: float) -> float:
    """Return the epoch second of ``now``, ``now+20minutes``, ``14:30`` or ``2027-01-31T14:30``.

    Raises
    ------
    UsageError
        It is none of these, or is past.
    """
    units = {"": 1, "second": 1, "minute": 60, "hour": 3600}
    if found := re.fullmatch(r"now(?:\+([0-9]{1,6})(second|minute|hour|)s?)?", text):
        return now + int(found[1] or 0) * units[found[2] or ""]
    today = datetime.fromtimestamp(now, UTC).astimezone()
    try:
        if re.fullmatch(r"[0-9]{2}:[0-9]{2}(?::[0-9]{2})?", text):
            at = datetime.fromisoformat(f"{today:%Y-%m-%d}T{text}")
            return (at if at.timestamp() >= now else at + timedelta(days=1)).timestamp()
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--at {text}: give now, now+20minutes, 14:30 or {today:%Y-%m-%d}T14:30") from error
    if at.timestamp() < now:
        raise UsageError(f"--at {text} is past: it is {today:%Y-%m-%dT%H:%M:%S} now")
    return at.timestamp()


def give_notice(client: CommandSlurm, words: Sequence[str], at: str, comment: str = "") -> int:
    """Submit a job that comes at about an instant; return its number once the service has taken it.

    Parameters
    ----------
    words
        Further words for ``sbatch``: its options and the script.
    at
        See ``instant_of``; with ``now`` the job comes at once, else it is held until ``come``.
    comment
        What else the job's comment says.

    Raises
    ------
    UsageError, ClusterError
        The instant is none; Slurm or the service refuses the job, or no service answers. There is no job.
    """
    if any(word.partition("=")[0] == "--comment" for word in words):
        raise UsageError("--comment belongs before the options of sbatch: the notice is a word of it")
    at_s = instant_of(at, time.time())
    said = f"{comment} osub-notice={at_s:.0f}".strip()
    held = [] if at == "now" else ["--hold"]
    job = client.submit_by([*held, "--exclusive", "--mem=0", f"--comment={said}", *words])
    answer = _answer_to(client, job, ())
    if answer in (_TAKEN, _CAME):
        return job
    client.cancel([job])
    raise ClusterError(f"no job was left in the queue: {_why(answer)}")


def come(client: CommandSlurm, job_id: int) -> None:
    """Let a job that gave notice come now.

    Raises
    ------
    ClusterError
        There is no such job, it gave no notice or is not held, it is another user's, or no service answers.
    """
    job = client.job(job_id)
    if job is None:
        raise ClusterError(f"Slurm knows no job {job_id}: `squeue --me` lists yours")
    if _NOTICE.search(job.comment or "") is None:
        raise ClusterError(f"job {job_id} has given no notice: `scontrol release {job_id}` starts a held job")
    if job.state is not SlurmJobState.PENDING or not job.reason.startswith("JobHeld"):
        raise ClusterError(f"job {job_id} is not held: it is {job.state}, as `squeue -j {job_id}` says")
    before = _ANSWER.search(job.comment or "")
    client.release(job_id)
    answer = _answer_to(client, job_id, () if before is None else (before[1],))
    if answer != _CAME:
        raise ClusterError(f"job {job_id} waits as any other now: {_why(answer)}")


def _answer_to(client: CommandSlurm, job_id: int, known: Collection[str]) -> str | None:
    """Wait for a new answer of the service; None where none comes."""
    until = time.monotonic() + _ANSWER_S
    while time.monotonic() < until:
        job = client.job(job_id)
        if job is not None and job.state.is_over:
            return _CAME
        found = _ANSWER.search((job.comment or "") if job is not None else "")
        if found is not None and found[1] not in known:
            return found[1]
        time.sleep(_LOOK_S)
    return None


def _why(answer: str | None) -> str:
    none = f"no service has answered within {_ANSWER_S:.0f} s; an administrator starts `osub on-demand serve`"
    return REFUSALS.get(answer, answer) if answer is not None else none
