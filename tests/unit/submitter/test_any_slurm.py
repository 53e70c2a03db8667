"""Partitions, accounts, sharing on request, hardware threads: a replay on a Slurm that others set up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from foundation.errors import ClusterError, UsageError
from foundation.records import load_run
from foundation.slurm import Partition, SlurmNode, SubmitRequest
from submitter.plan.replay_options import ReplayOptions, exported, restored
from submitter.plan.replay_plan import PlanOptions, ReplayOversize, make_plan
from submitter.plan.target_cluster import DownNodes, RequestedTarget, look_at_target
from submitter.replay.begin_run import submit_request
from submitter.replay.replay_progress import Wish
from tests.fixtures.fake_slurm import FakeSlurm
from tests.fixtures.replay_world import World, make_world, rows
from workloads.swf import SwfHeader, SwfJob, SwfTrace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    # 1 GiB a processor, which is field 10.
    (path := tmp_path / "t.swf").write_text("1 0 -1 3 2 -1 -1 2 60 1048576 1 1 1 -1 1 -1 -1 -1\n")
    return path


def requests(world: World) -> list[SubmitRequest]:
    """Return what is asked of Slurm, as it is asked."""
    asked: list[SubmitRequest] = []
    submit = world.slurm.submit

    def note(request: SubmitRequest) -> int:
        asked.append(request)
        return submit(request)

    world.slurm.submit = note  # type: ignore[method-assign]
    return asked


def test_a_site_s_options_reach_every_job_and_survive_a_resume(trace: Path, tmp_path: Path) -> None:
    options = ReplayOptions(
        partition="main",
        account="physics",
        qos="long",
        reservation="tuesday",
        sbatch_option=("constraint=a b", "contiguous"),
        no_requeue=True,
        memory=False,
        environment=exported(["TOKEN=a b='c'\n", "SEEN"], {"SEEN": "", "FI_LOG_LEVEL": "warn", "X": "y"}),
        patience=77.0,
        slices=Path("/var/lib/gangd/record"),
    )
    world = make_world(tmp_path)
    asked = requests(world)
    assert not world.begin(trace, options).run(lambda _: Wish.DETACH)
    again = restored(load_run(world.out).info)
    assert again == msgspec.structs.replace(
        options,
        run_id=again.run_id,
        label=again.label,
        names=("n1", "n2"),
        oversize=ReplayOversize.SKIP,  # what it means not to say it
    )
    assert world.resume().run(world.limit(3600))
    assert {(one.account, one.qos, one.reservation, one.no_requeue, one.options) for one in asked} == {
        ("physics", "long", "tuesday", True, ("constraint=a b", "contiguous"))
    }
    own = {"TOKEN": "a b='c'\n", "SEEN": "", "FI_LOG_LEVEL": "warn"}
    starts = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
    plain = {"LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    for one in asked:
        environment = dict(one.environment)
        assert environment.pop("PATH")
        assert environment.pop("HOME")
        assert environment == own | starts | plain


@pytest.mark.parametrize(
    "word", ["", "=1", "1A=2", "A B=1", "PATH=/", "HOME", "SLURM_CONF=/x", "PMI_RANK=1", "UNSET"]
)
def test_what_cannot_be_exported_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="--export"):
        exported([word], {"HOME": "/root"})
    assert exported(["MPIR_CVAR_CH4_NETMOD=ucx"], {}) == {"MPIR_CVAR_CH4_NETMOD": "ucx"}


def test_jobs_ask_for_sharing_where_the_partition_leaves_it_to_them(trace: Path, tmp_path: Path) -> None:
    for forced in (True, False):
        world = make_world(tmp_path / str(forced), forced=forced)
        asked = requests(world)
        run = world.replay(trace)
        assert [one.oversubscribe for one in asked] == [not forced]
        assert run.info.multiplicity == 2


def test_a_task_has_a_core_of_several_threads_and_its_memory_once(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, cores=2, threads=2)
    asked = requests(world)
    run = world.replay(trace)
    (one,) = asked
    assert (one.tasks_per_node, one.tasks_per_core) == (2, 1)
    assert (one.memory_per_cpu_mib, one.memory_per_node_mib) == (None, 2048)
    assert run.info.system == "N2C2"


def test_a_core_of_one_thread_needs_no_word(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, cores=2)
    asked = requests(world)
    world.replay(trace)
    assert (asked[0].tasks_per_core, asked[0].memory_per_cpu_mib, asked[0].memory_per_node_mib) == (
        None,
        1024,
        None,
    )


class Site(FakeSlurm):
    """Two partitions of different nodes, one of which is down.

    ``listed_first`` is the node that registered first where nodes are dynamic.
    """

    listed_first = "n1"

    def partitions(self) -> list[Partition]:
        (main,) = super().partitions()
        return [
            replace(main, name="short", nodes=("n1", "n2"), is_default=True),
            replace(main, name="long", nodes=("n2", "n3", "n4"), is_default=False),
            replace(main, name="closed", is_default=False, is_up=False),
        ]

    def nodes(self) -> list[SlurmNode]:
        nodes = [replace(node, memory_mib=1000 * int(node.name[1])) for node in super().nodes()]
        return sorted(nodes, key=lambda node: node.name != self.listed_first)


def test_the_partition_that_is_named_is_used() -> None:
    site = Site(nodes=4, cores=2)
    assert look_at_target(site).system == "N2C2"
    target = look_at_target(site, RequestedTarget(partition="long"))
    assert (target.node_names, target.batch.memory_mib) == (("n2", "n3", "n4"), 2000)
    both = look_at_target(site, RequestedTarget(partition="long", interactive_partition="short"))
    assert both.is_mq
    assert (both.interactive.names, both.pool("short")) == (("n1", "n2"), both.interactive)


def test_nodes_are_in_the_order_in_which_slurm_tries_them() -> None:
    site = Site(nodes=4, cores=2)
    site.listed_first = "n3"
    target = look_at_target(site, RequestedTarget(partition="long"))
    assert target.node_names == target.batch.names == ("n3", "n2", "n4")
    both = look_at_target(site, RequestedTarget(partition="long", interactive_partition="short"))
    assert both.node_names == ("n1", "n2", "n3", "n4")
    assert both.batch.names == ("n2", "n3", "n4")


def test_a_partition_that_is_not_there_or_not_up_is_one_line() -> None:
    site = Site(nodes=4, cores=2)
    with pytest.raises(UsageError, match="no partition gpu; it has short, long, closed"):
        look_at_target(site, RequestedTarget(partition="gpu"))
    with pytest.raises(ClusterError, match="partition closed is not up"):
        look_at_target(site, RequestedTarget(partition="closed"))


def test_nodes_that_are_down_are_an_error_or_left_out() -> None:
    site = Site(nodes=4, cores=2)
    site.down = {"n3"}
    with pytest.raises(ClusterError, match=r"n3; .*--down-nodes skip"):
        look_at_target(site, RequestedTarget(partition="long"))
    target = look_at_target(site, RequestedTarget(partition="long", down_nodes=DownNodes.SKIP))
    assert (target.node_names, target.left_out, target.batch.nodes) == (("n2", "n4"), ("n3",), 2)
    one = SwfJob(job_number=1, submit_s=0.0, run_s=1, allocated_procs=1)
    plan = make_plan(SwfTrace(SwfHeader(), (one,)), target, PlanOptions())
    request = submit_request(plan.jobs[0], target, ReplayOptions(sbatch_option=("contiguous",)), Path("/run"))
    assert request.options == ("exclude=n3", "contiguous")
    site.down = {"n2", "n3", "n4"}
    with pytest.raises(ClusterError, match="take no jobs"):
        look_at_target(site, RequestedTarget(partition="long", down_nodes=DownNodes.SKIP))


def test_a_run_is_resumed_although_a_node_has_gone_down(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, run_s=30.0)
    assert not world.begin(trace).run(lambda now: Wish.DETACH if now.now_s > 3 else Wish.GO_ON)
    world.slurm.down = {"n2"}
    assert world.resume().run(world.limit(3600))
    assert [row["state"] for row in rows(load_run(world.out))] == ["COMPLETED"]


@pytest.mark.parametrize(
    ("why", "is_begun"),
    [
        ("allocation failure: Invalid account or account/partition combination specified", False),
        ("allocation failure: Requested reservation is invalid", False),
        ("sbatch: unrecognized option '--bogus'", False),
        ("allocation failure: Invalid feature specification", False),
        ("allocation failure: Requested node configuration is not available", True),
        ("allocation failure: Invalid time specified", True),
    ],
)
def test_what_slurm_would_refuse_of_every_job_is_reported_before_the_run_is_made(
    why: str, is_begun: bool, trace: Path, tmp_path: Path
) -> None:
    world = make_world(tmp_path, cores=2)
    world.slurm.refuse = lambda request: why if request.tasks_per_node == 1 else None
    if is_begun:
        assert [row["state"] for row in rows(world.replay(trace))] == ["COMPLETED"]
        return
    with pytest.raises(ClusterError, match="look at --account"):
        world.begin(trace)
    assert not world.out.exists()


FILTER = "lua: Requesting memory is not supported.; sbatch: error: cli_filter plugin terminated with error"


def asks_memory(request: SubmitRequest) -> bool:
    return (request.memory_per_cpu_mib, request.memory_per_node_mib) != (None, None)


def test_an_error_of_a_site_that_refuses_memory_has_its_words_and_the_cure(
    trace: Path, tmp_path: Path
) -> None:
    world = make_world(tmp_path, cores=2)
    world.slurm.refuse = lambda request: FILTER if asks_memory(request) else None
    with pytest.raises(ClusterError, match=r"lua: Requesting memory is not supported.*give --no-memory"):
        world.begin(trace)
    assert not world.out.exists()
    assert [row["state"] for row in rows(world.replay(trace, ReplayOptions(memory=False)))] == ["COMPLETED"]


def test_a_site_that_wants_memory_takes_jobs_that_ask_for_it(trace: Path, tmp_path: Path) -> None:
    world = make_world(tmp_path, cores=2)
    world.slurm.refuse = lambda request: None if asks_memory(request) else "lua: say --mem"
    assert [row["state"] for row in rows(world.replay(trace))] == ["COMPLETED"]


def test_a_site_that_refuses_a_job_with_and_without_memory_is_not_cured_so(
    trace: Path, tmp_path: Path
) -> None:
    world = make_world(tmp_path, cores=2)
    world.slurm.refuse = lambda _: "Say an account, please.; allocation failure: Unspecified error"
    with pytest.raises(ClusterError, match=r"Say an account, please.*look at --account"):
        world.begin(trace)
    assert not world.out.exists()
