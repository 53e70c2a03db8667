"""``osub doctor --cluster`` on real clusters: one that is as it should be, and broken ones."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from deploy.local import GangKind, LocalCluster, Shape
from osub.cli.main import root

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

TRIES = 6
Found = dict[str, dict[str, str]]


def doctor(cluster: LocalCluster, code: int) -> Found:
    """Return what is said, by subject."""
    words = ["doctor", "--cluster", str(cluster.folder), "--json"]
    done = CliRunner().invoke(root, words)
    assert done.exit_code == code, done.output
    return {one["what"]: one for one in json.loads(done.stdout)}


def bad(found: Found) -> set[str]:
    return {what for what, one in found.items() if one["grade"] == "bad"}


def test_an_embedded_cluster_has_nothing_bad(shared_cluster: LocalCluster) -> None:
    found = doctor(shared_cluster, 0)
    assert bad(found) == set()
    assert (found["OverSubscribe"]["found"], found["versions"]["grade"]) == ("main=FORCE:2", "good")
    started = found["MPI start"]
    for _ in range(TRIES - 1):  # both nodes must be free within 10 s
        if "not tried" not in started["why"]:
            break
        started = doctor(shared_cluster, 0)["MPI start"]
    assert started["grade"] == "good", started
    assert started["found"].startswith("2 ranks on 2 nodes, MPICH Version: "), started
    assert started["found"].endswith("netmod ofi over shm, PMI-1 of srun --mpi=pmi2"), started
    assert found["CPUs of ranks"]["found"] == "not tried", "no node has two cores"
    assert found["CPUs of nodes"]["grade"] == "good"
    shown = CliRunner().invoke(root, ["doctor", "--cluster", str(shared_cluster.folder)])
    assert shown.exit_code == 0
    assert shown.output.startswith("gangd can do its work there; a loss comes with ")
    assert "HealthCheckInterval=30" in shown.output


def test_cores_without_memory_and_short_timeouts_are_found(
    make_cluster: Callable[[Shape], LocalCluster],
) -> None:
    settings = (
        "SelectTypeParameters=CR_Core",
        "MessageTimeout=6",
        "UnkillableStepTimeout=8",
        "ProctrackType=proctrack/linuxproc",
        "KillWait=3",
    )
    shape = Shape(nodes=1, cores=1, virtual=True, multiplicity=2, settings=settings)
    found = doctor(make_cluster(shape), 1)
    assert bad(found) == {"memory as a resource", "MessageTimeout", "UnkillableStepTimeout"}
    assert found["memory as a resource"]["write"] == "SelectTypeParameters=CR_Core_Memory"
    assert found["MessageTimeout"]["found"] == "6 s"
    assert {found[what]["grade"] for what in ("process tracking", "KillWait")} == {"warning"}


def test_slurms_own_gang_scheduler_and_cores_that_no_one_shares_are_found(
    make_cluster: Callable[[Shape], LocalCluster],
) -> None:
    shape = Shape(nodes=1, cores=1, virtual=True, multiplicity=2, gang=GangKind.SLURM)
    assert bad(doctor(make_cluster(shape), 1)) == {"PreemptMode"}
    alone = Shape(nodes=1, cores=1, virtual=True, multiplicity=1)
    assert bad(doctor(make_cluster(alone), 1)) == {"OverSubscribe"}
