"""One is no plural: what is counted for people goes through ``foundation.units.counted``."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = (
    "analysis",
    "deploy",
    "foundation",
    "gangd",
    "osub",
    "predictor",
    "simulator",
    "submitter",
    "workloads",
)
NOUNS = "|".join(
    [
        "agent",
        "application",
        "claim",
        "cluster",
        "column",
        "core",
        "CPU",
        "event",
        "file",
        "host",
        "job",
        "key",
        "line",
        "node",
        "pair",
        "pattern",
        "point",
        "processor",
        "rank",
        "recording",
        "record",
        "replay",
        "row",
        "run",
        "sample",
        "seed",
        "setting",
        "slice",
        "step",
        "task",
        "trace",
        "trial",
        "user",
    ]
)
COUNTED = re.compile(rf"\{{len\([^{{}}\"]*\)(?::,)?\}} (?:[a-z]+ )?(?:{NOUNS})s\b")
INSIDE = (
    "gangd/core/",
    "simulator/engine/",
    "simulator/timeshare/",
    "foundation/slurm/subprocess_reader.py",
)
"""What is said there is said to who writes a policy or a protocol, and never of one."""


def test_numbers_of_things_are_told_by_one_function() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {hit[0]}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(INSIDE)
        for hit in COUNTED.finditer(path.read_text(encoding="utf-8"))
        if "SIMULATED_PLACES" not in hit[0]
    ]
    assert not found, "say counted(len(...), 'job') instead: 1 job, 2 jobs"
