"""What a real slurmctld writes into its completion log: of jobs that it forgot, and of hostile ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local import LocalCluster, Shape
from foundation.slurm import SlurmJobState
from foundation.slurm.completions import CompletionFile
from tests.fixtures.looks import until
from tests.integration.hostile import Hostile, Words

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

START_S = 90.0


def test_the_log_has_what_slurmctld_forgot_and_no_word_of_a_user_is_believed(
    make_cluster: Callable[[Shape], LocalCluster],
) -> None:
    shape = Shape(nodes=1, cores=2, virtual=True, multiplicity=2, settings=("MinJobAge=2",))
    slurm = Hostile(make_cluster(shape))
    client = slurm.cluster.client()
    submitted: dict[int, float] = {}

    def submit(body: str, *options: str, words: Words | None = None) -> int:
        number = slurm.submit(words or Words(), "-n1", *options, body=body)
        assert number is not None
        submitted[number] = time.time()
        return number

    good, bad, killed = submit("exit 0"), submit("exit 3"), submit("kill -9 $$")
    cancelled = submit("sleep 99", "--begin=now+1hour")
    slurm.cancel([cancelled])
    again = submit("sleep 99", "--requeue")
    until(lambda: slurm.states().get(again) == "R", START_S, "the job to requeue runs")
    slurm.run("scontrol", "requeue", str(again))
    until(lambda: slurm.states().get(again) == "PD", START_S, "it is put back")
    slurm.cancel([again])
    path = Path(client.config()["JobCompLoc"])
    until(lambda: f"JobId={good} " in path.read_text(), START_S, "the log has a job")
    line = next(one for one in path.read_text().split("\n") if one.startswith(f"JobId={good} "))
    forged = line.replace("JobState=COMPLETED", "JobState=FAILED").replace(f"JobId={good} ", f"JobId={bad} ")
    whole = submit("exit 0", words=Words(name=b"x\n%s\ny" % forged.encode()))
    head = line.partition(" Name=")[0].replace(f"JobId={good}", f"JobId={bad}")
    half = submit("exit 0", words=Words(name=b"x JobState=\n%s Name=y" % head.encode()))
    long = submit("exit 0", words=Words(name=b"y" * 1000))
    after = submit("exit 0")
    until(lambda: not slurm.states(), START_S, f"slurmctld has forgotten all jobs; {slurm.states()}")
    until(lambda: f"JobId={after} " in path.read_text(), START_S, f"the log has job {after}")
    found = client.accounted(submitted)
    assert found is not None
    reported = {key: (one.state, one.exit_code, one.exit_signal) for key, one in found.items()}
    assert reported[good] == (SlurmJobState.COMPLETED, 0, None)
    assert reported[killed] == (SlurmJobState.FAILED, 0, 9)
    assert reported[cancelled][0] is SlurmJobState.CANCELLED
    assert reported.get(bad, (SlurmJobState.FAILED, 3, None)) == (SlurmJobState.FAILED, 3, None)
    assert reported.get(again, (SlurmJobState.CANCELLED,))[0] is SlurmJobState.CANCELLED, path.read_text()
    for number in (whole, half, long, after):
        assert reported.get(number, (SlurmJobState.COMPLETED,))[0] is SlurmJobState.COMPLETED
    good_end = found[good].end_time
    assert good_end is not None
    assert abs(good_end - submitted[good]) < START_S
    assert CompletionFile(path, "nobody").read() is not None
