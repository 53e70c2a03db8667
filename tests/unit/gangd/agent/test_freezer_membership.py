from __future__ import annotations

from pathlib import Path

import pytest

from gangd.freezer.holder import StepKey
from gangd.freezer.membership import (
    LEFT,
    STRAY,
    Members,
    MembershipClaim,
    Origin,
    assign,
    claim_of,
    job_of_cgroups,
    step_of_title,
)
from gangd.freezer.procfs import ProcStat, pending_signals

KEY = StepKey(12, "0")
HERE, NOWHERE = MembershipClaim(7, "a"), MembershipClaim(7)


def process(
    pid: int,
    parent: int = 1,
    *,
    session: int = 0,
    comm: str = "app",
    state: str = "S",
    start: int | None = None,
    threads: int = 1,
) -> ProcStat:
    return ProcStat(pid, comm, state, parent, session, pid if start is None else start, threads)


def assigned(
    *processes: ProcStat,
    before: Members | None = None,
    claims: dict[int, MembershipClaim] | None = None,
    stepds: dict[int, StepKey] | None = None,
    spare: frozenset[int] = frozenset(),
    origins: dict[int, Origin] | None = None,
) -> tuple[dict[StepKey, list[int]], Members]:
    table = {stat.pid: stat for stat in processes}
    stepds = {10: KEY} if stepds is None else stepds
    result = assign(
        table,
        {pid: key for pid, key in stepds.items() if pid in table},
        before or Members(),
        lambda stat: (claims or {}).get(stat.pid, HERE if stat.pid > 10 else MembershipClaim(0)),
        "a",
        spare,
        lambda stat: (origins or {}).get(stat.pid, Origin()),
    )
    return {key: [stat.pid for stat in stats] for key, stats in result.steps.items()}, result


def test_descendants_of_slurmstepd_are_members_and_it_is_not() -> None:
    steps, _ = assigned(
        process(10, comm="slurmstepd"), process(11, 10), process(12, 11),
        process(13, 10, comm="slurmstepd"), process(14, 10, state="Z"),
        process(15, 10, state="Z", threads=2), process(20, 1, comm="sshd"),
        claims={20: MembershipClaim(0)}, spare=frozenset((13,)),
    )  # fmt: skip
    assert steps == {KEY: [11, 12, 15]}


def test_descendant_is_a_member_however_deep_it_is() -> None:
    chain = [process(number, number - 1, session=number) for number in range(11, 5000)]
    steps, _ = assigned(process(10), *reversed(chain), claims={4999: MembershipClaim(7)})
    assert len(steps[KEY]) == len(chain)


def test_step_that_names_no_node_is_of_the_only_one() -> None:
    table = {10: process(10), 11: process(11, 10)}

    def steps(*, one_node: bool) -> list[StepKey]:
        claim = MembershipClaim(7)
        found = assign(table, {10: KEY}, Members(), lambda _: claim, "a", frozenset(), one_node=one_node)
        return list(found.steps)

    assert steps(one_node=True) == [KEY]
    assert steps(one_node=False) == []


@pytest.mark.parametrize(
    ("others", "claims", "members"),
    [
        pytest.param(
            (process(11, 10, comm="munged"), process(12, 10, comm="slurmstepd")), {}, [11, 12],
            id="name of a daemon spares no process",
        ),
        pytest.param(
            (process(11, 12), process(12, 11)), {11: NOWHERE, 12: NOWHERE}, None,
            id="parents in a circle end the search",
        ),
        pytest.param(
            (process(11, 10),), {11: MembershipClaim(7, "b")}, None, id="step of another node on this host"
        ),
        pytest.param(
            (process(11, 10), process(12, 10)), {11: NOWHERE}, [11, 12],
            id="first process that names a node decides",
        ),
        pytest.param(
            (process(11, 10, session=11), process(30, session=11)), {30: NOWHERE}, [11, 30],
            id="orphan in a member's session",
        ),
        pytest.param(
            (process(11, 10), process(40, session=40)), {40: MembershipClaim(7, "a", KEY)}, [11, 40],
            id="double fork into a new session is found by its environment",
        ),
        pytest.param(
            (process(11, 10), process(40, session=40)), {40: MembershipClaim(8, "a", KEY)}, [11],
            id="environment of another user proves nothing",
        ),
        pytest.param(
            (process(11, 10), process(40)), {40: MembershipClaim(7, "b", KEY)}, [11],
            id="environment of another node proves nothing",
        ),
        pytest.param(
            (process(90, 10, start=1), process(20, 90, start=2)), {}, [90, 20],
            id="parents come before children",
        ),
    ],
)  # fmt: skip
def test_membership(
    others: tuple[ProcStat, ...], claims: dict[int, MembershipClaim], members: list[int] | None
) -> None:
    steps, _ = assigned(process(10, comm="slurmstepd"), *others, claims=claims)
    assert steps == ({} if members is None else {KEY: members})


