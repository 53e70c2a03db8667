"""What of Slurm has a clock that goes on while a job stands still.

Sources: slurm.conf(5), MessageTimeout, KillWait, UnkillableStepTimeout, HealthCheckProgram, PrologFlags.
"""

from __future__ import annotations

from collections.abc import Iterator

from deploy.checks.configuration import Advice, Configuration, Grade

MOST_HEALTH_S = 60
TIMEOUTS_A_STEP = 5
"""``UnkillableStepTimeout`` is five times ``MessageTimeout`` by default since Slurm 24.05."""


def judge(found: Configuration) -> Iterator[Advice]:
    """Yield what there is to say."""
    yield _message_timeout(found)
    yield _kill_wait(found)
    yield _unkillable(found)
    yield _health_check(found)
    yield _prolog(found)


def _seconds(found: Configuration, key: str) -> tuple[float | None, str]:
    seconds = found.number(key)
    return seconds, "not told" if seconds is None else f"{seconds:g} s"


def _message_timeout(found: Configuration) -> Advice:
    seconds, told = _seconds(found, "MessageTimeout")
    least = 2 * found.freeze_cap_s
    if seconds is not None and seconds < least:
        why = f"an srun that is frozen for {found.freeze_cap_s:g} s (freeze_cap_ms) may lose its step"
        return Advice("MessageTimeout", Grade.BAD, told, why, f"MessageTimeout={max(10, round(least))}")
    return Advice(
        "MessageTimeout", Grade.GOOD, told, f"twice the longest freeze, {found.freeze_cap_s:g} s, or more"
    )


def _kill_wait(found: Configuration) -> Advice:
    seconds, told = _seconds(found, "KillWait")
    least = found.freeze_cap_s + found.lease_s
    if seconds is not None and seconds < least:
        why = f"a held job that is told to end may be let go {least:g} s later, and could not tidy up"
        return Advice("KillWait", Grade.WARNING, told, why, "KillWait=30")
    return Advice("KillWait", Grade.GOOD, told, "a job that is told to end has time to, though it was held")


def _unkillable(found: Configuration) -> Advice:
    seconds, told = _seconds(found, "UnkillableStepTimeout")
    timeout_s = found.number("MessageTimeout") or 10
    least, bad = TIMEOUTS_A_STEP * timeout_s, 2 * (found.freeze_cap_s + found.lease_s)
    if seconds is None or seconds >= least:
        return Advice("UnkillableStepTimeout", Grade.GOOD, told, "a slow end of a job drains no node")
    grade = Grade.BAD if seconds < bad else Grade.WARNING
    why = f"a step that ends slowly drains its node; {TIMEOUTS_A_STEP} x MessageTimeout is usual"
    return Advice("UnkillableStepTimeout", grade, told, why, f"UnkillableStepTimeout={max(60, round(least))}")


def _health_check(found: Configuration) -> Advice:
    program, every_s = found.value("HealthCheckProgram"), found.number("HealthCheckInterval") or 0
    told = f"{program or 'none'}, every {every_s:g} s" if every_s else program or "none"
    if program and 0 < every_s <= MOST_HEALTH_S:
        why = "runs where agent and guardian are both killed; it must call `gang-agent thaw --expired`"
        return Advice("health check", Grade.GOOD, told, why)
    why = "if agent and guardian are both killed, jobs stay held until somebody calls `gang-agent thaw`"
    write = (
        f"HealthCheckProgram={program or '/etc/slurm/gang-agent-health'}\n"
        "HealthCheckInterval=30\nHealthCheckNodeState=ANY"
    )
    return Advice("health check", Grade.WARNING, told, why, write)


def _prolog(found: Configuration) -> Advice:
    prolog, flags = found.value("Prolog"), found.words("PrologFlags")
    told = f"{prolog or 'none'}, flags {','.join(sorted(flags)).lower() or 'none'}"
    if "SERIAL" in flags:
        why = "prologs of one node wait for each other, and jobs that begin together begin one by one"
        return Advice("prolog", Grade.WARNING, told, why, "PrologFlags=Alloc")
    if prolog and not flags & {"ALLOC", "CONTAIN", "X11"}:
        why = "the prolog runs at a node's first step, not when the job begins: the agent hears of it late"
        return Advice("prolog", Grade.WARNING, told, why, "PrologFlags=Alloc")
    if flags & {"CONTAIN", "X11"}:
        return Advice(
            "prolog", Grade.GOOD, told, "ssh logins that it takes in are held with the job (--extern)"
        )
    why = (
        "the agent hears of a job at once"
        if prolog
        else "optional: deploy/slurm/gang-bell tells the agent at once"
    )
    return Advice("prolog", Grade.GOOD, told, why)
