"""What a replay would hand to sbatch, as text: nothing is written, nothing is submitted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from foundation.one_line import one_line
from foundation.slurm.calling.sbatch_options import sbatch_options
from submitter.plan import Plan, ReplayOptions, Target
from submitter.replay.job_request import submit_request


def dry_run(plan: Plan, target: Target, options: ReplayOptions, run: Path) -> Iterator[str]:
    """Yield, for each job in the order of submission, its instant, sbatch's words, and the script.

    Parameters
    ----------
    plan, target, options
        What would be replayed, where, and how.
    run
        The RUN that would be made, absolute.
    """
    for job in plan.jobs:
        request = submit_request(job, target, options, run)
        words = one_line(shlex.join(["sbatch", *sbatch_options(request)]), 4096)
        yield f"# second {job.due_s:.3f}: {words} <<'EOF'\n{request.script.rstrip()}\nEOF\n"
