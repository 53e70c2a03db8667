"""``import osub``: the surface is stable, quick to import, and its errors speak of parameters."""

from __future__ import annotations

import gc
import gzip
import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import osub
from foundation.errors import InputError, OutputError, UsageError
from osub.api import Comparison, Run, Trace
from workloads.swf import write_swf
from workloads.trace.models.generated_trace import generate_trace

SURFACE = [
    "Comparison", "OsubError", "Run", "SimulationSpec", "Trace", "compare", "load", "load_trace",
    "report", "simulate",
]  # fmt: skip


@pytest.fixture(scope="module")
def swf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "made.swf.gz"
    write_swf(path, generate_trace(60, 4, 4, seed=3, interactive_share=0.3))
    return path


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSUB_JIT", "0")


def test_the_public_surface() -> None:
    assert sorted(osub.__all__) == SURFACE
    assert [name for name in dir(osub) if not name.startswith("_")] == SURFACE
    assert all(getattr(osub, name).__doc__ for name in SURFACE)
    with pytest.raises(AttributeError, match="it offers"):
        osub.nothing  # noqa: B018


def test_the_parameters_of_the_public_surface() -> None:
    message = {
        name: " ".join(inspect.signature(getattr(osub, name)).parameters)
        for name in SURFACE
        if name.islower()
    }
    assert message == {
        "compare": "reference others",
        "load": "path",
        "load_trace": "path lenient",
        "report": "runs path",
        "simulate": "trace system out policy settings malleable_share preemption multiplicity queues "
        "interactive_share interactive_nodes multiplicity_interactive interactive_queue overhead "
        "sharing pairs apps node_noise quantum_ms hold memory_gib memory memory_coverage memory_growth "
        "memory_mib placement pairing_threshold speedup oversize zero_length limits dependencies instants "
        "latency fit order_of failures mtbf repair "
        "failure_shape after_failure checkpoint_interval checkpoint_cost seed label lenient check "
        "vary_overhead",
    }
    offered = {
        kind: {name for name in dir(kind) if not name.startswith("_")} for kind in (Run, Comparison, Trace)
    }
    assert offered[Comparison] == {"gains", "jobs", "labels", "metrics", "report", "verdict"}
    assert offered[Trace] == {"jobs"}
    tables = {"allocations", "info", "jobs", "record", "slices", "with_measures"}
    assert offered[Run] == tables | {"label", "metrics", "plot", "report", "save"}


def test_types_are_announced() -> None:
    assert (Path(osub.__file__).parent / "py.typed").exists()


def test_the_import_brings_no_heavy_library() -> None:
    heavy = ("numba", "polars", "plotly", "numpy", "typer", "zmq")
    program = f"import osub, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_from_a_trace_to_a_comparison(swf: Path, tmp_path: Path) -> None:
    trace = osub.load_trace(swf)
    assert len(trace) == trace.jobs.height == 60
    assert "made" in repr(trace)
    alone = osub.simulate(trace, "N4C4", label="alone")
    shared = osub.simulate(str(swf), "N4C4", multiplicity=2, out=tmp_path / "shared", label="shared")
    assert alone.jobs.height == shared.jobs.height
    assert alone.metrics().kinds["all"].wait_s.mean == pytest.approx(alone.outcome["wait_mean_s"])
    comparison = osub.compare(alone, tmp_path / "shared")
    assert comparison.labels == ("alone", "shared")
    waits = comparison.metrics().select("label", wait="kinds.all.wait_s.mean").rows()
    assert waits == [(run.label, run.metrics().kinds["all"].wait_s.mean) for run in (alone, shared)]
    assert str(comparison).startswith("Two jobs a core, assuming C_o = 1.2: ")
    assert "\nshared against alone: " in str(comparison)
    assert comparison.gains().height == comparison.jobs().height
    assert "<p>" in comparison._repr_html_()
    assert "alone" in alone._repr_html_()
    page = osub.report([alone, shared], tmp_path / "page.html")
    assert '<section id="verdict">' in page.read_text(encoding="utf-8")
    assert osub.load(str(tmp_path / "shared")).jobs.equals(shared.jobs)


@pytest.mark.slow
def test_a_run_on_shared_cores_says_what_other_overheads_would_give(swf: Path) -> None:
    at = osub.simulate(swf, "N4C4", multiplicity=2).info.other_overheads
    assert list(at) == ["1.0", "1.4"]
    assert at["1.0"]["degradation"] < at["1.4"]["degradation"]
    again = osub.simulate(swf, "N4C4", multiplicity=2, overhead=1.4)
    measured = again.with_measures()
    for name in ("wait_s", "degradation"):
        assert measured[name].mean() == pytest.approx(at["1.4"][name])
    assert list(again.info.other_overheads) == ["1.0"]
    assert osub.simulate(swf, "N4C4").info.other_overheads == {}
    assert osub.simulate(swf, "N4C4", multiplicity=2, vary_overhead=False).info.other_overheads == {}


def test_a_run_in_slices_says_nothing_of_other_overheads(tmp_path: Path) -> None:
    lines = (f"{job} 0 -1 30 2 -1 -1 2 60 -1 1 1 1 -1 1 -1 -1 -1\n" for job in (1, 2))
    (brief := tmp_path / "brief.swf").write_text("".join(lines), encoding="ascii")
    assert osub.simulate(brief, "N1C2", multiplicity=2).info.other_overheads
    assert osub.simulate(brief, "N1C2", multiplicity=2, quantum_ms=500).info.other_overheads == {}


