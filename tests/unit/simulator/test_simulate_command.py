"""``osub simulate``: what it writes and prints, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from click.testing import Result as Outcome
from typer.testing import CliRunner

from foundation.errors import InputError, OsubError, OutputError, UsageError
from foundation.records import load_run
from osub.cli.simulate import simulate
from tests.fixtures.golden import SHARED

LINES = [
    "1 5 -1 100 4 -1 -1 4 100 -1 1 7 1 -1 1 -1 -1 -1",
    "2 6 -1 60 4 -1 -1 4 90 -1 1 8 1 -1 1 -1 -1 -1",
    "3 7 -1 50 1 -1 -1 1 50 -1 1 -1 1 -1 0 -1 -1 -1 -1 -1 -1 5 5 2 5 20 15",
    "4 8 -1 0 1 -1 -1 1 50 -1 1 7 1 -1 1 -1 -1 -1",
]

OVERUSE = SHARED / "field/12-swf-prelude-and-overuse/overuse.swf"

app = typer.Typer()
app.command()(simulate)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (path := tmp_path / "small.swf").write_text("; Version: 2.2\n" + "\n".join(LINES) + "\n")
    return path


def call(trace: Path, out: Path, *words: str) -> Outcome:
    options = [str(trace), "--system", "N2C2", "--out", str(out), *words]
    return CliRunner().invoke(app, options, catch_exceptions=True)


@pytest.mark.skipif(not OVERUSE.is_file(), reason="needs field inputs in OSUB_SHARED/field")
def test_no_job_of_a_log_with_overuse_vanishes(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, [str(OVERUSE), "--system", "N4C2", "--out", str(tmp_path / "run")])
    assert outcome.exit_code == 0, outcome.output
    run = load_run(tmp_path / "run")
    rows = {row["trace_job"]: row for row in run.jobs.to_dicts()}
    assert {job: (row["state"], row["cores"], row["nodes"]) for job, row in rows.items()} == {
        1: ("COMPLETED", 8, 4),  # as requested, not the 16 processors that the log says it had
        2: ("COMPLETED", 8, 4),
        4: ("COMPLETED", 2, 1),
    }
    assert rows[4]["end_s"] - rows[4]["start_s"] == 500
    left_out = {key: value for key, value in run.info.options.items() if key.startswith("left out: ")}
    assert left_out == {"left out: without a run time": 1, "left out: without a processor": 1}  # 3 and 5
    assert (
        "3 jobs on N4C2 (not as in the trace: 1 without a processor, 1 without a run time)" in outcome.output
    )


def test_it_writes_a_run_that_reads_back(trace: Path, tmp_path: Path) -> None:
    outcome = call(trace, tmp_path / "run", "--multiplicity", "2", "--overhead", "1.0")
    assert outcome.exit_code == 0, outcome.output
    run = load_run(tmp_path / "run")
    assert run.complete
    assert (run.info.kind, run.info.system, run.info.policy, run.info.multiplicity) == (
        "simulated",
        "N2C2",
        "easy",
        2,
    )
    assert run.info.options["left out: without a run time"] == 1
    assert run.info.engine_cpu_s is not None
    rows = run.jobs.to_dicts()
    assert [row["trace_job"] for row in rows] == [1, 2, 3]
    assert [row["kind"] for row in rows] == ["batch", "batch", "interactive"]
    assert [row["user"] for row in rows] == ["7", "8", None]
    assert [(row["due_s"], row["start_s"], row["end_s"]) for row in rows[:2]] == [(0, 0, 179), (1, 1, 121)]
    assert rows[2]["busy_s"] == 25
    assert rows[0]["placement"] == [{"node": "n1", "cores": "0-1"}, {"node": "n2", "cores": "0-1"}]


def test_json_has_the_main_figures(trace: Path, tmp_path: Path) -> None:
    figures = json.loads(call(trace, tmp_path / "run", "--json").stdout)
    assert (figures["jobs"], figures["left_out"]) == (3, {"without a run time": 1})
    assert figures["wait_max_s"] > 0


def test_queues_apart_keep_interactive_jobs_on_their_nodes(trace: Path, tmp_path: Path) -> None:
    words = ["--queues", "mq", "--interactive-nodes", "1", "--oversize", "clip"]
    assert call(trace, tmp_path / "run", *words).exit_code == 0
    run = load_run(tmp_path / "run")
    assert (run.info.queues, run.info.interactive_nodes, run.info.multiplicity_interactive) == ("mq", 1, 4)
    nodes = {row["queue"]: [place["node"] for place in row["placement"]] for row in run.jobs.to_dicts()}
    assert nodes == {"interactive": ["n1"], "batch": ["n2"]}


def test_a_file_gives_what_the_command_line_does_not(trace: Path, tmp_path: Path) -> None:
    (spec := tmp_path / "spec.toml").write_text(
        'trace = "small.swf"\nsystem = "N2C2"\nmultiplicity = 2\npolicy = "slurm"\nvary_overhead = false\n'
        "memory_gib = 4\nsettings = {interval = 5}\n"
    )
    words = ["--spec", str(spec), "--out", str(tmp_path / "run"), "--memory-gib", "8"]
    outcome = CliRunner().invoke(app, words)
    assert outcome.exit_code == 0, outcome.output
    info = load_run(tmp_path / "run").info
    assert (info.multiplicity, info.policy, info.options["memory_gib"]) == (2, "slurm", 8.0)
    assert (info.options["policy_options"], info.other_overheads) == ("interval=5", {})


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('sytem = "N2C2"', UsageError, "did you mean system"),
        ("seed = true", UsageError, "seed takes a whole number, not True"),
        ("pairs = 3", UsageError, "pairs takes a text, not 3"),
        ('settings = "interval=5"', UsageError, "settings takes a mapping or a list, not 'interval=5'"),
        ("slowdowns = 1", UsageError, "nothing is called slowdowns"),
        ("seed = ", InputError, "is no TOML"),
    ],
)
def test_a_file_with_what_a_simulation_does_not_take_is_refused(
    trace: Path, tmp_path: Path, text: str, error: type[OsubError], message: str
) -> None:
    (tmp_path / "spec.toml").write_text(text)
    outcome = call(trace, tmp_path / "run", "--spec", str(tmp_path / "spec.toml"))
    assert isinstance(outcome.exception, error)
    assert message in str(outcome.exception)


def test_the_trace_of_a_run_keeps_the_runs_clock(trace: Path, tmp_path: Path) -> None:
    assert call(trace, tmp_path / "first").exit_code == 0
    for again in (tmp_path / "first", tmp_path / "first" / "trace.swf.gz"):
        out = tmp_path / f"again-{again.name}"
        assert call(again, out).exit_code == 0
        assert load_run(out).jobs["due_s"].to_list() == [5, 6, 7]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--policy", "sjf"], UsageError),
        (["--system", "12x12"], UsageError),
        (["--multiplicity", "9"], UsageError),
        (["--oversize", "maybe"], UsageError),
        (["--zero-length", "fail"], InputError),
        (["--system", "N1C1", "--oversize", "fail"], InputError),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    trace: Path, tmp_path: Path, words: list[str], error: type[OsubError]
) -> None:
    outcome = call(trace, tmp_path / "run", *words)
    assert isinstance(outcome.exception, error)
    assert "\n" not in str(outcome.exception)
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_there_is_not_overwritten(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious").touch()
    assert isinstance(call(trace, tmp_path / "run").exception, OutputError)


def test_a_trace_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    assert isinstance(call(tmp_path / "none.swf", tmp_path / "run").exception, InputError)


def test_malformed_lines_are_passed_over_only_when_asked(trace: Path, tmp_path: Path) -> None:
    trace.write_text(trace.read_text().replace("2 6 ", "2 -1 "))
    outcome = call(trace, tmp_path / "strict")
    assert isinstance(outcome.exception, InputError)
    assert "submit time" in str(outcome.exception)
    outcome = call(trace, tmp_path / "lenient", "--lenient")
    assert outcome.exit_code == 0, outcome.output
    assert "1 malformed lines" in outcome.output
    assert load_run(tmp_path / "lenient").jobs["trace_job"].to_list() == [1, 3]


def test_a_run_that_would_lose_most_of_its_jobs_is_refused(trace: Path, tmp_path: Path) -> None:
    words = [str(trace), "--system", "N1C1", "--out", str(tmp_path / "rest")]
    outcome = CliRunner().invoke(app, words)
    assert isinstance(outcome.exception, UsageError)
    assert "2 of 3 jobs can never run on N1C1" in str(outcome.exception)
    assert not (tmp_path / "rest").exists()
    outcome = CliRunner().invoke(app, [*words, "--oversize", "skip"])  # who says so knows what is left
    assert outcome.exit_code == 0, outcome.output
    assert load_run(tmp_path / "rest").jobs.height == 1


def test_times_are_reported_in_the_unit_a_reader_thinks_in(trace: Path, tmp_path: Path) -> None:
    trace.write_text("; Version: 2.2\n" + "".join(line.replace(" 100 ", " 90000 ") + "\n" for line in LINES))
    outcome = call(trace, tmp_path / "long")
    assert "makespan: 25.0" in outcome.output
    assert " h\n" in outcome.output


def test_the_error_for_a_table_of_another_kind_names_what_reads_it(trace: Path, tmp_path: Path) -> None:
    trace.write_text("JobID|State\n1|COMPLETED\n")
    assert "osub trace convert" in str(call(trace, tmp_path / "run").exception)
