from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.exchange import ELASTISIM, MODEL, osub, write_elastisim_files
from workloads.swf import read_swf

TRACE = """\
; Version: 2.2
1 0 5 600 7 -1 -1 7 900 -1 1 7 1 -1 1 -1 -1 -1
2 2.5 0 120 4 -1 -1 4 -1 -1 1 7 1 -1 1 -1 -1 -1
"""
SIZES = "trace_job,min_nodes,preferred_nodes,max_nodes,parallel\n"


def imported(folder: Path, *words: object) -> str:
    """Import jobs that are refused, and return what is said; nothing may be left of it."""
    path, before = folder / "jobs.json", set(folder.iterdir())
    said = osub("trace", "import", path, "--format", "elastisim", "--out", folder / "o.swf", *words)
    assert said.code == 1, said.out
    assert set(folder.iterdir()) == before
    assert said.err.count("\n") == 1
    return said.err


def test_the_folder_is_what_elastisim_runs(tmp_path: Path) -> None:
    trace, sizes, out = tmp_path / "t.swf", tmp_path / "s.csv", tmp_path / "e"
    trace.write_text(TRACE)
    sizes.write_text(SIZES + "1,1,2,3,0.75\n")
    words = ("--system", "N3C4", "--sizes", sizes)
    said = osub("trace", "export", trace, "--format", "elastisim", "--out", out, *words)
    assert said.code == 0, said.err
    assert sorted(file.name for file in out.iterdir()) == [
        "configuration.json",
        "jobs.json",
        "malleable.json",
        "platform.xml",
        "rigid.json",
    ]
    first, second = json.loads((out / "jobs.json").read_text())["jobs"]
    assert (first["type"], first["num_nodes_min"], first["num_nodes_max"]) == ("malleable", 1, 3)
    assert (first["walltime"], first["submit_time"], first["attributes"]["preferred"]) == (900, 0, 2)
    assert first["arguments"] == {"serial": 600 / (0.25 + 0.75 / 2), "share": 0.75, "steps": 10}
    assert (second["type"], second["num_nodes"], second["submit_time"]) == ("rigid", 1, 2)
    assert second["arguments"] == {"run": 120.0}
    assert "walltime" not in second
    configuration = json.loads((out / "configuration.json").read_text())
    assert configuration["schedule_on_job_finalize"], (
        "who waits starts when somebody ends, not at the next look"
    )
    for key in ("jobs_file", "platform_file"):
        assert (out / configuration[key]).exists()
    for job in (first, second):
        assert (out / job["application_model"]).exists()
        assert all(isinstance(value, int | float | str) for value in job["attributes"].values())


def test_jobs_of_another_user_are_read(tmp_path: Path) -> None:
    path, out, sizes = write_elastisim_files(tmp_path), tmp_path / "o.swf", tmp_path / "sizes.csv"
    said = osub("trace", "import", path, "--format", "elastisim", "--out", out, "--sizes", sizes)
    assert said.code == 0, said.err
    # 2 s of idling, then twice the work over the nodes and 3 x 1.5 s
    jobs = read_swf(out).jobs
    assert [(job.job_number, job.submit_s, job.run_s, job.procs, job.requested_s) for job in jobs] == [
        (1, 10, 2 + 2 * (50 + 4.5), 2, 200),
        (2, 20, 2 + 2 * (80.5 / 4 + 4.5), 4, None),
    ]
    job, least, preferred, most, parallel = sizes.read_text().splitlines()[1].split(",")
    assert (job, least, preferred, most) == ("2", "1", "4", "4")
    # S((1 - p) + p / n) through the times on 1 and 4 nodes: 161 s of 172 s are spread
    assert float(parallel) == pytest.approx(161 / 172)
    assert "Amdahl" not in said.out


def test_a_job_that_does_not_follow_amdahl_is_reported(tmp_path: Path) -> None:
    model: dict[str, Any] = copy.deepcopy(MODEL)
    model["phases"][0]["tasks"][0]["delay"] = "work / num_nodes ^ 0.3"
    path = write_elastisim_files(tmp_path, model=model)
    said = osub("trace", "import", path, "--format", "elastisim", "--out", tmp_path / "o.swf")
    assert "1 job does not follow Amdahl's law: the model's is the nearest" in said.out
    assert "--sizes FILE writes" in said.out


@pytest.mark.parametrize(
    ("which", "keys", "what"),
    [
        (
            0,
            {"type": "evolving", "num_nodes_min": 1, "num_nodes_max": 2},
            "jobs[0]: type: 'evolving' has no counterpart",
        ),
        (0, {"type": None}, "jobs[0]: type: is missing"),
        (0, {"num_nodes": 0}, "jobs[0]: num_nodes: 0 is not from 1"),
        (0, {"num_nodes": 3.5}, "jobs[0]: num_nodes: 3.5 is no whole number"),
        (0, {"submit_time": -5}, "jobs[0]: submit_time: -5 is not at least 0"),
        (0, {"application_model": "../x.json"}, "jobs[0]: application_model: '../x.json' is not below"),
        (0, {"application_model": "/etc/passwd"}, "jobs[0]: application_model: '/etc/passwd' is not below"),
        (0, {"application_model": "none.json"}, "jobs[0]: application_model: there is no file 'none.json'"),
        (0, {"application_model": "a\x00b"}, "jobs[0]: application_model: "),
        (0, {"application_model": None}, "jobs[0]: application_model: is missing"),
        (0, {"arguments": {}}, "jobs[0]: delay: 'work / num_nodes': there is no work; --lenient"),
        (0, {"arguments": {"work": -1}}, "jobs[0]: delay: 'work / num_nodes' is not a number from 0 on"),
        (0, {"arguments": {"work": [1]}}, "jobs[0]: arguments: work: [1] is no number"),
        (0, {"arguments": 5}, "jobs[0]: arguments: is no object"),
        (0, {"walltime": -1}, "jobs[0]: walltime: -1 is not at least 0"),
        (0, {"num_gpus_per_node": 4}, "jobs[0]: num_gpus_per_node: there are no GPUs here"),
        (1, {"num_nodes_min": 5}, "jobs[1]: num_nodes_max: 4 is not from 5 to"),
        (1, {"num_nodes_max": None}, "jobs[1]: num_nodes_max: is missing"),
        (1, {"attributes": {"preferred": 9}}, "jobs[1]: attributes: preferred: 9 is not from 1 to 4"),
        (1, {"attributes": {"job": "x" * 65_536}}, ": attributes: job: is longer than 4,096 characters"),
        (1, {"attributes": {"job": 4, "swf": "{"}}, "job 4: attributes: swf: is no JSON"),
        (
            1,
            {"attributes": {"job": 4, "swf": '{"user":"me"}'}},
            "job 4: attributes: swf: user: 'me' is no number",
        ),
    ],
)
def test_a_bad_value_is_reported_with_job_and_key(
    tmp_path: Path, which: int, keys: dict[str, Any], what: str
) -> None:
    document = copy.deepcopy(ELASTISIM)
    document["jobs"][which] |= keys
    path = write_elastisim_files(tmp_path, document)
    said = imported(tmp_path)
    assert said.startswith(f"osub: {path}: ")
    assert what in said


