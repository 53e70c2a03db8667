from __future__ import annotations

import signal

import pytest

from gangd.agent.freeze_verifier import (
    COOL_NS,
    DYING_NS,
    RENEWED_NS,
    STOP_NS,
    Act,
    ExternalChangeTracker,
    Sighting,
)
from gangd.freezer.holder import StepKey, StepState

KEY, OTHER = StepKey(1, "batch"), StepKey(1, "0")
FROZEN, FREEZING, THAWED = StepState.FROZEN, StepState.FREEZING, StepState.THAWED


def bit(number: signal.Signals) -> int:
    return 1 << (number - 1)


def test_what_is_as_it_was_left_is_nothing_new() -> None:
    memory = ExternalChangeTracker()
    assert memory.on_state(KEY, THAWED, 0, ours=False, settled=False) is None
    assert memory.on_state(KEY, FREEZING, 0, ours=True, settled=False) is None
    assert memory.on_state(KEY, FROZEN, 0, ours=True, settled=True) is None
    assert memory.strangers() == {}


def test_frozen_by_another_user_is_theirs_until_they_thaw_it() -> None:
    memory = ExternalChangeTracker()
    sighting = memory.on_state(KEY, FROZEN, 10, ours=False, settled=False)
    assert sighting == Sighting(KEY, Act.FROZE, held=False)
    assert memory.on_state(KEY, FROZEN, 10**15, ours=False, settled=False) is None
    assert memory.strangers() == {KEY: 10}
    memory.on_state(KEY, THAWED, 10**15, ours=False, settled=False)
    assert memory.strangers() == {}


def test_thawed_under_us_is_noticed_only_once_our_freeze_had_taken_effect() -> None:
    memory = ExternalChangeTracker()
    assert memory.on_state(KEY, THAWED, 10, ours=True, settled=False) is None
    sighting = memory.on_state(KEY, THAWED, 10, ours=True, settled=True)
    assert sighting == Sighting(KEY, Act.THAWED, held=True)
    memory.on_state(KEY, THAWED, 10 + COOL_NS - 1, ours=False, settled=False)
    assert memory.strangers() == {KEY: 10}
    memory.on_state(KEY, THAWED, 10 + COOL_NS, ours=False, settled=False)
    assert memory.strangers() == {}


def test_second_freeze_on_top_of_ours_makes_it_theirs() -> None:
    memory = ExternalChangeTracker()
    sighting = memory.on_state(KEY, FROZEN, 10, ours=True, settled=True, written=True)
    assert sighting == Sighting(KEY, Act.FROZE, held=True)


def test_suspension_is_foreseen_by_its_first_signal() -> None:
    memory = ExternalChangeTracker()
    sighting = memory.on_signals(KEY, bit(signal.SIGTSTP), stopped=False, now_ns=10, ours=True)
    assert sighting == Sighting(KEY, Act.STOPPING, held=True)
    memory.on_state(KEY, FROZEN, 20, ours=False, settled=False)  # Slurm's freeze, two seconds later
    assert memory.act_of(KEY) is Act.FROZE
    memory.on_state(KEY, THAWED, 30, ours=False, settled=False)
    assert memory.strangers() == {}


def test_stop_that_leads_to_nothing_is_forgotten() -> None:
    memory = ExternalChangeTracker()
    memory.on_signals(KEY, 0, stopped=True, now_ns=10, ours=False)
    memory.on_state(KEY, THAWED, 10 + STOP_NS, ours=False, settled=False)
    assert memory.strangers() == {}


def test_what_befell_a_step_ends_with_it() -> None:
    memory = ExternalChangeTracker()
    memory.on_state(KEY, THAWED, 10, ours=True, settled=True)
    memory.on_state(OTHER, FROZEN, 10, ours=False, settled=False)
    memory.forget(frozenset({KEY}))
    assert memory.strangers() == {OTHER: 10}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_deadly_signals_latch_the_job_for_a_while_or_until_the_step_is_gone(number: signal.Signals) -> None:
    memory = ExternalChangeTracker()
    memory.on_signals(KEY, bit(number), stopped=False, now_ns=10, ours=True)
    memory.on_signals(KEY, 0, stopped=False, now_ns=11, ours=False)
    assert memory.dying_at(10 + DYING_NS - 1) == {1}
    assert memory.dying_at(10 + DYING_NS) == frozenset()
    memory.on_signals(KEY, bit(number), stopped=False, now_ns=20, ours=True)
    assert memory.dying_at(20 + DYING_NS - 1) == {1}
    memory.forget(frozenset({OTHER}))
    assert memory.dying_at(20) == {1}
    memory.forget(frozenset({KEY}))
    assert memory.dying_at(20) == frozenset()


def test_other_signals_mean_nothing() -> None:
    memory = ExternalChangeTracker()
    pending = bit(signal.SIGCHLD) | bit(signal.SIGCONT) | bit(signal.SIGUSR1)
    assert memory.on_signals(KEY, pending, stopped=False, now_ns=1, ours=True) is None
    assert memory.dying_at(1) == frozenset()


def test_a_job_is_dying_for_as_long_as_slurm_waits_before_it_kills_and_no_longer() -> None:
    memory = ExternalChangeTracker(kill_wait_ns=2 * DYING_NS)
    for now_ns in range(0, 10 * DYING_NS, DYING_NS // 2):
        key = OTHER if now_ns > DYING_NS else KEY
        memory.on_signals(key, bit(signal.SIGTERM), stopped=False, now_ns=now_ns, ours=True)
        assert memory.dying_at(now_ns) == ({1} if now_ns < 2 * DYING_NS else frozenset())
    memory.on_signals(KEY, bit(signal.SIGTERM), stopped=False, now_ns=RENEWED_NS, ours=True)
    assert memory.dying_at(RENEWED_NS) == {1}
