"""The AdminComment of jobs that begin to share cores says so, on a real Slurm."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest

from tests.fixtures.looks import until
from tests.integration.gang.stage import SPIN, Stage

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

WORD = re.compile(r"gangd-shares-cores=[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


@pytest.fixture
def marking(stage: Stage) -> Iterator[Stage]:
    """The shared cluster, with a gangd that marks jobs."""
    file = stage.layout.gang / "gangd.toml"
    before = file.read_text()
    file.write_text(f'{before}mark_jobs = "admin_comment"\n')
    os.kill(stage.daemon("gangd").pid, signal.SIGHUP)
    yield stage
    file.write_text(before)
    os.kill(stage.daemon("gangd").pid, signal.SIGHUP)


def test_a_job_that_begins_to_share_is_marked_once_and_nothing_is_overwritten(marking: Stage) -> None:
    stage, node = marking, marking.nodes[0]
    first = stage.start(SPIN, node)
    stage.run("scontrol", "update", f"JobId={first}", "AdminComment=the site's own words")
    alone = stage.start(SPIN, stage.nodes[1])
    second = stage.start(SPIN, node)

    def said(job: int) -> str | None:
        return stage.job(job).admin_comment

    until(lambda: said(second) is not None, 60, f"job {second} is marked")
    mark = said(second)
    assert mark is not None
    assert WORD.fullmatch(mark)
    assert said(first) == "the site's own words"
    assert said(alone) is None
    assert f"AdminComment={mark}" in stage.run("scontrol", "show", "job", str(second)).stdout
    third = stage.start(SPIN, stage.nodes[1])
    until(lambda: said(third) is not None and said(alone) is not None, 60, "the others are marked, too")
    assert said(second) == mark
