"""``osub simulate``: what it writes and prints, and how it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.records import load_run
from tests.fixtures.cli import Cli
from tests.fixtures.golden import SHARED

LINES = [
    "1 5 -1 100 4 -1 -1 4 100 -1 1 7 1 -1 1 -1 -1 -1",
    "2 6 -1 60 4 -1 -1 4 90 -1 1 8 1 -1 1 -1 -1 -1",
    "3 7 -1 50 1 -1 -1 1 50 -1 1 -1 1 -1 0 -1 -1 -1 -1 -1 -1 5 5 2 5 20 15",
    "4 8 -1 0 1 -1 -1 1 50 -1 1 7 1 -1 1 -1 -1 -1",
]

USAGE, INPUT = 2, 1
OVERUSE = SHARED / "field/12-swf-prelude-and-overuse/overuse.swf"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (path := tmp_path / "small.swf").write_text("; Version: 2.2\n" + "\n".join(LINES) + "\n")
    return path


def words_of(trace: Path, out: Path, *words: str) -> list[str]:
    return ["simulate", str(trace), "--system", "N2C2", "--out", str(out), *words]


@pytest.mark.skipif(not OVERUSE.is_file(), reason="needs field inputs in OSUB_SHARED/field")
def test_no_job_of_a_log_with_overuse_vanishes(tmp_path: Path, cli: Cli) -> None:
    out = cli(*words_of(OVERUSE, tmp_path / "run", "--system", "N4C2")).out
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
    assert "3 jobs on N4C2 (not as in the trace: 1 without a processor, 1 without a run time)" in out


def test_it_writes_a_run_that_reads_back(trace: Path, tmp_path: Path, cli: Cli) -> None:
    cli(*words_of(trace, tmp_path / "run", "--multiplicity", "2", "--overhead", "1.0"))
    run = load_run(tmp_path / "run")
    assert run.complete
    assert (run.info.kind, run.info.system, run.info.policy) == ("simulated", "N2C2", "easy")
    assert run.info.multiplicity == 2
    assert run.info.options["left out: without a run time"] == 1
    assert run.info.engine_cpu_s is not None
    rows = run.jobs.to_dicts()
    assert [row["trace_job"] for row in rows] == [1, 2, 3]
    assert [row["kind"] for row in rows] == ["batch", "batch", "interactive"]
    assert [row["user"] for row in rows] == ["7", "8", None]
    assert [(row["due_s"], row["start_s"], row["end_s"]) for row in rows[:2]] == [(0, 0, 179), (1, 1, 121)]
    assert rows[2]["busy_s"] == 25
    assert rows[0]["placement"] == [{"node": "n1", "cores": "0-1"}, {"node": "n2", "cores": "0-1"}]


def test_json_has_the_main_figures(trace: Path, tmp_path: Path, cli: Cli) -> None:
    figures = cli.json(*words_of(trace, tmp_path / "run", "--json"))
    assert (figures["jobs"], figures["left_out"]) == (3, {"without a run time": 1})
    assert figures["wait_max_s"] > 0


def test_queues_apart_keep_interactive_jobs_on_their_nodes(trace: Path, tmp_path: Path, cli: Cli) -> None:
    words = ["--queues", "mq", "--interactive-nodes", "1", "--oversize", "clip"]
    cli(*words_of(trace, tmp_path / "run", *words))
    run = load_run(tmp_path / "run")
    assert (run.info.queues, run.info.interactive_nodes, run.info.multiplicity_interactive) == ("mq", 1, 4)
    nodes = {row["queue"]: [place["node"] for place in row["placement"]] for row in run.jobs.to_dicts()}
    assert nodes == {"interactive": ["n1"], "batch": ["n2"]}


def test_a_file_gives_what_the_command_line_does_not(trace: Path, tmp_path: Path, cli: Cli) -> None:
    (spec := tmp_path / "spec.toml").write_text(
        'trace = "small.swf"\nsystem = "N2C2"\nmultiplicity = 2\npolicy = "slurm"\nvary_overhead = false\n'
        "memory_gib = 4\nsettings = {interval = 5}\n"
    )
    cli("simulate", "--spec", spec, "--out", tmp_path / "run", "--memory-gib", "8")
    info = load_run(tmp_path / "run").info
    assert (info.multiplicity, info.policy, info.options["memory_gib"]) == (2, "slurm", 8.0)
    assert (info.options["policy_options"], info.other_overheads) == ("interval=5", {})


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ('sytem = "N2C2"', USAGE, "did you mean system"),
        ("seed = true", USAGE, "seed takes a whole number, not True"),
        ("pairs = 3", USAGE, "pairs takes a text, not 3"),
        ('settings = "interval=5"', USAGE, "settings takes a mapping or a list, not 'interval=5'"),
        ("slowdowns = 1", USAGE, "nothing is called slowdowns"),
        ("seed = ", INPUT, "is no TOML"),
    ],
)
def test_a_file_with_what_a_simulation_does_not_take_is_refused(
    trace: Path, tmp_path: Path, cli: Cli, text: str, code: int, message: str
) -> None:
    (spec := tmp_path / "spec.toml").write_text(text)
    assert message in cli.said(*words_of(trace, tmp_path / "run", "--spec", str(spec)), code=code)


def test_the_trace_of_a_run_keeps_the_runs_clock(trace: Path, tmp_path: Path, cli: Cli) -> None:
    cli(*words_of(trace, tmp_path / "first"))
    for again in (tmp_path / "first", tmp_path / "first" / "trace.swf.gz"):
        out = tmp_path / f"again-{again.name}"
        cli(*words_of(again, out))
        assert load_run(out).jobs["due_s"].to_list() == [5, 6, 7]


def test_a_run_that_is_there_is_not_overwritten(trace: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious").touch()
    cli.said(*words_of(trace, tmp_path / "run"), code=1)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["precious"]


def test_malformed_lines_are_passed_over_only_when_asked(trace: Path, tmp_path: Path, cli: Cli) -> None:
    trace.write_text(trace.read_text().replace("2 6 ", "2 -1 "))
    assert "submit time" in cli.said(*words_of(trace, tmp_path / "strict"), code=INPUT)
    assert "1 malformed lines" in "".join(cli(*words_of(trace, tmp_path / "lenient", "--lenient")))
    assert load_run(tmp_path / "lenient").jobs["trace_job"].to_list() == [1, 3]


def test_a_run_that_would_lose_most_of_its_jobs_is_refused(trace: Path, tmp_path: Path, cli: Cli) -> None:
    words = words_of(trace, tmp_path / "rest", "--system", "N1C1")
    assert "2 of 3 jobs can never run on N1C1" in cli.said(*words, code=USAGE)
    assert not (tmp_path / "rest").exists()
    cli(*words, "--oversize", "skip")  # who says so knows what is left
    assert load_run(tmp_path / "rest").jobs.height == 1


def test_times_are_reported_in_the_unit_a_reader_thinks_in(trace: Path, tmp_path: Path, cli: Cli) -> None:
    trace.write_text("; Version: 2.2\n" + "".join(line.replace(" 100 ", " 90000 ") + "\n" for line in LINES))
    out = cli(*words_of(trace, tmp_path / "long")).out
    assert "makespan: 25.0" in out
    assert " h\n" in out


def line(number: int, submit: int, run_s: int, procs: int, queue: int = 1, more: str = "") -> str:
    memory = 9_000_000 if number == 9 else -1
    request = f"{procs} {run_s} {memory}"
    return f"{number} {submit} -1 {run_s} {procs} -1 -1 {request} 1 1 1 -1 {queue} -1 -1 -1 {more}\n"


FINE = line(1, 0, 100, 2)
TRACES = {
    "fine": FINE + line(2, 5, 50, 4),
    "too-wide": FINE + line(2, 5, 50, 400),
    "too-much-memory": FINE + line(9, 5, 50, 1),
    "twice": FINE + line(1, 5, 50, 1),
    "no-length": FINE + line(2, 5, 0, 1),
    "only-no-length": line(1, 0, 0, 1),
    "too-long-periods": FINE + line(2, 5, 50, 1, 0, "-1 -1 -1 5 5 2 5 20 150"),
    "too-few-periods": FINE + line(2, 5, 50, 1, 0, "-1 -1 -1 5 5 2 5 20"),
    "negative-period": FINE + line(2, 5, 50, 1, 0, "-1 -1 -1 5 -5 2 5 20 25"),
    "no-numbers": "1 2 three\n",
    "empty": "",
    "table": "JobID|State\n1|COMPLETED\n",
}


@pytest.fixture
def odd_trace(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / f"{request.param}.swf"
    if request.param in TRACES:
        path.write_text(TRACES[request.param])
    return path


@pytest.mark.parametrize(
    ("odd_trace", "options", "code", "message"),
    [
        ("fine", "--policy sjf", USAGE, "or FILE.py:NAME"),
        ("fine", "--policy mine.py", USAGE, "write mine.py:NAME"),
        ("fine", "--placement mine.py", USAGE, "write mine.py:NAME"),
        ("fine", "--sharing mine.py", USAGE, "write mine.py:NAME"),
        ("fine", "--system 2x2", USAGE, "such as N150C12"),
        ("fine", "--system 12x12", USAGE, "such as N150C12"),
        ("fine", "--system N0C4", USAGE, "such as N150C12"),
        ("fine", "--multiplicity 9", USAGE, "choose 1 to 8"),
        ("fine", "--multiplicity 0", USAGE, "choose 1 to 8"),
        ("fine", "--queues mq --interactive-nodes 1 --multiplicity-interactive 12", USAGE, "choose 1 to 8"),
        ("fine", "--queues mq --interactive-nodes 2", USAGE, "so that either queue has a node"),
        ("fine", "--queues mq --interactive-share 150%", USAGE, "write it as 5% or 0.05"),
        ("fine", "--interactive-share 5%", USAGE, "go with --queues mq"),
        ("fine", "--placement best", USAGE, "choose lln, thesis, lln-paired, lln-apart or FILE.py:NAME"),
        ("fine", "--overhead 0.5", USAGE, "C_o is at least 1"),
        ("fine", "--speedup 0", USAGE, "--speedup divides"),
        ("fine", "--memory-gib 0", USAGE, "--memory-gib must be positive"),
        ("fine", "--node-noise -1", USAGE, "choose a deviation"),
        ("fine", "--node-noise 0.1 --seed -1", USAGE, "'--seed'"),
        ("fine", "--slices 1", USAGE, "20 ms to 5 s are possible"),
        ("too-wide", "--oversize fail", INPUT, "choose --oversize skip or clip"),
        ("fine", "--system N1C1 --oversize fail", INPUT, "choose --oversize skip or clip"),
        ("too-wide", "--oversize maybe", USAGE, "--oversize takes fail, skip, clip"),
        ("too-much-memory", "--memory-gib 4 --oversize fail", INPUT, "with 8789 MiB each and can never run"),
        ("twice", "", INPUT, "has job 1 twice"),
        ("no-length", "--zero-length fail", INPUT, "choose --zero-length skip or keep"),
        ("only-no-length", "", INPUT, "has no job to simulate (1 without a run time)"),
        ("too-long-periods", "", INPUT, "interactive columns last 185 s, its run time is 50 s"),
        ("too-few-periods", "", INPUT, "announces 2 busy periods, so 3 columns must follow"),
        ("negative-period", "", INPUT, "cannot have a period of -5 seconds"),
        ("no-numbers", "", INPUT, "no-numbers.swf:1: field 3 (wait time): 'three' is not a number"),
        ("empty", "", INPUT, "give an SWF file with at least one job"),
        ("not-there", "", INPUT, "give an SWF file"),
        ("table", "", INPUT, "osub trace convert"),
    ],
    indirect=["odd_trace"],
)
def test_a_simulation_that_cannot_be_is_refused_in_one_line(
    odd_trace: Path, tmp_path: Path, cli: Cli, options: str, code: int, message: str
) -> None:
    assert message in cli.said(*words_of(odd_trace, tmp_path / "run", *options.split()), code=code)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["skip", "clip"])
@pytest.mark.parametrize("odd_trace", ["too-wide", "too-much-memory"], indirect=True)
def test_a_job_that_can_never_fit_is_left_out_or_made_smaller_and_reported(
    odd_trace: Path, tmp_path: Path, choice: str, cli: Cli
) -> None:
    words = words_of(odd_trace, tmp_path / "run", "--memory-gib", "4", "--oversize", choice)
    jobs, reported = ("1 job", "skipped") if choice == "skip" else ("2 jobs", "clipped")
    assert f"{jobs} on N2C2 (not as in the trace: 1 too large, {reported})" in cli(*words).out


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["skip", "keep"])
@pytest.mark.parametrize("odd_trace", ["no-length"], indirect=True)
def test_jobs_of_no_length_are_left_out_or_end_when_they_start(
    odd_trace: Path, tmp_path: Path, choice: str, cli: Cli
) -> None:
    cli(*words_of(odd_trace, tmp_path / "run", "--zero-length", choice))


class TestCompare:
    @pytest.fixture
    def runs(self, tmp_path: Path, cli: Cli) -> Path:
        """Return a folder with a RUN ``one``, a RUN of other jobs, and damaged ones."""
        for name, text in (("one", FINE), ("other", line(7, 0, 10, 1))):
            (path := tmp_path / f"{name}.swf").write_text(text)
            cli(*words_of(path, tmp_path / name))
        for name, file, text in (("cut", "run.json", "{"), ("spoilt", "jobs.parquet", "x")):
            cli(*words_of(tmp_path / "one", tmp_path / name))
            (tmp_path / name / file).write_text(text)
        (tmp_path / "folder").mkdir()
        return tmp_path

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("names", "code", "message"),
        [
            (["one"], USAGE, "takes at least two RUNs"),
            ([], USAGE, "Missing argument"),
            (["one", "absent"], INPUT, "is not a RUN folder"),
            (["one", "folder"], INPUT, "it has no run.json"),
            (["one", "."], INPUT, "RUNs in it: "),
            (["one", "one.swf"], INPUT, "is not a RUN folder"),
            (["one", "cut"], INPUT, "is not a valid run description"),
            (["one", "spoilt"], INPUT, "cannot read"),
            (["one", "other"], USAGE, "no job in common"),
        ],
    )
    def test_runs_that_cannot_be_compared_are_reported_in_one_line(
        self, runs: Path, names: list[str], code: int, message: str, cli: Cli
    ) -> None:
        assert message in cli.said("compare", *(runs / name for name in names), code=code)
