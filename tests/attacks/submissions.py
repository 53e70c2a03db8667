"""What a user may say to Slurm, and through it to root's daemons."""

from __future__ import annotations

import os

from foundation.slurm import SubmitRequest
from tests.attacks.attack import Scene, attack
from tests.attacks.names import wait_for_looks
from tests.attacks.plain import users_cluster
from tests.fixtures.looks import until

HELD = ("-H", "--output=/dev/null")
SLEEPER = "#!/bin/sh\nsleep 300\n"


@attack("job names")
def job_names(scene: Scene) -> None:
    """Submits jobs whose names, comments and folders read like Slurm's own words, or like a command."""
    evil = scene.shared / "evil"
    names = [
        f"x Nodes=@x';id>{evil};' CPU_IDs=0 Mem=1",
        f"x Nodes=@x`id>{evil}` CPU_IDs=0 Mem=1",
        f"x Nodes=$(id>{evil}) CPU_IDs=0 Mem=1",
        "x Nodes=n[1-2] CPU_IDs=0-3000000 Mem=1",
        "x Nodes=a CPU_IDs=x Mem=1",
        "x\nJobId=1 JobState=COMPLETED",
        "x Command=/bin/true",
        "\u202e\x1b[2J" + "x" * 500,
    ]
    jobs = [_submit(scene, f"--comment={name}", "-J", name) for name in names]
    wait_for_looks(scene)
    assert scene.osub("cluster", "status", "--state", str(scene.cluster.folder)).returncode == 0
    assert scene.osub("top", "--state", str(scene.cluster.folder), "--once").returncode == 0
    assert not evil.exists()
    assert scene.slurm("scancel", *jobs).returncode == 0


@attack("others' jobs")
def others_jobs(scene: Scene) -> None:
    """Cancels, changes or signals a job of root's, or tells slurmctld to end."""
    client = scene.cluster.client()
    job = client.submit(SubmitRequest(script=SLEEPER, name="root's", environment=dict(os.environ)))
    try:
        for words in (
            ("scancel", str(job)),
            ("scancel", "--signal=STOP", str(job)),
            ("scontrol", "update", f"JobId={job}", "TimeLimit=1"),
            ("scontrol", "suspend", str(job)),
            ("scontrol", "shutdown"),
            ("scontrol", "reconfigure"),
        ):
            done = scene.slurm(*words)
            said = (done.stdout + done.stderr).lower()
            assert done.returncode != 0 or "denied" in said or "error" in said, (words, said)
        known = client.job(job)
        assert known is not None
        assert not known.state.is_over
        assert known.state.value != "SUSPENDED"
        listed = scene.slurm("squeue", "-h", "-o", "%i").stdout.split()
        assert str(job) not in listed, "PrivateData hides it"
    finally:
        client.cancel([job])


@attack("a plain user's cluster")
def plain_users_cluster(scene: Scene) -> None:
    """Submits a job to a cluster of another plain user, where it would run as him.

    Its folders are closed, so that slurm.conf cannot be read, and munged's socket not be reached.
    """
    with users_cluster() as conf:
        assert scene.as_other("cat", str(conf)).returncode != 0
        assert scene.as_other("ls", str(conf.parent)).returncode != 0
        # Even with its configuration known, which is no secret, there is no way to its munged.
        (copy := scene.shared / "slurm.conf").write_bytes(conf.read_bytes())
        copy.chmod(0o644)
        known = {"SLURM_CONF": str(copy)}
        words = ("timeout", "10", "sbatch", "--output=/dev/null")
        assert scene.as_other(*words, stdin=SLEEPER, environment=known).returncode != 0


@attack("the opt-out of others")
def comments(scene: Scene) -> None:
    """Asks in his own job's comment for what concerns other jobs.

    A comment is read for the site's own words only; others' jobs keep their places.
    """
    client = scene.cluster.client()
    job = client.submit(SubmitRequest(script=SLEEPER, name="root's", environment=dict(os.environ)))
    until(lambda: (known := client.job(job)) is not None and known.state.holds_cores, 60, "it runs")
    before = client.job(job)
    asked = (f"gangd=off JobId={job}", f"gangd-weight=1e9 JobId={job}", "gangd-hold=\nx")
    jobs = [_submit(scene, f"--comment={comment}") for comment in asked]
    wait_for_looks(scene)
    after = client.job(job)
    assert before is not None
    assert after is not None
    assert (before.cores, before.end_time) == (after.cores, after.end_time)
    client.cancel([job])
    assert scene.slurm("scancel", *jobs).returncode == 0


def _submit(scene: Scene, *options: str) -> str:
    done = scene.slurm("sbatch", "--parsable", *HELD, *options, stdin=SLEEPER)
    assert done.returncode == 0, (options, done.stderr)
    return done.stdout.strip()
