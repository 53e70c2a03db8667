"""osub trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from osub.cli.main import run
from tests.fixtures.cli import Cli
from tests.fixtures.recordings import write_series
from workloads.behaviour.utilisation_series import UtilisationSeries
from workloads.swf import SwfHeader, SwfJob, SwfTrace, read_swf, write_swf


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three weekdays on 256 cores, every fifth job interactive."""
    jobs = tuple(
        SwfJob(
            number, number * 200, run_s=300 + 10 * (number % 90),
            allocated_procs=(1, 2, 3, 4, 8, 12)[number % 6], requested_s=4000, user=number % 5,
            queue=0 if number % 5 == 0 else 1,
        )
        for number in range(1, 1296)
    )  # fmt: skip
    header = SwfHeader().with_field("UnixStartTime", 1400457600).with_field("MaxProcs", 256)
    path = tmp_path / "lab.swf"
    write_swf(path, SwfTrace(header, jobs))
    return path


@pytest.mark.slow
def test_scale_writes_the_trace_and_says_how_well_it_survived(trace: Path, tmp_path: Path, cli: Cli) -> None:
    out, page = tmp_path / "small.swf.gz", tmp_path / "small.html"
    words = ["trace", "scale", str(trace), "--system", "N4C4", "--out", str(out), "--html", str(page)]
    text = cli(*words).out
    for part in ("warm-up 3.00 h", "Kolmogorov-Smirnov, by cores", "interactive", "busy, max"):
        assert part in text
    assert "thesis" not in text.replace("thesis Table 7.2)", "")
    assert page.stat().st_size > 1_000_000
    small = read_swf(out)
    assert small.header.max_procs == 16
    assert all(job.pattern is not None for job in small.jobs if job.queue == 0)


def test_scale_json_has_slots_phases_and_kinds(trace: Path, tmp_path: Path, cli: Cli) -> None:
    words = ["trace", "scale", str(trace), "--system", "N4C4", "--out", str(tmp_path / "s.swf"), "--json"]
    words += ["--window", "2014-05-20", "--hours", "12", "--first-hour", "8", "--speedup", "100"]
    found = cli.json(*words)
    assert found["from_procs"] == 256
    window, scaling = found["window"], found["scaling"]
    assert (window["start_s"], window["end_s"]) == (86_400 + 8 * 3600, 86_400 + 20 * 3600)
    assert len(scaling["slot_errors"]) == 24
    assert "thesis_table_7_2" not in found
    assert max(job.submit_s for job in read_swf(tmp_path / "s.swf").jobs) <= 432


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("scale --system 12x12", "is not a system"),
        ("scale --window thesis", "is for UniLu-Gaia-2014-1"),
        ("scale --window yesterday", "or a date"),
        ("scale --window all --start 5", "exclude each other"),
        ("scale --start 99999999", "choose within"),
        ("scale --start 0 --hours 0", "--hours"),
        ("scale --interactive-day 2014-13-01", "--interactive-day takes a date"),
        ("scale --speedup 0", "--speedup divides"),
        ("scale --speedup 1e300", "--speedup divides"),
        ("scale --intensity -1", "intensity"),
        ("scale --system N4C4 --intensity 1e30", "intensity"),
        ("scale --system N4C4 --intensity nan", "intensity"),
        ("scale --warm-up nan", "'nan' is not a valid number"),
        ("scale --start nan", "'nan' is not a valid number"),
        ("scale --tolerance nan", "tolerance"),
        ("convert --users a", "--users takes numbers"),
        ("convert --users 9-2", "ends before it begins"),
        ("convert --users 77", "is left"),
        ("convert --tag colour=3", "--tag takes FIELD=NUMBER"),
        ("convert --tag queue", "--tag takes FIELD=NUMBER"),
        ("convert --length 0", "--length"),
        ("convert --arrivals 0", "factor"),
        ("convert --gaps 0", "speed-up"),
        ("convert --raise-runs 9 --cut-runs 3", "run times"),
        ("convert --system N2C4", "is SWF"),
        ("convert --interactive name=bash", "is SWF"),
        ("convert --time-zone Asia/Tokyo", "is SWF"),
        ("convert week.txt --time-zone Atlantis/Capital", "knows no 'Atlantis/Capital'"),
        ("convert week.txt --interactive bash", "FIELD=PATTERN"),
        ("convert week.txt --system small", "is not a system"),
        ("generate --jobs 99999999999", "--jobs"),
    ],
)
def test_bad_words_are_refused_in_one_line(
    words: str, message: str, trace: Path, tmp_path: Path, cli: Cli
) -> None:
    (log := tmp_path / "week.txt").write_text(ACCOUNTING)
    command, *rest = words.split()
    paths = [] if command == "generate" else [log if rest[0] == log.name else trace]
    rest = [word for word in rest if word != log.name]
    assert message in cli.said("trace", command, *paths, "--out", tmp_path / "out.swf", *rest, code=2)
    assert not (tmp_path / "out.swf").exists()


