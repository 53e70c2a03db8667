"""A million jobs through each of the other simulators' formats: time and memory. Reported, not judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

JOBS = int(os.environ.get("OSUB_BENCH_JOBS", "1000000"))
SYSTEM = "N4392C1"
PROGRAM = """
import json, resource, sys, time
from osub.cli.main import run
begun = time.perf_counter()
code = run(sys.argv[1:])
peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
wall_s = round(time.perf_counter() - begun, 1)
print(json.dumps({"code": code, "wall_s": wall_s, "peak_rss_mib": round(peak_mib)}))
"""


def measured(*words: object) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, words)], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert found["code"] == 0, done.stderr
    return found


def write_trace(path: Path) -> None:
    with path.open("w") as file:
        file.write("; Version: 2.2\n")
        for number in range(1, JOBS + 1):
            run_s, procs = 1 + number * 7919 % 86_400, 1 + number * 31 % 512
            file.write(
                f"{number} {number * 31} 5 {run_s} {procs} {run_s} -1 {procs} {2 * run_s} -1 1 "
                f"{number % 900} 1 -1 1 -1 -1 -1\n"
            )


def write_table(path: Path) -> None:
    with path.open("w") as file:
        file.write(
            "job_id,workload_name,submission_time,requested_number_of_resources,requested_time,success,"
            "starting_time,finish_time,allocated_resources\n"
        )
        for number in range(1, JOBS + 1):
            first, procs = number * 37 % 4000, 1 + number * 31 % 16
            file.write(
                f"{number},w,{number * 31},{procs},7200,1,{number * 31 + 5},{number * 31 + 3605},"
                f"{first}-{first + procs - 1}\n"
            )


@pytest.mark.benchmark
def test_a_million_jobs_pass_through_each_format(tmp_path: Path) -> None:
    trace, table = tmp_path / "t.swf", tmp_path / "jobs.csv"
    write_trace(trace)
    write_table(table)
    for form in ("batsim", "elastisim"):
        words = ("--format", form, "--out")
        out = tmp_path / form
        print("export", form, measured("trace", "export", trace, *words, out, "--system", SYSTEM))
        print("import", form, measured("trace", "import", out, *words, tmp_path / f"{form}.swf"))
    words = ("--format", "evalys", "--out")
    print("import evalys", measured("trace", "import", table, *words, tmp_path / "r", "--system", SYSTEM))
    print("export evalys", measured("trace", "export", tmp_path / "r", *words, tmp_path / "back.csv"))
    print(f"target: 1 GiB; {JOBS:,} jobs, load {os.getloadavg()[0]:.2f}")
