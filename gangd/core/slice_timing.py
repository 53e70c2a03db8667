"""When slices are and how long: their numbers and instants, and a pace for switches that are late.

Slice numbers and instants: slices follow each other without gap; a new quantum begins at a slice.

Longer slices and more foresight while switches are late: pure, from what agents report.

A host that has neighbours may take twice as long for everything in one hour and not in the next. Then two
things go wrong. Switches take more of each slice, and as a gang waits for its latest node, all of its nodes
lose it: slices get longer. And plans reach their nodes after they should count: more slices are final.

* *Lost* is the time from a slice's instant to the last write of its switch: the mean for each node since the
  last look, and of these what nine of ten nodes do not exceed: one broken node does not slow all others.
* More than ``MOST_LOST`` of a slice in two looks in a row: slices are doubled, up to ``quantum_max_ns`` and
  not so far that the turns of the most crowded core would exceed the freeze cap.
* Slices of half the length would lose less than ``LITTLE_LOST`` in six looks in a row: they are halved, down
  to what the administrator asked for. ``LITTLE_LOST`` is less than ``MOST_LOST``: nothing swings.
* Where tasks wait for memory for more than ``MOST_PAGING`` of the time slices are doubled, too: the longer a
  gang runs, the less often its pages are read anew. They are not halved above ``LITTLE_PAGING``.
* Slices are final so far ahead that a plan has ``LEADS`` round trips, and as many times what is lost, to
  reach its node; never fewer than the administrator asked for. They grow at once and shrink slowly.

With ``tune`` each group of gangs that contend has turns and a hold mode of its own (``SliceTuner``):

* A switch costs what the group's own nodes lose by it, and ``REFILL_NS``. More than ``TUNED_MOST`` of a
  turn in two looks in a row: turns are doubled. Turns of half the length would cost less than
  ``TUNED_LITTLE`` in six looks in a row: they are halved. Both between the administrator's bounds. Slices
  are as long as the shortest turn of any group; a longer turn is several slices.
* Gangs that yield are frozen while that takes little from them: while what is left to them in others'
  slices is no more than ``LEFT_LITTLE`` of their own cores' time. They yield again as soon as owners leave
  more than ``IDLE_LITTLE`` of their slices. Each return doubles the looks that it takes to freeze them
  again. What a yielding gang costs the owner in caches and memory is in no account of the kernel, so no gang
  yields that is to be frozen.
* A group of other gangs begins anew from what was asked for; one that lost a gang goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from gangd.core.gang_settings import GREATEST_QUANTUM_NS, MS, SECOND, CoreSettings
from gangd.core.scheduler_events import CpuSample, SliceUse


class Era(NamedTuple):
    """A run of slices of one length: from ``first_slice``, which starts at ``start_ns``, on."""

    first_slice: int
    start_ns: int
    quantum_ns: int


class Timebase:
    """Where slices lie on the controller's clock."""

    def __init__(self, start_ns: int, quantum_ns: int) -> None:
        self._eras = [Era(0, start_ns, quantum_ns)]

    @property
    def quantum_ns(self) -> int:
        """Length of the slices of the newest era."""
        return self._eras[-1].quantum_ns

    def era(self, number: int) -> Era:
        """Era of slice ``number``; the oldest one known for slices before it."""
        for era in reversed(self._eras):
            if era.first_slice <= number:
                return era
        return self._eras[0]

    def slice_at(self, now_ns: int) -> int:
        """Return the number of the slice that holds the instant; negative before slice 0."""
        for era in reversed(self._eras):  # nearly always the newest: it is asked for in each report
            if era.start_ns <= now_ns:
                break
        return era.first_slice + (now_ns - era.start_ns) // era.quantum_ns

    def start_ns(self, number: int) -> int:
        """Start of slice ``number``."""
        era = self.era(number)
        return era.start_ns + (number - era.first_slice) * era.quantum_ns

    def length_ns(self, number: int) -> int:
        """Length of slice ``number``."""
        return self.era(number).quantum_ns

    def change(self, first_slice: int, quantum_ns: int) -> None:
        """Begin a new era with slices of ``quantum_ns`` at ``first_slice``."""
        start_ns = self.start_ns(first_slice)
        kept = [era for era in self._eras if era.first_slice < first_slice]
        self._eras = [*kept[-3:], Era(first_slice, start_ns, quantum_ns)]


