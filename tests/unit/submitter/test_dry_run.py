"""What a replay would do is shown, and nothing is done."""

from __future__ import annotations

import subprocess
from pathlib import Path

from submitter.plan.replay_options import ReplayOptions
from submitter.replay.begin_run import draw_up, dry_run
from tests.fixtures.fake_slurm import FakeSlurm
from tests.fixtures.replay_world import write_trace


def test_each_job_is_shown_with_its_instant_its_words_and_its_script(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.swf", (1, 0, 5, 2), (2, 3, 5, 1))
    slurm, options = FakeSlurm(nodes=2, cores=1, multiplicity=2), ReplayOptions(run_id="feed")
    drawn = draw_up(trace, slurm, options, None)
    first, second = dry_run(drawn.plan, drawn.target, options, tmp_path / "a run")
    assert first.startswith("# second 0.000: sbatch --parsable")
    assert "--nodes=2 --ntasks=2" in first
    assert second.startswith("# second 3.000: sbatch")
    assert "workloads.rrba --app" in second
    assert not slurm.jobs().jobs
    assert [path.name for path in tmp_path.iterdir()] == ["t.swf"]
    # The scripts are comments and here-documents: a shell reads them without doing anything.
    script = f"cat() {{ :; }}\n{first}{second}"
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
