"""The replay of idle and busy periods on one node, barrier after barrier.

Theory of operation. A period begins at the instant at which the barrier before it opened; the first one
at the process's start, so that the time to start up is a part of the first idle period and not an
addition to it. An idle period ends at a deadline on CLOCK_MONOTONIC. A busy period ends when every
worker of every node has consumed its CPU time, however long sharing makes that last (thesis 7.4.4,
listing 3). Source of the accounting: what was measured, never what was asked.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from workloads.eiba.eiba_messages import Message
from workloads.eiba.eiba_options import Periods
from workloads.eiba.forked_workers import WorkerPool
from workloads.eiba.inbox import Inbox
from workloads.eiba.node_barrier import Nodes


@dataclass(slots=True)
class Progress:
    """What has been done so far; readable at any instant, also after a failure.

    Attributes
    ----------
    done
        Periods completed.
    busy_s
        CPU seconds consumed in the completed busy periods, by the busiest worker of this node in each.
    busy_wall_s
        Wall seconds of the completed busy periods.
    idle_s
        Wall seconds of the completed idle periods.
    skew_max_s
        The longest wait of a worker for the last one of its node at the end of a busy period.
    startup_s
        From the process's start until its workers were ready.
    accounts
        The latest account of every node, in node order; on the first node only.
    """

    done: int = 0
    busy_s: float = 0.0
    busy_wall_s: float = 0.0
    idle_s: float = 0.0
    skew_max_s: float = 0.0
    startup_s: float | None = None
    accounts: list[Message] = field(default_factory=list)


def replay(
    periods: Periods,
    pool: WorkerPool,
    nodes: Nodes,
    inbox: Inbox,
    begin_s: float,
    account: Message,
    progress: Progress,
) -> None:
    """Run ``periods`` from ``begin_s`` (CLOCK_MONOTONIC) on, keeping ``progress`` up to date.

    Parameters
    ----------
    periods, pool, nodes, inbox
        What to do, who computes, who else takes part, and who waits.
    begin_s
        When the first period began.
    account
        What this node says of itself at each barrier; the CPU seconds so far are added.
    progress
        Updated after each period.

    Raises
    ------
    PeerGoneError
        A worker or another node died.
    Terminated
        The job is told to stop.
    """
    for index, seconds in enumerate(periods.seconds):
        if periods.is_busy(index):
            period = pool.busy(seconds)
            progress.busy_s += period.cpu_s
            progress.skew_max_s = max(progress.skew_max_s, period.skew_s)
            progress.busy_wall_s += time.monotonic() - begin_s
        else:
            inbox.sleep_until(begin_s + seconds)
            progress.idle_s += time.monotonic() - begin_s
        here = account | {"cpu_s": pool.cpu_s + time.process_time(), "busy_s": progress.busy_s}
        progress.accounts = nodes.meet(here | {"skew_max_s": progress.skew_max_s})
        begin_s = time.monotonic()
        progress.done = index + 1
