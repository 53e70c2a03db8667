"""What is checked is exchanged for something else before it is used, over and over, for a bounded time."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from deploy.local import LocalCluster, Shape
from foundation.errors import OsubError, TrustError
from foundation.files import write_whole
from foundation.slurm import SubmitRequest
from foundation.trust import open_parent
from tests.attacks.attack import ACCOUNT, OTHER_USER, Scene, attack, concurrently
from tests.fixtures.looks import until
from tests.fixtures.tier import choose

FORKER = "while :; do sleep 0.01; done"
SHAPE = Shape(nodes=1, cores=1, virtual=True)


@attack("folder for a link, on the way up")
def swap_above(scene: Scene) -> None:
    """Exchanges a folder above the cluster's for a link to root's own, and back."""
    real, link, name = (scene.shared / word for word in ("real", "link", "above"))
    real.mkdir(mode=0o777)
    scene.give(real, 0o777)
    link.symlink_to(scene.precious)
    scene.give(link)
    opened = 0

    def swap() -> None:
        for one in (real, link):
            one.rename(name)
            name.rename(one)

    with concurrently(swap):
        for _ in range(choose(300, 1000, 20_000)):
            try:
                os.close(open_parent(name / "c"))
            except (OSError, TrustError):
                continue
            opened += 1
    assert opened == 0
    for path in (real, name):
        shutil.rmtree(path, ignore_errors=True)


@attack("folder for a link, on the way down")
def swap_below(scene: Scene) -> None:
    """Exchanges folders of a job's spool for links while `down` removes it."""
    for _ in range(choose(1, 1, 20)):
        home = scene.precious / "c"
        cluster = LocalCluster(home)
        layout = cluster.up(SHAPE).layout
        spool = Path(layout.spool) / layout.nodes[0].name
        mine = spool / "theirs"
        (mine / "inner" / "deep").mkdir(parents=True)
        for entry in (mine, mine / "inner", mine / "inner" / "deep"):
            os.chown(entry, OTHER_USER, OTHER_USER)
            entry.chmod(0o777)

        def swap(mine: Path = mine) -> None:
            (mine / "inner").rename(mine / "hidden")
            (mine / "inner").symlink_to(scene.precious)
            (mine / "inner").unlink()
            (mine / "hidden").rename(mine / "inner")

        with concurrently(swap):
            for _ in range(5):
                if not cluster.down().left and not home.exists():
                    break
        assert not home.exists()
        assert (scene.precious / "file").exists()


@attack("file for a link")
def swap_files(scene: Scene) -> None:
    """Exchanges files of a folder that all share for links while root writes them."""
    report = scene.shared / "report"

    def swap() -> None:
        names = [entry for entry in scene.shared.iterdir() if entry.name.startswith(".report")]
        for entry in (report, *names):
            with suppress(OSError):
                entry.symlink_to(scene.precious / "file")

    with concurrently(swap):
        for _ in range(choose(200, 500, 5000)):
            try:
                write_whole(report, "a report", 0o644)
            except OsubError:
                continue
    report.unlink(missing_ok=True)


@attack("tasks that outlive their job")
def fork_on(scene: Scene) -> None:
    """Runs a task that leaves its session, clears its environment and forks on."""
    home = scene.precious / "c"
    home.parent.chmod(0o755)
    cluster = LocalCluster(home)
    cluster.up(SHAPE)
    fork = f"for i in 1 2 3; do env -i setsid sh -c '{FORKER}' & done"
    done = scene.as_other(
        "sbatch",
        "--parsable",
        "--output=/dev/null",
        stdin=f"#!/bin/sh\n{fork}\nsleep 300\n",
        user=ACCOUNT,
        environment={"SLURM_CONF": str(cluster.conf)},
    )
    assert done.returncode == 0, done.stderr
    client = cluster.client()
    job = int(done.stdout)
    until(lambda: (known := client.job(job)) is not None and known.state.holds_cores, 60, "it runs")
    until(lambda: _escaped() >= 3, 60, "its processes are on their own")
    assert client.submit(SubmitRequest(script="#!/bin/sh\n", name="x", environment=dict(os.environ))) > job
    cluster.down()
    assert _escaped() == 0
    assert not home.exists()


def _escaped() -> int:
    found = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += FORKER.encode() in (entry / "cmdline").read_bytes()
            except OSError:
                continue
    return found
