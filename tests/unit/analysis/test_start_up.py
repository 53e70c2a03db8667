"""Short jobs on cores of their own: what they take beyond their work is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from analysis.metrics.run_metrics import measure
from tests.unit.analysis.test_verdict import made_run


def test_start_up_is_named_where_it_is_much_of_the_run(tmp_path: Path) -> None:
    run = made_run(tmp_path, "short", wait_s=1, degradation=1.9, noise=0.0)
    (note,) = measure(run).notes
    assert note.startswith("No two jobs share a core: its degradation of 1.90 is start-up")
    assert "a median of 90.0 s beside 100.0 s of work" in note
    shared = replace(run, info=msgspec.structs.replace(run.info, multiplicity=2))
    assert not measure(shared).notes


def test_long_jobs_and_simulations_need_no_word(tmp_path: Path) -> None:
    assert not measure(made_run(tmp_path, "long", wait_s=1, degradation=1.05)).notes
    assert not measure(made_run(tmp_path, "sim", wait_s=1, degradation=1.9, kind="simulated")).notes