LOOK_NS = 5 * SECOND
MOST_LOST, LITTLE_LOST = 0.03, 0.02
BAD_LOOKS, GOOD_LOOKS = 2, 6
MOST_PAGING, LITTLE_PAGING = 0.05, 0.02
LEADS = 4
MORE_LOOKAHEAD = 6
_ENOUGH = 8
_STALE_NS = 2 * LOOK_NS


@dataclass(slots=True)
class _Node:
    """What a node reported since it was judged: switches, what they took of what time; the last share.

    ``stalled`` is for how long in all some task had waited for memory (us), and when that was reported (ns).
    """

    heard_ns: int
    slices: int = 0
    lost_us: int = 0
    ran_ns: int = 0
    share: float | None = None
    rtt_us: int = 0
    held: frozenset[int] = frozenset()
    stalled: tuple[int, int] | None = None
    paging: float = 0.0


REFILL_NS = 2 * MS
"""What a switch takes from two coupled gangs beyond its own time (caches, a late tick): they made 0.994 of
the dedicated speed with slices of 250 ms and 0.960 with 50 ms, which is 1.7 ms a switch."""
TUNED_MOST, TUNED_LITTLE = 0.015, 0.010
LEFT_LITTLE, IDLE_LITTLE = 0.03, 0.02
"""A gang that yields to a busy one gets 1.1% anyway: half a tick of 4 ms a switch of 250 ms, and 3 of 1024
parts. The owner of the slice gets that when it is frozen, so freezing takes 2% at most."""
MOST_PATIENCE = 64


class TunedTurn(NamedTuple):
    """For how long a gang runs at a stretch, and whether it is frozen although its jobs would yield."""

    turn_ns: int
    freezes: bool


class Contenders(NamedTuple):
    """A group of gangs that contend: their ids in order, nodes, gangs on a core, if all may be frozen."""

    gangs: tuple[int, ...]
    nodes: frozenset[int]
    crowd: int
    may_freeze: bool


@dataclass(slots=True)
class TunedGroup:
    """What was decided for a group, and why.

    Attributes
    ----------
    gangs
        Ids of its gangs.
    turn_ns, freezes
        See ``TunedTurn``.
    cost_ns
        What a switch costs at the last look, ``REFILL_NS`` included; None: not known.
    left
        Share of their cores' time that was left to gangs that yield, or that owners of slices left while the
        others were frozen; None: not known.
    """

    gangs: tuple[int, ...]
    turn_ns: int
    freezes: bool = False
    cost_ns: float | None = None
    left: float | None = None
    doublings: int = 0
    bad: int = 0
    good: int = 0
    calm: int = 0


@dataclass(slots=True)
class _GangUse:
    """CPU time (us) of a gang since it was judged: of its cores in its slices, used there, and elsewhere."""

    cores_us: int = 0
    used_us: int = 0
    left_us: int = 0


