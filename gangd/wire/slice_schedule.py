"""An agent's slice schedule, and the slices after which both sides look.

What an agent knows from the controller: one pure object that judges each message and answers "slice n?".

``SliceSchedule`` follows one controller, refuses replays and others, keeps the plans that overlap in time
(a revision becomes known before it is in force) and the lease. It owns no clock: instants are arguments.
An agent's loop is::

    message = decode_down(frames, node)             # WireError: count and drop
    timeline.accept(message, arrival_ns, offset_ns)    # WireError: count and drop; MissedPlanError: Resend
    ...
    if timeline.lease_over(now_ns): thaw everything
    held = timeline.held(timeline.slice_at(now_ns + offset_ns))

A message that is refused changes nothing, with two exceptions that are there for safety: a
``MissedPlanError`` voids the plans, so that ``held`` is empty until the whole plan has come again; and
the first message of a later controller, whatever becomes of it, voids those of the earlier one.

Slices after which both sides look: agents collect, sample and report, the controller decides.

Python code that runs on a job's core costs the job more than its own CPU time: it finds cold caches, and a
rank of a tightly coupled job that waits makes all ranks wait. Switching is done at every slice by a thread
that does little else; all the rest is done once in about ``LOOK_NS``, however short the slices are.

All nodes look after the same slices, so that what they say of a job that spans nodes is of the same time.
Looks are an odd number of slices apart and move on by one slice after every eighth: of jobs that take turns,
each is then seen held and seen running.

A node on which everything goes on as it has for seconds looks after every few looks only, by the same rule:
an odd number of them apart, moving on now and then, the same ones everywhere.

Of what a node sees, the controller hears at once what is news. In a large cluster (that is: under a long
lease) a node without news is silent meanwhile, for ``silence_ns`` at most. All end their silence at the same
instants, so that what they say of a job that spans nodes is of the same slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gangd.wire.messages import (
    AllocatedCores,
    Beat,
    Bounds,
    ControllerIdentity,
    DownMessage,
    ExemptJobs,
    ForeignControllerError,
    MalformedError,
    MemoryTerms,
    MissedPlanError,
    PlanChange,
    ReplayedError,
    SlicePlan,
    Track,
)

LOOK_NS = 250_000_000
CALM_NS = 900_000_000
"""Looks of a calm node are at most this far apart: agents report about once a second whatever happens."""
_LOOKS_A_PHASE = 8
SHORT_LEASE_NS = 2_000_000_000
"""Up to this lease a node reports after every look."""
MOST_UNTOLD_SLICES = 60
"""Slices that a node reports at once at most: it keeps 64."""


def slices_a_look(quantum_ns: int) -> int:
    """Return how many slices of ``quantum_ns`` lie between two looks: odd, 1 from 250 ms on."""
    fitting = max(1, LOOK_NS // quantum_ns)
    return fitting + 1 - fitting % 2


def looks_a_calm_look(quantum_ns: int) -> int:
    """Return after how many looks a calm node looks: odd, 1 for slices that are long themselves."""
    fitting = max(1, CALM_NS // (slices_a_look(quantum_ns) * quantum_ns))
    return fitting - 1 + fitting % 2


def is_look(number: int, quantum_ns: int, *, calm: bool = False) -> bool:
    """Whether the switch that begins slice ``number`` is followed by a look (of a calm node)."""
    spacing = slices_a_look(quantum_ns)
    look, place = divmod(number, spacing)
    if calm:
        every = looks_a_calm_look(quantum_ns)
        if look % (every * _LOOKS_A_PHASE - 1) % every:  # of eight, one comes a look earlier
            return False
    return place == look // _LOOKS_A_PHASE % spacing


def silence_ns(lease_ns: int, quantum_ns: int) -> int:
    """Return for how long a node without news is silent; 0 if it reports after every look.

    A lease covers two such reports: one may be late.
    """
    if lease_ns <= SHORT_LEASE_NS:
        return 0
    look_slices = slices_a_look(quantum_ns) * (looks_a_calm_look(quantum_ns) + 1)  # until the look after it
    return min(lease_ns * 9 // 20, (MOST_UNTOLD_SLICES - look_slices) * quantum_ns)


def silence_of(number: int, lease_ns: int, quantum_ns: int) -> int:
    """Return the silence in which a slice is: the first look in each is reported, news or not."""
    return number * quantum_ns // max(silence_ns(lease_ns, quantum_ns), 1)


def next_look(number: int, quantum_ns: int, *, calm: bool = False) -> int:
    """Return the first slice from ``number`` on that begins with a look (of a calm node)."""
    while not is_look(number, quantum_ns, calm=calm):
        number += 1
    return number


_NO_JOBS: frozenset[int] = frozenset()
_NOTHING: Mapping[int, frozenset[int]] = MappingProxyType({})
MAX_PENDING_PLANS = 256
REMEMBERED_CONTROLLERS = 16


@dataclass(frozen=True, slots=True)
class ScheduleRevision:
    """One revision: the tracks in force from ``first_slice`` until the next revision's."""

    epoch: int
    first_slice: int
    base_slice: int
    base_ns: int
    quantum_ns: int
    tracks: dict[int, Track]

    def jobs(self) -> frozenset[int]:
        """All jobs that it names."""
        return frozenset(
            job for track in self.tracks.values() for sets in track.slices for job in (*sets.run, *sets.held)
        )


