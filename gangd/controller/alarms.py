"""Alarms: each is logged when it begins and when it ends, however often its cause is seen.

``alarms_of`` and ``alarm_of`` make them of events at the access control or of a thread, ``fault_alarm`` of
what agents report, ``UnreadJobLog`` and ``unplaced`` of jobs that cannot be managed: their records cannot be
read, or they are on unknown cores.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foundation.slurm import UnreadableJob
from foundation.units import counted, verb
from gangd.core.scheduler_events import Alarm
from gangd.daemon_process import Death
from gangd.wire.access_control import News
from gangd.wire.connection_limiter import ShutOut
from gangd.wire.messages import AgentFault, printable

KEPT_NS = 600_000_000_000
MOST_NAMED = 10
MOST_KEPT = 1_000
MOST_NODES_NAMED = 5
NEXT = {
    "freeze_failed": "it runs in others' slices: if that goes on, ask its user, or cancel it",
    "nested_freeze": "ask its user",
    "no_step": "run `osub doctor` there",
    "spared_slurmstepd": "Slurm's daemon is among its processes: run `osub doctor` there",
    "stray": "end them, or ask their user: gangd suspends jobs only",
    "unknown_folder": "",
    "unseen": "",
    "write_failed": "see the agent's log there",
    "yields_not": "it may get more than its share: see the agent's log there",
}
"""What to do next about faults that agents report; those that are not here pass by themselves."""

log = logging.getLogger("gangd")

MOST_UNREAD = 10  # of the jobs that cannot be read, in one look: users make them by the thousand


@dataclass(frozen=True, slots=True)
class Raised:
    """An active alarm, since when and how often its cause was seen, with the text of ``worded``."""

    kind: str
    subject: str
    text: str
    since_ns: int
    seen_ns: int
    count: int = 1
    job: int | None = None
    user: str | None = None
    nodes: tuple[str, ...] = ()


def worded(alarm: Alarm, user: str | None = None) -> str:
    """Return the sentence for an alarm: the job, its user and the nodes that caused it, and then its text."""
    cause = [] if alarm.job is None else [f"job {alarm.job}"]
    cause += [f"of user {user}"] if alarm.job is not None and user else []
    if alarm.nodes:
        more = len(alarm.nodes) - MOST_NODES_NAMED
        named = ", ".join(alarm.nodes[:MOST_NODES_NAMED]) + f" and {more} more" * (more > 0)
        cause.append(f"on {named}" if cause else named)
    return f"{' '.join(cause)}: {alarm.text}" if cause else alarm.text


def fault_alarm(node: str, fault: AgentFault) -> Alarm | None:
    """Return the alarm for what an agent says of a job or its node; None for what needs nothing done."""
    following = NEXT.get(fault.kind)
    if following is None:
        return None
    subject = node if fault.job is None else f"{fault.job} on {node}"
    text = f"{printable(fault.text)}; {following}" if following else printable(fault.text)
    return Alarm("fault", f"{fault.kind} {subject}", text, job=fault.job, nodes=(node,))


def alarms_of(news: Sequence[News]) -> list[Alarm]:
    """Return the alarms for news of the access control: the first few by name, of the rest their number."""
    alarms = [alarm_of(one) for one in news[:MOST_NAMED]]
    if len(news) > MOST_NAMED:
        more = len(news) - MOST_NAMED
        alarms.append(
            Alarm("blocked", "others", f"as many as {more} other addresses are blocked, or use unknown keys")
        )
    return alarms


def alarm_of(news: News) -> Alarm:
    """Return the alarm for the death of a thread, or for news of the access control."""
    if isinstance(news, Death):
        text = f"thread {news.thread} died and was started again: {news.why}"
        return Alarm("thread", news.thread, text)
    origin = news.origin or "unknown addresses"
    if isinstance(news, ShutOut):
        text = f"{origin}: {news.why}; new connections from there are refused for {news.for_ns / 1e9:g} s"
        return Alarm("blocked", origin, text)
    whose = "that is not in the key folder" if news.owner is None else f"of {news.owner} that was removed"
    return Alarm("unknown key", origin, f"{origin}: a key {whose}, {counted(news.times, 'time')}")


class AlarmBoard:
    """The alarms that stand: those whose cause was seen in the last ten minutes, the newest ``MOST_KEPT``."""

    def __init__(self) -> None:
        self._raised: dict[tuple[str, str], Raised] = {}

    def raise_(self, alarm: Alarm, user: str | None, now_ns: int) -> bool:
        """Raise an alarm, that a job of ``user`` caused if it names a job; True if it is new."""
        key = (alarm.kind, alarm.subject)
        known = self._raised.get(key)
        if known is None and len(self._raised) >= MOST_KEPT:
            del self._raised[min(self._raised, key=lambda one: self._raised[one].seen_ns)]
        since_ns, count = (now_ns, 1) if known is None else (known.since_ns, known.count + 1)
        user = known.user if user is None and known is not None else user
        self._raised[key] = Raised(
            *key, worded(alarm, user), since_ns, now_ns, count, alarm.job, user, alarm.nodes
        )
        return known is None

    def clear(self, kind: str, subject: str) -> bool:
        """End an alarm; True if it stood."""
        return self._raised.pop((kind, subject), None) is not None

    def standing(self, now_ns: int) -> list[Raised]:
        """List the alarms that stand, newest first."""
        self._raised = {key: one for key, one in self._raised.items() if now_ns - one.seen_ns < KEPT_NS}
        return sorted(self._raised.values(), key=lambda one: -one.since_ns)


def unplaced(jobs: Sequence[int]) -> Alarm:
    """Return the alarm for jobs on cores that are not known."""
    if not jobs:
        return Alarm("placement", "jobs", "all jobs are on cores that are known", cleared=True)
    text = f"{counted(len(jobs), 'job')} {verb(len(jobs))} on cores that are not known, such as job {jobs[0]}"
    return Alarm("placement", "jobs", text)


def refused_opt_outs(refused: Mapping[str, int]) -> list[Alarm]:
    """Return an alarm for each user whose job asked to opt out and may not, by ``ClusterView.refused``."""
    text = "asks to opt out and takes its slices: no rule has may_opt_out for it"
    return [Alarm("opt_out", user, text, job=job) for user, job in refused.items()]


def damaged_state(why: str | None) -> Alarm:
    """Return the alarm for state files that could not be read; it ends where there are none (None)."""
    return Alarm("state", "gangd", why or "no state file is damaged any more", cleared=why is None)


class UnreadJobLog:
    """Logs jobs that cannot be read as they come."""

    def __init__(self) -> None:
        self._known: frozenset[UnreadableJob] = frozenset()

    def look(self, unreadable: Sequence[UnreadableJob]) -> Alarm:
        """Log the first few that are new by name, and return the alarm for all."""
        if not unreadable:
            self._known = frozenset()
            return Alarm("unreadable", "jobs", "every job can be read again", cleared=True)
        news = [one for one in unreadable if one not in self._known]
        for one in news[:MOST_UNREAD]:
            log.warning("not managed, for its record cannot be read: %s", one)
        if len(news) > MOST_UNREAD:
            log.warning("not managed, for their records cannot be read: %d more", len(news) - MOST_UNREAD)
        self._known = frozenset(unreadable)
        return Alarm(
            "unreadable",
            "jobs",
            f"not managed, for it cannot be read: {unreadable[0]}"
            if len(unreadable) == 1
            else f"{counted(len(unreadable), 'job')} cannot be read and {verb(len(unreadable))} not "
            f"managed, such as {unreadable[0]}",
        )