def test_spared_processes_are_never_members() -> None:
    steps, _ = assigned(process(10), process(11, 10), process(12, 11), spare=frozenset({12}))
    assert steps == {KEY: [11]}


@pytest.mark.parametrize(("start", "members"), [(12, [11, 12]), (999, [11])], ids=["orphan", "reused pid"])
def test_orphan_that_was_a_member_stays_one(start: int, members: list[int]) -> None:
    _, before = assigned(process(10), process(11, 10), process(12, 11))
    now = (process(10), process(11, 10), process(12, 1, start=start))
    assert assigned(*now, before=before, claims={12: NOWHERE})[0] == {KEY: members}


def test_reads_titles_and_environments() -> None:
    assert step_of_title("slurmstepd: [12.batch]") == StepKey(12, "batch")
    assert step_of_title("slurmstepd: [12.3]") == StepKey(12, "3")
    assert step_of_title("/usr/sbin/slurmstepd infinity") is None
    batch = {b"SLURM_JOB_ID": b"12", b"SLURMD_NODENAME": b"a"}
    assert claim_of(batch, 7) == MembershipClaim(7, "a", StepKey(12, "batch"))
    assert claim_of(batch | {b"SLURM_STEP_ID": b"0"}, 7) == MembershipClaim(7, "a", KEY)
    assert claim_of({b"SLURM_JOB_ID": b"12"}, 7) == MembershipClaim(7)  # salloc's shell on a login node
    assert claim_of({b"SLURM_JOB_ID": b"x", b"SLURMD_NODENAME": b"a"}, 7) == MembershipClaim(7, "a")


USER = MembershipClaim(1001, "a")
OUT = MembershipClaim(1001)
AS_TASKS = Origin(as_tasks=True)


@pytest.mark.parametrize(
    ("others", "claims", "origins", "steps"),
    [
        pytest.param(
            (process(30, session=30),), {30: OUT}, {30: Origin(12, "0")}, {KEY: [11, 30]},
            id="in a cgroup of its step",
        ),
        pytest.param(
            (process(30, session=30),), {30: OUT}, {30: Origin(12)}, {KEY: [11, 30]},
            id="in a cgroup of its job",
        ),
        pytest.param(
            (process(30, session=30),), {30: MembershipClaim(1002)}, {30: Origin(12, "0")}, {KEY: [11]},
            id="another user's in a cgroup of the job",
        ),
        pytest.param(
            (process(30, session=30),), {30: OUT}, {30: Origin(9)}, {KEY: [11], StepKey(9, LEFT): [30]},
            id="left by a job that has ended, while its user has another",
        ),
        pytest.param(
            (process(30, session=30),), {30: MembershipClaim(1002)}, {30: Origin(9)},
            {KEY: [11], StepKey(9, LEFT): [30]}, id="left by a job that has ended, while its user has none",
        ),
        pytest.param(
            (process(30),), {30: MembershipClaim(0)}, {30: Origin(9)}, {KEY: [11]},
            id="a system user's in the cgroup of a job that has ended",
        ),
        pytest.param(
            (process(30, session=30), process(31, 30)), {30: OUT, 31: OUT}, {30: AS_TASKS, 31: AS_TASKS},
            {KEY: [11], StepKey(12, STRAY): [30, 31]}, id="orphans of tasks",
        ),
        pytest.param(
            (process(30),), {30: MembershipClaim(1002)}, {30: AS_TASKS}, {KEY: [11]},
            id="of a user without a job",
        ),
        pytest.param(
            (process(29, comm="sshd"), process(30, 29), process(31, 30)),
            {29: MembershipClaim(0), 30: OUT, 31: OUT}, {30: AS_TASKS, 31: AS_TASKS}, {KEY: [11]},
            id="below a daemon that is not init",
        ),
        pytest.param((process(30),), {30: OUT}, {}, {KEY: [11]}, id="of a login"),
        pytest.param(
            (process(30, 31), process(31, 30)), {30: OUT, 31: OUT}, {30: AS_TASKS, 31: AS_TASKS}, {KEY: [11]},
            id="in a circle of parents",
        ),
    ],
)  # fmt: skip
def test_process_without_tree_and_environment_is_found_by_where_it_began(
    others: tuple[ProcStat, ...],
    claims: dict[int, MembershipClaim],
    origins: dict[int, Origin],
    steps: dict[StepKey, list[int]],
) -> None:
    found, _ = assigned(process(10), process(11, 10), *others, claims={11: USER} | claims, origins=origins)
    assert found == steps