def test_existing_results_are_kept_unless_forced(trace: Path, tmp_path: Path, cli: Cli) -> None:
    (out := tmp_path / "g.swf").write_text("precious")
    assert "add --force" in cli("trace", "generate", "--out", out, "--jobs", "5", code=1).err
    assert out.read_text() == "precious"
    assert run(["trace", "generate", "--out", str(out), "--jobs", "5", "--force"]) == 0
    assert len(read_swf(out).jobs) == 5
    assert run(["trace", "generate", "--out", str(tmp_path / "no" / "g.swf")]) == 1


def test_generate_draws_what_was_asked_for(tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "g.swf"
    words = ["trace", "generate", "--out", str(out), "--jobs", "400", "--system", "N4C8", "--load", "0.5"]
    found = cli.json(*words, "--interactive-share", "0.25", "--json")
    assert (found["jobs"], found["interactive_jobs"], found["system"]) == (400, 100, "N4C8")
    assert found["offered_load"] == pytest.approx(0.5, rel=0.1)
    assert "400 jobs for N4C8" in cli(*words, "--force").out


def test_interactive_reaches_the_number_asked_for_and_prints_the_published_figures(
    trace: Path, tmp_path: Path, cli: Cli
) -> None:
    out = tmp_path / "i.swf"
    text = cli("trace", "interactive", trace, "--out", out, "--jobs", "400").out
    for part in ("400 of 1,295 jobs are interactive, 141 made so", "71 %", "46,715 s", "5.2 h"):
        assert part in text
    jobs = [job for job in read_swf(out).jobs if job.queue == 0]
    assert len(jobs) == 400
    for job in jobs:
        assert job.pattern is not None
        assert job.pattern.total_s == job.run_s


def test_interactive_takes_recordings_from_a_folder(trace: Path, tmp_path: Path, cli: Cli) -> None:
    (folder := tmp_path / "recorded").mkdir()
    write_series(folder / "a.csv", [UtilisationSeries("a", (5,) * 100, (1.0,) * 25 + (0.0,) * 75)])
    (folder / "b.csv").write_text("broken\n")
    words = ["trace", "interactive", str(trace), "--out", str(tmp_path / "i.swf"), "--patterns", str(folder)]
    found = cli.json(*words, "--json")
    assert (found["recordings"], len(found["recordings_skipped"])) == (1, 1)
    for job in read_swf(tmp_path / "i.swf").jobs:
        if job.queue == 0:
            assert job.pattern is not None
            assert job.pattern.busy_s == pytest.approx((job.run_s or 0) / 4, abs=0.01)
    assert "Skipped: " in cli(*words, "--force").out


def test_interactive_needs_interactive_jobs_or_a_number(trace: Path, tmp_path: Path, cli: Cli) -> None:
    words = ["trace", "interactive", str(trace), "--out", str(tmp_path / "i.swf")]
    assert "give --jobs" in cli(*words, "--interactive-queue", "7", code=2).err
    assert "cannot be reached" in cli(*words, "--jobs", "5000", code=2).err
    assert run([*words, "--patterns", str(tmp_path / "none")]) == 1


def test_convert_filters_tags_and_leaves_its_provenance(trace: Path, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "c.swf"
    words = ["trace", "convert", str(trace), "--out", str(out), "--not-queues", "0", "--users", "1-3"]
    words += ["--arrivals", "0.5", "--cut-runs", "600", "--tag", "queue=3:ondemand", "--tag-share", "0.1"]
    notes = cli.json(*words, "--speedup", "10", "--json")["notes"]
    assert [note.split(":")[0] for note in notes] == [
        "osub select", "osub arrivals", "osub clip", "osub tag", "osub compress",
    ]  # fmt: skip
    result = read_swf(out)
    assert {job.user for job in result.jobs} == {1, 2, 3}
    assert {job.queue for job in result.jobs} == {1, 3}
    assert max(job.run_s or 0 for job in result.jobs) == 60
    assert result.header.queues == {3: "ondemand"}


def test_convert_cleans_a_damaged_trace(trace: Path, tmp_path: Path, cli: Cli) -> None:
    trace.write_bytes(b"5 9 broken\n" + trace.read_bytes())
    assert ":1:" in cli("trace", "convert", trace, "--out", tmp_path / "c.swf", code=1).err
    printed = cli("trace", "convert", trace, "--out", tmp_path / "c.swf", "--lenient")
    assert "not a number 1" in printed.err
    assert len(read_swf(tmp_path / "c.swf").jobs) == 1295


@pytest.mark.slow
def test_merge_puts_traces_together(trace: Path, tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "m.swf"
    words = ["trace", "merge", str(trace), str(trace), "--out", str(out), "--align", "dates"]
    assert cli.json(*words, "--json")["jobs"] == 2590
    assert len({job.job_number for job in read_swf(out).jobs}) == 2590
    assert "2,590 jobs of 2 traces" in cli(*words, "--force").out
    assert (
        "at least two traces" in cli("trace", "merge", str(trace), "--out", str(out), "--force", code=2).err
    )


ACCOUNTING = """\
JobID|User|Partition|JobName|State|Submit|Start|End|NCPUS|TimelimitRaw
5|ada|work|solve|COMPLETED|2024-03-04T08:00:00|2024-03-04T08:01:00|2024-03-04T08:03:00|2|10
6|bob|devel|bash|COMPLETED|2024-03-04T08:00:30|2024-03-04T08:01:00|2024-03-04T08:02:00|1|10
7|bob|devel|x|CANCELLED by 5|2024-03-04T08:00:30|None|2024-03-04T08:02:00|1|10
"""


def test_convert_imports_accounting_and_says_what_it_left_out(tmp_path: Path, cli: Cli) -> None:
    log, out = tmp_path / "week.txt", tmp_path / "week.swf"
    log.write_text(ACCOUNTING)
    words = ["trace", "convert", str(log), "--out", str(out), "--system", "N2C4", "--time-zone", "Asia/Tokyo"]
    caught = cli(*words, "--json")
    assert json.loads(caught.out)["kind"] == "sacct"
    assert "never started 1" in caught.err
    trace = read_swf(out)
    assert (trace.header.max_procs, trace.header.time_zone_name) == (8, "Asia/Tokyo")
    assert [(job.queue, job.run_s) for job in trace.jobs] == [(1, 120), (0, 60)]
    assert run([*words, "--force", "--interactive", "partition=work", "--queues", "0"]) == 0
    assert [job.job_number for job in read_swf(out).jobs] == [5]


@pytest.mark.slow
def test_convert_reads_accounting_from_a_pipe(tmp_path: Path, cli: Cli) -> None:
    command = [sys.executable, "-m", "osub.cli.main", "trace", "convert", "-", "--out", "week.swf"]
    done = subprocess.run(
        command, input=ACCOUNTING, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert len(read_swf(tmp_path / "week.swf").jobs) == 2


@pytest.mark.parametrize(
    "command", [[], ["trace"], ["trace", "scale"], ["simulate"], ["cluster", "up"], ["experiment"]]
)
def test_help_has_one_style_and_a_short_name(command: list[str], cli: Cli) -> None:
    texts = [cli(*command, word).out for word in ("-h", "--help")]
    assert texts[0] == texts[1]
    assert texts[0].startswith("Usage: osub")
    assert "\N{BOX DRAWINGS LIGHT HORIZONTAL}" not in texts[0]


WIDE = (
    ACCOUNTING
    + """\
8|eve|work|solve|COMPLETED|2024-03-04T08:00:00|2024-03-04T08:01:00|2024-03-04T08:03:00|900|10
"""
)


def converted(log: str, folder: Path, cli: Cli, *words: str, code: int = 0) -> tuple[str, str]:
    """Convert a log; return what is printed, and what is said on standard error."""
    (folder / "log").write_text(log)
    out = folder / "out.swf"
    return cli("trace", "convert", folder / "log", "--out", out, "--force", *words, code=code)


def test_convert_says_that_a_system_is_too_small_for_the_log(tmp_path: Path, cli: Cli) -> None:
    _, output = converted(WIDE, tmp_path, cli, "--system", "N2C4")
    assert "too small" in output
    assert "903 processors were in use at once, the system has 8" in output
    assert "osub trace scale" in output
    assert "too small" not in converted(WIDE, tmp_path, cli, "--system", "N10C100")[1]


def test_convert_counts_the_jobs_that_it_left_out(tmp_path: Path, cli: Cli) -> None:
    assert converted(ACCOUNTING, tmp_path, cli)[0].splitlines()[-1].endswith("out.swf: 2 of 3 jobs")


def test_patterns_that_find_no_interactive_job_are_named(tmp_path: Path, cli: Cli) -> None:
    bare = "\n".join(line.partition("|")[0] + "|" + line.split("|", 4)[4] for line in WIDE.splitlines())
    output = converted(bare, tmp_path, cli, "--interactive", "partition=devel", code=2)[1]
    assert "partition=devel: no job of log has a partition" in output
    assert (
        "it has name, partition, user"
        in converted(WIDE, tmp_path, cli, "--interactive", "qos=debug", code=2)[1]
    )
    assert "fits --interactive name=debug" in converted(WIDE, tmp_path, cli, "--interactive", "name=debug")[1]
    assert "fits" not in converted(WIDE, tmp_path, cli, "--interactive", "name=bash")[1]


@pytest.mark.parametrize("line", ["root:x:0:0:root:/root:/bin/bash\n", "1;2;3\n", "5 9 broken\n"])
def test_convert_does_not_recommend_itself(line: str, tmp_path: Path, cli: Cli) -> None:
    output = converted(line, tmp_path, cli, code=1)[1]
    assert "trace convert" not in output
    assert "sacct --allusers" in output


TRACE = b"""\
; Installation: Lab [bold]\x1b[31m
; MaxProcs: 8
1 0 -1 10 1 -1 -1 -1 20 -1 1 1 1 -1 0 -1 -1 -1
2 9 -1 10 4 -1 -1 -1 20 -1 1 1 1 -1 1 -1 -1 -1
"""


@pytest.fixture
def small_trace(tmp_path: Path) -> Path:
    (path := tmp_path / "lab.swf").write_bytes(TRACE)
    return path


def test_info_prints_what_a_person_wants(small_trace: Path, cli: Cli) -> None:
    said = cli("trace", "info", small_trace).out
    for words in ("Trace lab", "Jobs", "Serial jobs", "50.0%", "run time", "hour since", "nothing to remark"):
        assert words in said


def test_info_shows_foreign_text_without_obeying_it(small_trace: Path, cli: Cli) -> None:
    output = cli("trace", "info", small_trace).out
    assert "Lab [bold]\N{REPLACEMENT CHARACTER}[31m" in output
    assert "\x1b" not in output


def test_info_json_is_the_summary(small_trace: Path, cli: Cli) -> None:
    data = cli.json("trace", "info", small_trace, "--json")
    assert (data["jobs"], data["max_procs"], data["run_s"]["percentiles"]["50"]) == (2, 8, 10.0)


def test_info_stops_at_a_malformed_line_unless_lenient(small_trace: Path, cli: Cli) -> None:
    small_trace.write_bytes(TRACE + b"3 x\n")
    assert "lab.swf:5: field 2" in cli.said("trace", "info", small_trace, code=1)
    lenient = cli.json("trace", "info", small_trace, "--lenient", "--json")
    assert lenient["remarks"][0] == "skipped, not a number: 1"