class SliceSchedule:
    """The schedule of one node as its agent knows it.

    Attributes
    ----------
    controller
        The controller that is followed, None before the first message.
    exempt
        The newest exemptions, with ``never_freeze`` latched over all messages (``keep`` ends the latch).
    horizon
        Slices below are final.
    cores
        How many cores of this node each job has that was named, as long as it is here or planned.
    lease_ns
        How long the newest message that renewed the lease lets jobs be held; 0 before the first.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.controller: ControllerIdentity | None = None
        self.exempt = ExemptJobs()
        self._listed = ExemptJobs()
        self._latched: frozenset[int] = frozenset()
        self.horizon = 0
        self._plans: list[ScheduleRevision] = []
        self.cores: Mapping[int, int] = {}
        self.bounds: Bounds | None = None
        self.memory: MemoryTerms | None = None
        self._epoch: int | None = None
        self._seqs: dict[ControllerIdentity, int] = {}
        self._lease_until_ns: int | None = None
        self.lease_ns = 0

    @property
    def epoch(self) -> int | None:
        """Epoch of the newest plan; None while there is none (as ``Resend.have_epoch`` wants it)."""
        return self._epoch

    @property
    def lease_until_ns(self) -> int | None:
        """End of the lease on the agent's clock; None before the first message and after a thaw of all."""
        return self._lease_until_ns

    def lease_over(self, now_ns: int) -> bool:
        """Whether nothing may be held at ``now_ns`` (agent's clock), because no valid message is recent."""
        return self._lease_until_ns is None or now_ns >= self._lease_until_ns

    def accept(self, message: DownMessage, arrival_ns: int, offset_ns: int = 0) -> None:
        """Take in a decoded message.

        Parameters
        ----------
        message
            From ``decode_down``.
        arrival_ns
            When it arrived, on the agent's clock.
        offset_ns
            Controller's clock minus agent's clock. The lease runs from when the message was *sent*, if
            that is the earlier: one that was stuck in a buffer for a minute renews nothing.

        Raises
        ------
        ForeignControllerError
            It is from a controller other than the one followed, not from a later one, and the followed
            one's lease still runs. (A later controller's host may have had its clock set back.)
        ReplayedError
            Its sequence number or epoch did not grow.
        MalformedError
            It contradicts what was promised final.
        MissedPlanError
            It builds on a plan that never came; the plans are void now.
        """
        if self.controller is not None and message.controller != self.controller:
            later = is_later(message.controller, self.controller)
            if not later and not self.lease_over(arrival_ns):
                raise ForeignControllerError(f"{self.node}: an earlier controller is still speaking")
            self._follow(message.controller)
        seq = self._seqs.get(message.controller, -1)
        if message.seq <= seq:
            raise ReplayedError(f"{self.node}: sequence {message.seq} came after {seq}")
        if message.node is not None and self._epoch is not None and message.epoch < self._epoch:
            raise ReplayedError(f"{self.node}: epoch {message.epoch} came after {self._epoch}")
        self.controller = message.controller
        self._take(message)
        self._seqs[message.controller] = message.seq
        if message.node is not None:
            sent_ns = min(arrival_ns, message.sent_ns - offset_ns)
            self._lease_until_ns = max(self._lease_until_ns or 0, sent_ns + message.lease_ns)
            self.lease_ns = message.lease_ns

    def successor(self) -> SliceSchedule:
        """Return the timeline of a later controller, which knows nothing yet but whom never to freeze."""
        later = SliceSchedule(self.node)
        later._seqs = dict(list(self._seqs.items())[-REMEMBERED_CONTROLLERS:])
        later._latched = self._latched
        later._exempt_now()
        return later

    def latch(self, jobs: tuple[int, ...]) -> None:
        """Never freeze these jobs again, until they are gone from here."""
        self._latched |= frozenset(jobs)
        self._exempt_now()

    def give_up(self) -> None:
        """Hold nothing any more, as after a thaw of all."""
        self._void()
        self._lease_until_ns = None

    def greet(self, controller: ControllerIdentity, now_ns: int) -> None:
        """Count a controller's messages anew that welcomes the agent while no lease runs.

        A number that was far too high would otherwise shut the controller out until it has come that far.
        Nothing is held then, and the transport refuses what is repeated.
        """
        if self.lease_over(now_ns) and controller in self._seqs:
            del self._seqs[controller]
            self._void()

    def keep(self, jobs: frozenset[int]) -> None:
        """End the latch of all but these jobs, the ones that live here: one that is gone may run anew.

        What the newest message lists stays exempt: a job may end before it ever had a process.
        """
        if not self.cores.keys() <= jobs:
            kept = jobs.union(*(plan.jobs() for plan in self._plans))
            self.cores = {job: cores for job, cores in self.cores.items() if job in kept}
        if not self._latched <= jobs:
            self._latched &= jobs
            self._exempt_now()

    def held(
        self,
        number: int,
        yielding: frozenset[int] = _NO_JOBS,
        instead: Mapping[int, frozenset[int]] = _NOTHING,
    ) -> frozenset[int]:
        """Jobs that are held in slice ``number`` on this node, exemptions applied; lease not looked at.

        ``instead`` has, by track, jobs that are held instead of those of its plan.

        Of the jobs that are ``yielding`` those are exempt that are suspended, and no others. One that is
        exempt and that the plan does not name runs together with the owner of the slice: where m gangs take
        turns, in two of m + 1 slices. It is held in the others, and so gets as much as each of the gangs.
        """
        plan = self._plan(number)
        if plan is None:
            return _NO_JOBS
        held = {
            job
            for name, track in plan.tracks.items()
            for job in instead.get(name, _NO_JOBS) or _sets(track, number)[1]
        }
        exempt = self.exempt
        free = {*exempt.never_freeze, *exempt.opt_out}
        gangs = max((_gangs(track) for track in plan.tracks.values()), default=1)
        if free and 2 * number % (gangs + 1) >= 2:
            held |= (free & yielding) - self.jobs(number)
        return frozenset(held.difference(free - yielding, exempt.suspended))

    def run(self, number: int) -> frozenset[int]:
        """Jobs that own slice ``number`` on this node."""
        plan = self._plan(number)
        if plan is None:
            return _NO_JOBS
        return frozenset(job for track in plan.tracks.values() for job in _sets(track, number)[0])

    def jobs(self, number: int) -> frozenset[int]:
        """All jobs that the plan in force in slice ``number`` names."""
        plan = self._plan(number)
        return _NO_JOBS if plan is None else plan.jobs()

    def ahead(self, number: int) -> frozenset[int]:
        """All jobs that the plans name which are in force in slice ``number`` or later."""
        return _NO_JOBS.union(*(plan.jobs() for plan in self._from(number)))

    def yielding(self, number: int) -> frozenset[int]:
        """Jobs that yield when held, as a plan says that is in force in slice ``number`` or later."""
        return frozenset(
            hold.job
            for plan in self._from(number)
            for track in plan.tracks.values()
            for hold in track.holds
            if hold.kind == "yield"
        )

    def tracks(self, number: int) -> tuple[Track, ...]:
        """Tracks in force in slice ``number``."""
        plan = self._plan(number)
        return () if plan is None else tuple(plan.tracks.values())

    def sets(self, number: int) -> dict[int, tuple[frozenset[int], frozenset[int]]]:
        """Jobs that own slice ``number`` and those that are held in it, by track."""
        tracks = {track.track: _sets(track, number) for track in self.tracks(number)}
        return {name: (frozenset(run), frozenset(held)) for name, (run, held) in tracks.items()}

    def slice_at(self, instant_ns: int) -> int | None:
        """Tell the slice of an instant of the controller's clock; None before any plan is in force."""
        for plan in reversed(self._plans):
            number = plan.base_slice + (instant_ns - plan.base_ns) // plan.quantum_ns
            if number >= plan.first_slice:
                return number
        return None

    def start_ns(self, number: int) -> int | None:
        """Start of slice ``number`` on the controller's clock; None before any plan is in force."""
        plan = self._plan(number)
        return None if plan is None else plan.base_ns + (number - plan.base_slice) * plan.quantum_ns

    def length_ns(self, number: int) -> int | None:
        """Length of slice ``number``; None before any plan is in force."""
        plan = self._plan(number)
        return None if plan is None else plan.quantum_ns

    def epoch_of(self, number: int) -> int | None:
        """Epoch of the plan in force in slice ``number``."""
        plan = self._plan(number)
        return None if plan is None else plan.epoch

    def first_slice(self) -> int | None:
        """First slice of the oldest plan that is kept: where to begin when there is no slice yet."""
        return self._plans[0].first_slice if self._plans else None

    def _from(self, number: int) -> list[ScheduleRevision]:
        now = self._plan(number)
        return [plan for plan in self._plans if plan is now or plan.first_slice > number]

    def _plan(self, number: int) -> ScheduleRevision | None:
        return next((plan for plan in reversed(self._plans) if plan.first_slice <= number), None)

    def _take(self, message: DownMessage) -> None:
        if isinstance(message, SlicePlan):
            self._check_final(message)
            tracks = {track.track: track for track in message.tracks}
            base = (message.first_slice, message.first_start_ns, message.quantum_ns)
            self._install(
                ScheduleRevision(message.epoch, message.first_slice, *base, tracks), message.horizon
            )
            self._set_exempt(message.exempt)
            self._note_cores(message.cores)
            self.bounds = message.bounds
            self.memory = message.memory if isinstance(message.memory, MemoryTerms) else None
        elif isinstance(message, PlanChange):
            if self._epoch is None or message.base_epoch != self._epoch:
                raise self._missed(message.base_epoch)
            self._check_final(message)
            last = self._plans[-1]
            tracks = {name: track for name, track in last.tracks.items() if name not in message.drop}
            tracks |= {track.track: track for track in message.tracks}
            base = (last.base_slice, last.base_ns, last.quantum_ns)
            self._install(
                ScheduleRevision(message.epoch, message.first_slice, *base, tracks), message.horizon
            )
            if message.exempt is not None:
                self._set_exempt(message.exempt)
            self._note_cores(message.cores)
        elif isinstance(message, Beat):
            if self._epoch is None or message.epoch != self._epoch:
                raise self._missed(message.epoch)
            self.horizon = max(self.horizon, message.horizon)
        elif message.jobs is None:
            self.give_up()
        else:
            self.latch(message.jobs)

    def _check_final(self, message: SlicePlan | PlanChange) -> None:
        names = [track.track for track in message.tracks]
        if len(set(names)) != len(names):
            raise MalformedError(f"{self.node}: two tracks of one name in epoch {message.epoch}")
        if any(track.first_slice > message.first_slice for track in message.tracks):
            raise MalformedError(f"{self.node}: a track begins after its plan of epoch {message.epoch}")
        if self._epoch is not None and message.epoch > self._epoch and message.first_slice < self.horizon:
            raise MalformedError(
                f"{self.node}: epoch {message.epoch} changes slice {message.first_slice}, "
                f"but those below {self.horizon} are final"
            )

    def _install(self, plan: ScheduleRevision, horizon: int) -> None:
        earlier = [known for known in self._plans if known.first_slice < plan.first_slice]
        self._plans = [*earlier[-MAX_PENDING_PLANS:], plan]
        self._epoch = plan.epoch
        self.horizon = max(self.horizon, horizon)

    def prune(self, number: int) -> None:
        """Drop the plans that ended before slice ``number``: the agent calls it as slices pass."""
        while len(self._plans) > 1 and self._plans[1].first_slice <= number:
            del self._plans[0]

    def _note_cores(self, cores: AllocatedCores) -> None:
        if cores:
            self.cores = {**self.cores, **{each.job: each.cores for each in cores}}

    def _set_exempt(self, exempt: ExemptJobs) -> None:
        self._listed = exempt
        self._latched |= frozenset(exempt.never_freeze)
        self._exempt_now()

    def _exempt_now(self) -> None:
        never = self._latched.union(self._listed.never_freeze)
        self.exempt = ExemptJobs(tuple(sorted(never)), self._listed.opt_out, self._listed.suspended)

    def _missed(self, epoch: int) -> MissedPlanError:
        have = self._epoch
        self._void()
        return MissedPlanError(f"{self.node}: the plan of epoch {epoch} never came, the newest is of {have}")

    def _void(self) -> None:
        self._plans = []
        self._epoch = None
        self.horizon = 0

    def _follow(self, controller: ControllerIdentity) -> None:
        """Turn to a later controller: what the earlier one said is void, but for the latch."""
        self._void()
        self.controller = controller
        self._set_exempt(ExemptJobs())
        self._seqs = dict(list(self._seqs.items())[-REMEMBERED_CONTROLLERS:])
        self._lease_until_ns = None


def _sets(track: Track, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Run-set and held-set of a track in a slice; both empty past the end of one that does not repeat."""
    place = number - track.first_slice
    if track.repeat:
        place %= len(track.slices)
    if not 0 <= place < len(track.slices):
        return (), ()
    return track.slices[place].run, track.slices[place].held


def _gangs(track: Track) -> int:
    """How many gangs take turns on a core of a track, on average."""
    runs = [len(sets.run) for sets in track.slices]
    jobs = {job for sets in track.slices for job in (*sets.run, *sets.held)}
    return max(1, round(len(runs) * len(jobs) / max(1, sum(runs))))


def is_later(one: ControllerIdentity, other: ControllerIdentity) -> bool:
    """Whether a controller is later than another: of two that speak, the later one is followed."""
    return (one.started_ns, one.incarnation) > (other.started_ns, other.incarnation)