@pytest.mark.parametrize(
    ("model", "what"),
    [
        ({"phases": []}, "phases: is no list, or empty"),
        ({"phases": [{"tasks": 5}]}, "tasks: is no list"),
        ({"phases": [{"tasks": [5]}]}, "tasks: has an item that is no object"),
        ({"phases": [{"tasks": [{"type": "cpu", "flops": 1}]}]}, "type: what a task 'cpu' takes depends on"),
        (
            {"phases": [{"tasks": [{"type": "idle", "pattern": "vector", "delay": [1]}]}]},
            "pattern: 'vector' is not",
        ),
        (
            {"phases": [{"tasks": [{"type": "idle", "delay": "9^9^9^9"}]}]},
            "delay: '9^9^9^9' has no finite value",
        ),
        ({"phases": [{"tasks": [{"type": "idle", "delay": "__import__('os')"}]}]}, "delay: "),
        ({"phases": [{"tasks": [{"type": "idle", "delay": 0}]}]}, "application_model: 0 s is no run time"),
        ([], "application_model: 'model.json' in "),
    ],
)
def test_a_bad_model_is_reported_with_the_job(tmp_path: Path, model: object, what: str) -> None:
    path = write_elastisim_files(tmp_path, model=model)
    said = imported(tmp_path)
    assert said.startswith(f"osub: {path}: jobs[0]: ")
    assert what in said


def test_two_jobs_of_one_name_are_reported(tmp_path: Path) -> None:
    document = copy.deepcopy(ELASTISIM)
    for job in document["jobs"]:
        job["attributes"] = {"job": 7}
    write_elastisim_files(tmp_path, document)
    assert "jobs.json: job 7: attributes: job: is there twice" in imported(tmp_path)


def test_models_may_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    path = write_elastisim_files(tmp_path)
    (tmp_path / "model.json").rename(tmp_path / "models/model.json")
    assert "there is no file 'model.json'" in imported(tmp_path)
    words = ("--format", "elastisim", "--out", tmp_path / "o.swf", "--models", tmp_path / "models")
    assert osub("trace", "import", path, *words).code == 0


def test_jobs_that_cannot_be_reported_are_left_out_if_that_is_wanted(tmp_path: Path) -> None:
    document = copy.deepcopy(ELASTISIM)
    document["jobs"][0]["type"] = "Evolving"
    document["jobs"][0] |= {"num_nodes_min": 1, "num_nodes_max": 2}
    path = write_elastisim_files(tmp_path, document)
    said = osub("trace", "import", path, "--format", "elastisim", "--out", tmp_path / "o.swf", "--lenient")
    assert said.code == 0, said.err
    assert "jobs whose run time or size is unknown 1" in said.err
    assert read_swf(tmp_path / "o.swf").header.max_jobs == 1


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("1,2,2,1,0.5\n", ":2: min_nodes, preferred_nodes, max_nodes: job 1: 2, 2, 1 do not ascend"),
        ("1,1,1,1,1.5\n", ":2: parallel: '1.5' is no number from 0 to 1"),
        ("1,1,1,1,nan\n", ":2: parallel: 'nan' is no number from 0 to 1"),
        ("1,1,1,-1,1\n", ":2: max_nodes: '-1' is no whole number"),
        ("1,1,1\n", ":2: 3 cells"),
        ("1,1,2,3,1\n1,1,2,3,1\n", ":3: trace_job: job 1 is there twice"),
        ("1,3,3,3,1\n", ": job 1: min_nodes, max_nodes: it asks for 2 nodes, not 3 to 3"),
        ("1,1,3,9,1\n", ": job 1: max_nodes: 9 are more than N3C4 has"),
        ('1,"1,2,3,1\n', ":2: no CSV: "),
    ],
)
def test_bad_sizes_are_reported(tmp_path: Path, line: str, what: str) -> None:
    trace, sizes, out = tmp_path / "t.swf", tmp_path / "s.csv", tmp_path / "e"
    trace.write_text(TRACE)
    sizes.write_text(SIZES + line)
    words = ("--out", out, "--system", "N3C4", "--sizes", sizes)
    said = osub("trace", "export", trace, "--format", "elastisim", *words)
    assert said.code == 1
    assert said.err.startswith(f"osub: {sizes}")
    assert what in said.err
    assert said.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == [sizes, trace]
