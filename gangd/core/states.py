"""The two state machines of the gang scheduler, as tables, and the theory of its operation.

A *gang* is a job, or all components of a heterogeneous job. It is in one of these states:

* NEW: it was launched. It runs, whatever shares its cores, until its tasks run on all of its nodes or the
  launch grace is over.
* SOLO: no job shares its cores. It is never touched.
* BUSY: it shares cores and wants them. Only BUSY gangs are *rotated*: in each slice the gangs that own it
  run, and the other BUSY gangs that share a core with one of the owners are held.
* IDLE: it shares cores but does not want them, for its user thinks. It runs, and takes no slice.
* WAKING: an IDLE gang was seen to be busy. It runs, together with the owner of the slice, until a second look
  confirms it. Then it is BUSY, and first in line at the next boundary that is not final yet.
* DEFERRED: one of its nodes is short of memory (``memory_pressure``). It is suspended on all of its nodes,
  but for a slice now and then, until there is memory again.
* FREE: it may not be held (it opted out, an operator paused it, or `scancel --signal=STOP` stopped it), or
  not safely (one of its nodes has no agent). It runs as far as it is up to gangd.
* FOREIGN: another process suspended it, changes its freeze state or sent it SIGTERM or SIGKILL. gangd thaws
  what it holds of it, unless Slurm suspended it and so will thaw it, and does no more until Slurm says that
  it runs.
* TERMINATING: Slurm says that it is cancelled, completing or being killed. It is thawed and never held again,
  for a frozen process cannot die. Only its end leaves this state.

A gang is held on no node while the *agent* of any of its nodes is not JOINED: it would run there and be
frozen elsewhere.

Rules:

1. What the tables do not have is an error of the scheduler (``InvalidTransition``), never ignored.
2. What a gang does after SOLO follows from whether it shares cores, and from its demand class, which is kept
   all along.
3. Published slices never change: a state that changes counts from the first slice that is not final. Only
   TERMINATE, SUSPEND and RELEASE act at once.

``docs/states.md`` is generated from the tables (``python -m gangd.core.states_document``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self, TypeVar

from gangd.core.cores import InvalidTransition


class GangState(StrEnum):
    """Where a gang is; see the head of this file."""

    NEW = "new"
    SOLO = "solo"
    BUSY = "busy"
    IDLE = "idle"
    WAKING = "waking"
    DEFERRED = "deferred"
    FREE = "free"
    FOREIGN = "foreign"
    TERMINATING = "terminating"
    GONE = "gone"


class _Input(StrEnum):
    """An input of a table: its name, and when it is."""

    when: str

    def __new__(cls, name: str, when: str) -> Self:
        """Make one that is equal to its name."""
        one = str.__new__(cls, name)
        one._value_, one.when = name, when
        return one


class GangInput(_Input):
    """What happens to a gang."""

    SETTLE = "settle", "its tasks run on all of its nodes, or its launch grace is over"
    SHARE_BUSY = "share, busy", "another gang has one of its cores; it is, or is presumed, busy"
    SHARE_IDLE = "share, idle", "another gang has one of its cores; it was idle when last seen"
    UNSHARE = "unshare", "no job shares its cores any more"
    STIR = "stir", "one sample above the busy share of a core"
    CONFIRM = "confirm", "enough samples above the busy share"
    REST = "rest", "enough samples in a row, of all its nodes, below the idle share"
    DEFER = "defer", "a node of it is short of memory, and it is to give way to the others there"
    RELIEVE = "relieve", "its nodes have memory again, or it is the first in line on each that has not"
    RELEASE = "release", "it opted out, is paused, was stopped by a signal, or a node of it has no agent"
    RECLAIM = "reclaim", "the reason for RELEASE is gone"
    SUSPEND = (
        "suspend",
        (
            "Slurm says SUSPENDED, or an agent found a freeze state that it did not leave, "
            "or SIGTERM or SIGKILL pending"
        ),
    )
    RESUME = "resume", "Slurm says RUNNING, asked after the SUSPEND; no agent sees a deadly signal any more"
    TERMINATE = "terminate", "Slurm says completing"
    VANISH = "vanish", "Slurm does not list it any more"


class AgentState(StrEnum):
    """What the controller knows about the agent of a node."""

    UNKNOWN = "unknown"
    JOINED = "joined"
    LOST = "lost"


class AgentInput(_Input):
    """What happens to an agent."""

    HELLO = "hello", "it says who it is; a restarted agent says it again"
    REPORT = "report", "it reports and follows this controller"
    SILENCE = "silence", "no report for as long as a lease"
    LEAVE = "leave", "it says farewell, or obeys another controller"


_S = GangState
_I = GangInput

_HOLDABLE = (_S.NEW, _S.SOLO, _S.BUSY, _S.IDLE, _S.WAKING, _S.DEFERRED)

GANG_TABLE: dict[tuple[GangState, GangInput], GangState] = {
    (_S.NEW, _I.SETTLE): _S.SOLO,
    (_S.SOLO, _I.SHARE_BUSY): _S.BUSY,
    (_S.SOLO, _I.SHARE_IDLE): _S.IDLE,
    (_S.BUSY, _I.REST): _S.IDLE,
    (_S.BUSY, _I.UNSHARE): _S.SOLO,
    (_S.IDLE, _I.STIR): _S.WAKING,
    (_S.IDLE, _I.UNSHARE): _S.SOLO,
    (_S.WAKING, _I.CONFIRM): _S.BUSY,
    (_S.WAKING, _I.REST): _S.IDLE,
    (_S.WAKING, _I.UNSHARE): _S.SOLO,
    (_S.DEFERRED, _I.RELIEVE): _S.SOLO,
    (_S.FREE, _I.RECLAIM): _S.SOLO,
    (_S.FOREIGN, _I.RESUME): _S.SOLO,
    **{(state, _I.DEFER): _S.DEFERRED for state in (_S.SOLO, _S.BUSY, _S.IDLE, _S.WAKING)},
    **{(state, _I.RELEASE): _S.FREE for state in _HOLDABLE},
    **{(state, _I.SUSPEND): _S.FOREIGN for state in (*_HOLDABLE, _S.FREE)},
    **{(state, _I.TERMINATE): _S.TERMINATING for state in (*_HOLDABLE, _S.FREE, _S.FOREIGN)},
    **{(state, _I.VANISH): _S.GONE for state in GangState if state is not _S.GONE},
}

_A = AgentState

AGENT_TABLE: dict[tuple[AgentState, AgentInput], AgentState] = {
    **{(state, AgentInput.HELLO): _A.JOINED for state in AgentState},
    **{(state, AgentInput.REPORT): _A.JOINED for state in (_A.JOINED, _A.LOST)},
    (_A.JOINED, AgentInput.SILENCE): _A.LOST,
    **{(state, AgentInput.LEAVE): _A.LOST for state in (_A.JOINED, _A.LOST)},
}

_StateT = TypeVar("_StateT", GangState, AgentState)
_InputT = TypeVar("_InputT", GangInput, AgentInput)


def transition(
    table: dict[tuple[_StateT, _InputT], _StateT], state: _StateT, happened: _InputT, whom: object
) -> _StateT:
    """Next state; raises ``InvalidTransition``, naming ``whom``, if the table has none."""
    following = table.get((state, happened))
    if following is None:
        raise InvalidTransition(f"{whom} is {state.value}: '{happened.value}' is not possible there")
    return following
