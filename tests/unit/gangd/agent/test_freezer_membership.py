from __future__ import annotations

import pytest

from gangd.freezer.holder import StepKey
from gangd.freezer.membership import Members, MembershipClaim, assign, claim_of, step_of_title
from gangd.freezer.procfs import ProcStat

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
    )
    return {key: [stat.pid for stat in stats] for key, stats in result.steps.items()}, result


def test_descendants_of_slurmstepd_are_members_and_it_is_not() -> None:
    steps, _ = assigned(
        process(10, comm="slurmstepd"),
        process(11, 10),
        process(12, 11),
        process(13, 10, comm="slurmstepd"),
        process(14, 10, state="Z"),
        process(15, 10, state="Z", threads=2),
        process(20, 1, comm="sshd"),
        claims={20: MembershipClaim(0)},
        spare=frozenset((13,)),
    )
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