class SliceTuner:
    """Turns and hold modes by group, between what the administrator allows."""

    def __init__(self) -> None:
        self.groups: dict[tuple[int, ...], TunedGroup] = {}
        self._uses: dict[int, _GangUse] = {}
        self._patience: dict[int, int] = {}

    def tuned(self) -> dict[int, TunedTurn]:
        """Return what each gang of a group is to have."""
        return {
            gang: TunedTurn(group.turn_ns, group.freezes)
            for group in self.groups.values()
            for gang in group.gangs
        }

    def note(self, gang: int, cores: int, sample: CpuSample) -> None:
        """Take in what a gang used on so many cores of a node."""
        use = self._uses.setdefault(gang, _GangUse())
        if sample.held_us:
            use.left_us += sample.cpu_us
        else:
            use.cores_us += cores * sample.span_us
            use.used_us += min(sample.cpu_us + sample.delay_us, cores * sample.span_us)

    def judge(
        self,
        settings: CoreSettings,
        groups: Iterable[Contenders],
        lost_ns: Callable[[Iterable[int]], float | None],
        known: Container[int],
        paging: Callable[[Iterable[int]], float],
    ) -> None:
        """Decide anew.

        Parameters
        ----------
        settings
            Bounds.
        groups
            All groups that contend now.
        lost_ns
            Returns what nodes lose to a switch; None where it is not known.
        known
            Gangs that there are.
        """
        formers, before = {gang: one for one in self.groups.values() for gang in one.gangs}, self.groups
        self.groups = {}
        for facts in groups:
            group = before.get(facts.gangs) or _begun(facts, formers)
            self.groups[facts.gangs] = group
            _lengthen(group, facts, settings, lost_ns(facts.nodes), paging(facts.nodes))
            self._choose_hold(group, facts)
        inside = {gang for gangs in self.groups for gang in gangs}
        for group in before.values():
            if group.freezes and all(gang in known for gang in group.gangs):
                self._tire([gang for gang in group.gangs if gang not in inside])  # they fell idle
        self._uses = {gang: use for gang, use in self._uses.items() if gang in inside}
        self._patience = {gang: looks for gang, looks in self._patience.items() if gang in known}

    def _choose_hold(self, group: TunedGroup, facts: Contenders) -> None:
        uses = [self._uses.get(gang) for gang in facts.gangs]
        seen = [use for use in uses if use is not None and use.cores_us]
        if not facts.may_freeze:
            group.freezes = False
        elif group.calm < 0 or len(seen) == len(uses):
            self._judge_use(group, seen)
            for gang in group.gangs:
                self._uses.pop(gang, None)

    def _judge_use(self, group: TunedGroup, seen: Sequence[_GangUse]) -> None:
        if group.calm < 0:
            group.calm = 0  # what was reported meanwhile began under the former hold mode
        else:
            cores_us = sum(use.cores_us for use in seen)
            spent_us = sum(use.cores_us - use.used_us if group.freezes else use.left_us for use in seen)
            group.left = spent_us / cores_us
            little = IDLE_LITTLE if group.freezes else LEFT_LITTLE
            group.calm = group.calm + 1 if group.left <= little else 0
            if group.freezes and not group.calm:
                group.freezes, group.calm = False, -1
                self._tire(group.gangs)
            elif not group.freezes and group.calm >= max(
                self._patience.get(gang, BAD_LOOKS) for gang in group.gangs
            ):
                group.freezes, group.calm = True, -1

    def _tire(self, gangs: Iterable[int]) -> None:
        for gang in gangs:
            self._patience[gang] = min(2 * self._patience.get(gang, BAD_LOOKS), MOST_PATIENCE)


def _begun(facts: Contenders, formers: dict[int, TunedGroup]) -> TunedGroup:
    """Return the group as its gangs' former one had it, where all of them were in it, else from anew."""
    former = formers.get(facts.gangs[0])
    if former is None or any(formers.get(gang) is not former for gang in facts.gangs):
        return TunedGroup(facts.gangs, 0)
    return TunedGroup(facts.gangs, former.turn_ns, former.freezes, doublings=former.doublings)


