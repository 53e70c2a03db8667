"""What cannot be simulated or compared: one line that says what to do, exit code 2 for usage, 1 for input."""

from __future__ import annotations

from pathlib import Path

import pytest

from osub.cli.main import run


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
}
USAGE, INPUT = 2, 1


@pytest.fixture
def trace(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / f"{request.param}.swf"
    if request.param in TRACES:
        path.write_text(TRACES[request.param])
    return path


def refused(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must fail, and return its only line."""
    assert run(words) == code
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith("osub: ")
    return message


@pytest.mark.parametrize(
    ("trace", "options", "code", "message"),
    [
        ("fine", "--policy sjf", USAGE, "or FILE.py:NAME"),
        ("fine", "--policy mine.py", USAGE, "write mine.py:NAME"),
        ("fine", "--placement mine.py", USAGE, "write mine.py:NAME"),
        ("fine", "--sharing mine.py", USAGE, "write mine.py:NAME"),
        ("fine", "--system 2x2", USAGE, "such as N150C12"),
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
    ],
    indirect=["trace"],
)
def test_a_simulation_that_cannot_be_is_refused_in_one_line(
    trace: Path, tmp_path: Path, options: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", str(trace), "--system", "N2C2", *options.split(), "--out", str(tmp_path / "run")]
    assert message in refused(words, code, capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["skip", "clip"])
@pytest.mark.parametrize("trace", ["too-wide", "too-much-memory"], indirect=True)
def test_a_job_that_can_never_fit_is_left_out_or_made_smaller_and_reported(
    trace: Path, tmp_path: Path, choice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--memory-gib", "4", "--oversize", choice, "--out", str(tmp_path / "run")]
    assert run(["simulate", str(trace), "--system", "N2C2", *options]) == 0
    reported = "skipped" if choice == "skip" else "clipped"
    assert (
        f"{'1 job' if choice == 'skip' else '2 jobs'} on N2C2 (not as in the trace: 1 too large, {reported})"
        in (capsys.readouterr().out)
    )


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["skip", "keep"])
@pytest.mark.parametrize("trace", ["no-length"], indirect=True)
def test_jobs_of_no_length_are_left_out_or_end_when_they_start(
    trace: Path, tmp_path: Path, choice: str
) -> None:
    options = ["--zero-length", choice, "--out", str(tmp_path / "run")]
    assert run(["simulate", str(trace), "--system", "N2C2", *options]) == 0


class TestCompare:
    @pytest.fixture
    def runs(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
        """Return a folder with a RUN ``one``, a RUN of other jobs, and damaged ones."""
        for name, text in (("one", FINE), ("other", line(7, 0, 10, 1))):
            (path := tmp_path / f"{name}.swf").write_text(text)
            assert run(["simulate", str(path), "--system", "N2C2", "--out", str(tmp_path / name)]) == 0
        for name, file, text in (("cut", "run.json", "{"), ("spoilt", "jobs.parquet", "x")):
            assert (
                run(["simulate", str(tmp_path / "one"), "--system", "N2C2", "--out", str(tmp_path / name)])
                == 0
            )
            (tmp_path / name / file).write_text(text)
        (tmp_path / "folder").mkdir()
        capsys.readouterr()
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
        self, runs: Path, names: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert message in refused(["compare", *(str(runs / name) for name in names)], code, capsys)