@pytest.mark.slow
def test_charts_are_figures(swf: Path) -> None:
    run = osub.simulate(swf, "N4C4", multiplicity=2)
    for draw in (run.plot.gantt, run.plot.waits, run.plot.slowdowns, run.plot.completion):
        assert draw().data


def test_thresholds_are_numbers_of_seconds(swf: Path) -> None:
    run = osub.simulate(swf, "N4C4")
    with pytest.raises(UsageError, match="0 s or more, not -1"):
        run.metrics(wait_threshold_s=-1)
    wrong: Any = "a"
    with pytest.raises(UsageError, match="beta_s takes a number, 0 s or more, not 'a'"):
        run.metrics(beta_s=wrong)


def test_a_run_that_is_not_saved_goes_with_its_last_name(swf: Path, tmp_path: Path) -> None:
    run = osub.simulate(swf, "N4C4")
    path, kept = run.path, run.save(tmp_path / "kept")
    assert path.is_dir()
    with pytest.raises(OutputError, match="exists already"):
        run.save(tmp_path / "kept")
    del run
    gc.collect()
    assert not path.exists()
    assert osub.load(kept.path).jobs.height


def test_the_same_jobs_from_a_run(swf: Path) -> None:
    run = osub.simulate(swf, "N4C4")
    again = osub.simulate(run, "N4C4")
    waits = [one.jobs["start_s"] - one.jobs["submit_s"] for one in (run, again)]
    assert waits[0].equals(waits[1])


@pytest.mark.slow
def test_options_of_a_policy_as_a_mapping_or_as_texts(swf: Path) -> None:
    one = osub.simulate(swf, "N4C4", policy="slurm", settings={"interval": 5})
    two = osub.simulate(swf, "N4C4", policy="slurm", settings=["interval=5"])
    assert one.jobs["start_s"].equals(two.jobs["start_s"])


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"placement": "mine"}, UsageError, "unknown placement"),
        ({"queues": "mq"}, UsageError, "queues mq needs either interactive_share"),
        ({"quantum_ms": 50.0, "node_noise": 0.1}, UsageError, "sharing, node_noise and quantum_ms do not go"),
        ({"settings": "a=1"}, UsageError, "settings takes a mapping"),
        ({"latency": 3}, UsageError, "latency takes a path, not int"),
        ({"multiplicity": "2"}, UsageError, "multiplicity takes a whole number, not '2'"),
        ({"multiplicity": 2.5}, UsageError, "multiplicity takes a whole number, not 2.5"),
        ({"multiplicity": True}, UsageError, "multiplicity takes a whole number, not True"),
        ({"policy": 3}, UsageError, "policy takes a text, not 3"),
        ({"speedup": "fast"}, UsageError, "speedup takes a number, not 'fast'"),
        ({"seed": "x"}, UsageError, "seed takes a whole number, not 'x'"),
        ({"memory_gib": "a"}, UsageError, "memory_gib takes a number or None, not 'a'"),
        ({"check": 1}, UsageError, "check takes True or False, not 1"),
        ({"failures": "nowhere.csv"}, InputError, "nowhere.csv"),
    ],
)
def test_errors_speak_of_parameters(
    swf: Path, words: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        osub.simulate(swf, "N4C4", **words)
    assert "--" not in str(raised.value)


def test_wrong_paths_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        osub.load(tmp_path)
    with pytest.raises(InputError):
        osub.load_trace(tmp_path / "none.swf")
    for nothing in ("", "a\0b", 3):
        with pytest.raises(UsageError, match="path takes a path"):
            osub.load(nothing)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="runs is empty"):
        osub.report([], tmp_path / "page.html")


def test_a_specification_in_place_of_keywords(swf: Path, tmp_path: Path) -> None:
    spec = osub.SimulationSpec(trace=swf, system="N4C4", multiplicity=2, label="spec")
    run = osub.simulate(spec, out=tmp_path / "run", label="own")
    again = osub.simulate(swf, "N4C4", multiplicity=2)
    assert (run.label, run.info.multiplicity) == ("own", 2)
    assert run.jobs.equals(again.jobs)
    with pytest.raises(UsageError) as raised:
        osub.simulate(osub.SimulationSpec(system="N4C4"))
    assert raised.value.fields == ("trace",)
    with pytest.raises(TypeError, match="tracee"):
        osub.simulate(swf, "N4C4", tracee=1)
    with pytest.raises(UsageError, match="seed takes a number of at least 0"):
        osub.simulate(swf, "N4C4", seed=-1)


def test_an_error_names_its_fields_as_the_front_end_does() -> None:
    error = UsageError.naming("{settings} and {node_noise}: not {given!r}", given="{seed}")
    assert str(error) == "settings and node_noise: not '{seed}'"
    assert error.fields == ("settings", "node_noise")
    error.name_fields({"settings": "--set", "node_noise": "--node-noise"}.__getitem__)
    assert str(error) == "--set and --node-noise: not '{seed}'"
    copy = pickle.loads(pickle.dumps(UsageError.naming("{seed} is {given}", given=-1)))
    assert (str(copy), copy.fields) == ("seed is -1", ("seed",))


def test_the_page_on_python_runs_unchanged(
    swf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[3] / "docs" / "python.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.swf").write_bytes(gzip.decompress(swf.read_bytes()))
    (tmp_path / "runs").mkdir()
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    assert (tmp_path / "shared.html").exists()