def _lengthen(
    group: TunedGroup, facts: Contenders, settings: CoreSettings, lost_ns: float | None, paging: float
) -> None:
    least_ns = settings.least_ns
    most_ns = max(least_ns, min(settings.quantum_max_ns, settings.freeze_cap_ns // max(1, facts.crowd)))
    group.cost_ns = None if lost_ns is None else lost_ns + REFILL_NS

    def turn_ns(doublings: int) -> int:
        asked_ns = settings.quantum_ns
        return min(max(asked_ns << doublings if doublings > 0 else asked_ns >> -doublings, least_ns), most_ns)

    if group.cost_ns is not None:
        now_ns, half_ns = turn_ns(group.doublings), turn_ns(group.doublings - 1)
        is_bad = group.cost_ns > TUNED_MOST * now_ns or paging > MOST_PAGING
        is_good = group.cost_ns < TUNED_LITTLE * half_ns and paging < LITTLE_PAGING
        group.bad = group.bad + 1 if is_bad else 0
        group.good = group.good + 1 if half_ns < now_ns and is_good else 0
        step = (group.bad >= BAD_LOOKS and now_ns < most_ns) - (group.good >= GOOD_LOOKS)
        if step:
            group.doublings, group.bad, group.good = group.doublings + step, 0, 0
    while group.doublings > 0 and turn_ns(group.doublings - 1) == most_ns:
        group.doublings -= 1  # a core became more crowded
    group.turn_ns = turn_ns(group.doublings)


class QuantumPace:
    """The length of slices and how many are final, between what is asked for and what is allowed.

    Attributes
    ----------
    quantum_ns, lookahead
        As they should be from the next tick on.
    lost_us
        Time lost to a switch at the last look; None while no gang takes turns.
    tuner
        What each group of gangs has, where slices tune themselves.
    """

    def __init__(self, settings: CoreSettings, now_ns: int) -> None:
        self._settings = settings
        self.tuner = SliceTuner()
        self._nodes: dict[int, _Node] = {}
        self._doublings = self._bad = self._good = self._eased = 0
        self._next_ns = now_ns + LOOK_NS
        self.lost_us: float | None = None
        self.quantum_ns = settings.quantum_ns
        self.lookahead = settings.lookahead

    @property
    def is_changed(self) -> bool:
        """Whether either is not what the administrator asked for: other slices, or more of them final."""
        stretched = self.quantum_ns != self._settings.quantum_ns and not self._settings.tune
        return stretched or self.lookahead != self._settings.lookahead

    @property
    def lost_share(self) -> float | None:
        """Share of time that switches take; None while no gang takes turns."""
        shares = [one.share for one in self._nodes.values() if one.share is not None]
        return _most(shares) if shares else None

    def ask(self, settings: CoreSettings) -> None:
        """Begin anew from what the administrator asks for now."""
        self._settings, self.tuner = settings, SliceTuner()
        self._doublings = self._bad = self._good = self._eased = 0
        self.quantum_ns, self.lookahead = settings.quantum_ns, settings.lookahead

    def note(
        self, node: int, lost_us: Sequence[int], rtt_us: int, now_ns: int, ran_ns: int | None = None
    ) -> None:
        """Take in what a node lost to switches, and its round trip to the controller.

        Parameters
        ----------
        node, now_ns
            Of which node, when.
        lost_us
            What each switch took.
        rtt_us
            The round trip.
        ran_ns
            Length of all slices that were reported, with a switch or without; None: each began with one.
        """
        known = self._nodes.get(node)
        if known is None:
            if not lost_us:
                return
            known = self._nodes[node] = _Node(now_ns)
        known.ran_ns += len(lost_us) * self.quantum_ns if ran_ns is None else ran_ns
        if not lost_us:
            return
        known.heard_ns, known.rtt_us = now_ns, rtt_us
        known.slices += len(lost_us)
        known.lost_us += sum(lost_us)

    def note_stall(self, node: int, stalled_us: int, now_ns: int) -> None:
        """Take in for how long in all some task of a node has waited for memory."""
        known = self._nodes.get(node)
        if known is None or (known.stalled is not None and now_ns < known.stalled[1] + LOOK_NS):
            return
        if known.stalled is not None:
            before_us, since_ns = known.stalled
            known.paging = 1000 * max(0, stalled_us - before_us) / (now_ns - since_ns)
        known.stalled = stalled_us, now_ns

    def switches(self, node: int, uses: Sequence[SliceUse]) -> list[SliceUse]:
        """Return those of a node's slices that began with a switch; all where turns are one slice."""
        if not self._settings.tune or node not in self._nodes:
            return list(uses)
        found, known = [], self._nodes[node]
        for use in uses:
            before, known.held = known.held, frozenset((*use.held, *use.yielding))
            if known.held != before:
                found.append(use)
        return found

    def look(
        self,
        now_ns: int,
        crowd: int,
        groups: Callable[[], Iterable[Contenders]] = tuple,
        known: Container[int] = (),
    ) -> bool:
        """Judge now and then; returns whether slices, lookahead or what a group has may have changed.

        Parameters
        ----------
        now_ns
            The time.
        crowd
            Gangs on the most crowded core.
        groups, known
            Groups that contend, and gangs that there are, where slices tune themselves.
        """
        if now_ns < self._next_ns or not (self._settings.adapt or self._settings.tune):
            return False
        self._next_ns = now_ns + LOOK_NS
        self._nodes = {node: one for node, one in self._nodes.items() if now_ns < one.heard_ns + _STALE_NS}
        ready = {node: one for node, one in self._nodes.items() if one.slices >= _ENOUGH}
        lost_us = {node: one.lost_us / one.slices for node, one in ready.items()}
        before = self.quantum_ns, self.lookahead
        if self._settings.tune:

            def lost_ns(nodes: Iterable[int]) -> float | None:
                found = [1000 * lost_us[node] for node in nodes if node in lost_us]
                return _most(found) if found else None

            def paging(nodes: Iterable[int]) -> float:
                return max((ready[node].paging for node in nodes if node in ready), default=0.0)

            self.tuner.judge(self._settings, groups(), lost_ns, known, paging)
            turns = [group.turn_ns for group in self.tuner.groups.values()]
            self.quantum_ns = min(turns, default=self._settings.quantum_ns)
        if ready or not self._nodes:
            self.lost_us = _most([*lost_us.values()]) if ready else None
            rtt_us = _most([one.rtt_us for one in ready.values()]) if ready else 0.0
            late_ns = 1000 * (self.lost_us or 0.0)
            if not self._settings.tune:
                shares = [one.paging for one in ready.values()]
                self._stretch(late_ns, crowd, _most(shares) if shares else 0.0)
            self._foresee(late_ns + 1000 * rtt_us)
        for one in ready.values():
            one.share = 1000 * one.lost_us / max(1, one.ran_ns)
            one.slices = one.lost_us = one.ran_ns = 0
        return self._settings.tune or before != (self.quantum_ns, self.lookahead)

    def _stretch(self, lost_ns: float, crowd: int, paging_share: float) -> None:
        asked_ns = self._settings.quantum_ns
        most_ns = min(
            self._settings.quantum_max_ns, GREATEST_QUANTUM_NS, self._settings.freeze_cap_ns // max(1, crowd)
        )
        is_bad = lost_ns > MOST_LOST * self.quantum_ns or paging_share > MOST_PAGING
        self._bad = self._bad + 1 if is_bad else 0
        is_good = 2 * lost_ns < LITTLE_LOST * self.quantum_ns and paging_share < LITTLE_PAGING
        eased = self._doublings > 0 and is_good
        self._good = self._good + 1 if eased else 0
        if self._bad >= BAD_LOOKS and self.quantum_ns < most_ns:
            self._doublings, self._bad = self._doublings + 1, 0
        elif self._good >= GOOD_LOOKS:
            self._doublings, self._good = self._doublings - 1, 0
        while self._doublings and asked_ns << (self._doublings - 1) >= most_ns:
            self._doublings -= 1  # a core became more crowded
        self.quantum_ns = max(asked_ns, min(asked_ns << self._doublings, most_ns))

    def _foresee(self, lead_ns: float) -> None:
        asked = self._settings.lookahead
        wanted = 1 + ceil(LEADS * lead_ns / self.quantum_ns)
        wanted = min(max(asked, wanted), asked + MORE_LOOKAHEAD)
        self._eased = self._eased + 1 if wanted < self.lookahead else 0
        if wanted > self.lookahead or self._eased >= GOOD_LOOKS:
            self.lookahead, self._eased = max(wanted, self.lookahead - 1), 0

    def __str__(self) -> str:
        slices = f"slices of {self.quantum_ns / MS:g} ms, {self.lookahead} of them final"
        return f"{slices} (asked for: {self._settings.quantum_ns / MS:g} ms, {self._settings.lookahead})"


def _most(values: Sequence[float]) -> float:
    """Return what nine of ten values do not exceed."""
    return sorted(values)[-(-9 * len(values) // 10) - 1]