def test_system_users_have_no_strays() -> None:
    found, _ = assigned(
        process(10), process(11, 10), process(30), claims={30: NOWHERE}, origins={30: AS_TASKS}
    )
    assert found == {KEY: [11]}


def test_stray_is_one_of_the_oldest_job_and_of_the_next_when_that_has_ended() -> None:
    other = StepKey(13, "0")
    now = (process(10), process(11, 10), process(20), process(21, 20), process(30))
    claims = {11: USER, 20: MembershipClaim(0), 21: USER, 30: OUT}
    found, before = assigned(*now, claims=claims, stepds={10: KEY, 20: other}, origins={30: AS_TASKS})
    assert found == {KEY: [11], other: [21], StepKey(12, STRAY): [30]}
    found, before = assigned(
        *now[2:], before=before, claims=claims, stepds={20: other}, origins={30: AS_TASKS}
    )
    assert found == {other: [21], StepKey(13, STRAY): [30]}
    found, before = assigned(now[4], before=before, claims=claims, stepds={}, origins={30: AS_TASKS})
    assert found == {}
    assert before.uids == {}


def test_what_a_job_leaves_behind_is_its_own_until_it_has_a_step_again() -> None:
    others = {10: MembershipClaim(0), 20: MembershipClaim(0)}
    alone, stepds = {10: KEY, 20: StepKey(13, "0")}, {20: StepKey(13, "0")}
    left = (process(11), process(12, session=11), process(20), process(21, 20))
    claims = others | dict.fromkeys((11, 12, 21), USER)
    _, before = assigned(process(10), process(11, 10, session=11), *left[2:], claims=claims, stepds=alone)
    for _ in range(3):  # whatever it forks, and how often one looks
        found, before = assigned(*left, before=before, claims=claims, stepds=stepds, origins={11: AS_TASKS})
        assert found == {StepKey(13, "0"): [21], StepKey(12, LEFT): [11, 12]}
    again = StepKey(12, "1")
    now = (process(10), process(15, 10), *left)
    found, _ = assigned(*now, before=before, claims=claims | {15: USER}, stepds=stepds | {10: again})
    assert found == {StepKey(13, "0"): [21], KEY: [12], again: [11, 15]}  # 12 is of a session of step 0


@pytest.mark.parametrize(
    ("lines", "origin"),
    [
        ("2:cpuacct:/slurm_a/uid_7/job_12/step_0/task_0\n0::/\n", (12, "0")),
        ("4:memory:/slurm/uid_7/job_12\n0::/\n", (12, None)),
        ("0::/system.slice/a_slurmstepd.scope/job_12/step_batch/user/task_0\n", (12, "batch")),
        ("0::/system.slice/slurmstepd.scope/job_12/step_3/user\n", (12, "3")),
        ("1:cpu:/gangd_a_job_12\n0::/\n", (12, None)),
        ("1:cpu:/gangd_a_job_12\n2:cpuacct:/slurm_a/uid_7/job_12/step_0/task_0\n", (12, "0")),
        ("1:cpu:/gangd_b_job_12\n2:cpuacct:/slurm_b/uid_7/job_12/step_0/task_0\n", (None, None)),
        ("1:cpu:/a/gangd_a_job_12\n0::/\n", (None, None)),
        ("0::/user.slice/user-7.slice/session-1.scope\n", (None, None)),
        ("", (None, None)),
    ],
)
def test_reads_the_job_in_whose_cgroups_a_process_is(
    lines: str, origin: tuple[int | None, str | None]
) -> None:
    assert job_of_cgroups(lines, "a") == origin


TERM, TSTP, KILL = 1 << 14, 1 << 19, 1 << 8


@pytest.mark.parametrize(
    ("waiting", "blocked", "ignored", "counts"),
    [
        (TERM, 0, 0, TERM),
        (TERM | KILL, TERM, 0, KILL),
        (TSTP, TSTP, 0, 0),
        (TERM, 0, TERM, 0),
        (0, TERM, TERM, 0),
    ],
)
def test_a_signal_that_a_process_blocks_or_ignores_does_not_wait(
    tmp_path: Path, waiting: int, blocked: int, ignored: int, counts: int
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text(
        f"Name:\tSigPnd:\nSigQ:\t1/9\nSigPnd:\t{0:016x}\nShdPnd:\t{waiting:016x}\n"
        f"SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{0:016x}\n"
    )
    assert pending_signals(7, tmp_path) == counts
    assert pending_signals(8, tmp_path) == 0
