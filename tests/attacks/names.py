"""Names that can be known before, taken by the second user first."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from deploy.local import LocalCluster, Shape
from deploy.local.layout import names_of
from foundation.files import SHM, stand_in
from foundation.slurm import SubmitRequest
from gangd.controller.controller_status import read_status
from tests.attacks.attack import OTHER_USER, Scene, attack
from tests.fixtures.looks import until

SHAPE = Shape(nodes=1, cores=1, virtual=True)


@attack("stand-in of a long path")
def short_folder(scene: Scene) -> None:
    """Makes /tmp/osub-0-HASH, where spools of long paths once were, with a spool in it."""
    home = scene.precious / ("long" * 20)
    guessed = Path(tempfile.gettempdir(), f"osub-{os.geteuid()}-{names_of(home).letters}")
    (guessed / "spool").mkdir(parents=True)
    (guessed / "run").mkdir()
    scene.give(guessed, 0o777)
    cluster = LocalCluster(home)
    try:
        short = Path(cluster.up(SHAPE).layout.short)
        assert short != guessed
        assert short.stat().st_uid == os.geteuid()
        for words in (["mv", str(short), f"{short}-mine"], ["rm", "-r", str(short)], ["touch", f"{short}/x"]):
            assert scene.as_other(*words).returncode != 0
        assert [entry.name for entry in sorted(guessed.iterdir())] == ["run", "spool"]
        assert not any((guessed / "spool").iterdir())
    finally:
        cluster.down()
        for entry in (guessed / "spool", guessed / "run", guessed):
            entry.rmdir()
    assert not short.exists()


@attack("stand-in of the agents' state")
def ledger_folder(scene: Scene) -> None:
    """Makes /dev/shm/gangd-0-HASH with forged state files before an agent starts."""
    (state := scene.precious / "agents").mkdir()
    (squat := stand_in(state)).mkdir()
    (squat / "agent-n1.state").write_bytes(b"osubgang" + bytes(1 << 20))
    scene.give(squat, 0o777)
    try:
        thaw = [sys.executable, "-P", "-m", "gangd.agent.main", "thaw", "--expired", "--state", str(state)]
        done = scene.root(*thaw, "--json")
        assert json.loads(done.stdout)["files"] == 0, (done.stdout, done.stderr)
        assert json.loads(done.stdout)["jobs"] == []
        assert (squat / "agent-n1.state").exists()
    finally:
        (squat / "agent-n1.state").unlink()
        squat.rmdir()
        state.rmdir()


@attack("ranks' shared memory")
def shared_memory(scene: Scene) -> None:
    """Makes /dev/shm/mpich_shm_HASH_0, open to all, before the job of that number starts."""
    client = scene.cluster.client()
    report = scene.precious / "rrba.report"
    rrba = f"{sys.executable} -P -m workloads.rrba --app jacobi --grid 64x64x64 --steps 5"
    numbers = [job.job_id for job in client.jobs().jobs]
    first = max(numbers, default=int(scene.cluster.client().config()["FirstJobId"])) + (1 if numbers else 0)
    taken = [SHM / f"mpich_shm_{_fnv(f'{number}.0'):x}_0" for number in range(first, first + 8)]
    for path in taken:
        while (
            not path.exists() or path.stat().st_uid == 0
        ):  # the end of another cluster removes what root left
            with suppress(FileNotFoundError):
                path.write_bytes(bytes(1 << 22))
                scene.give(path, 0o666)
    try:
        job = client.submit(
            SubmitRequest(
                script=f"#!/bin/sh\nsrun --mpi=pmi2 --overcommit -N1 -n2 {rrba} --report {report}\n",
                name="ranks",
                output=scene.precious / "rrba.out",
                environment=dict(os.environ),
            )
        )
        assert first <= job < first + 8
        _ended(scene, job)
        said = (scene.precious / "rrba.out").read_text()
        assert report.exists(), said
        assert json.loads(report.read_text())["state"] == "completed"
        for path in taken:
            if path.exists():
                assert path.read_bytes() == bytes(1 << 22), "ranks wrote into the second user's memory"
        assert not taken[job - first].exists(), "root did not remove what was in the way"
    finally:
        for path in [*taken, report, scene.precious / "rrba.out"]:
            path.unlink(missing_ok=True)


@attack("kernel cache")
def kernel_cache(scene: Scene) -> None:
    """Owns the folder that XDG_CACHE_HOME or NUMBA_CACHE_DIR names, for kernels are pickles."""
    cache = scene.shared / "cache"
    (cache / "osub").mkdir(parents=True)
    scene.give(cache, 0o777)
    ask = "from workloads.rrba.solvers.compiled_solvers import cache_folder; print(cache_folder())"
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        done = scene.root(sys.executable, "-P", "-c", ask, **{name: str(cache)})
        assert done.stdout.strip() == "None", done.stdout
        assert f"user id {OTHER_USER}" in done.stderr
    done = scene.root(
        sys.executable,
        "-P",
        "-c",
        "from foundation.trust import usable_cache; "
        "from simulator.jit.compilation import cache_folder; "
        "print(usable_cache(cache_folder()))",
        NUMBA_CACHE_DIR=str(cache),
    )
    assert done.stdout.strip() == "False"


def _fnv(step: str) -> int:
    value = 0x811C9DC5
    for byte in step.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def _ended(scene: Scene, job: int) -> None:
    client = scene.cluster.client()

    def over() -> bool:
        known = client.job(job)
        return known is None or known.state.is_over

    until(over, 60, f"job {job} ends")


def wait_for_looks(scene: Scene, looks: int = 2) -> None:
    """Wait until the controller has asked Slurm for its jobs so often since now."""
    folder = scene.cluster.state().layout.gang / "state"
    for _ in range(looks):
        now_ms = time.time() * 1000

        def asked(now_ms: float = now_ms) -> bool:
            status = read_status(folder)
            age_ms = (status.slurm_age_s or 1e9) * 1000
            return status.time_ms - age_ms > now_ms

        until(asked, 60, "the controller asks Slurm again")
