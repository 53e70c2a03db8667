"""Formats of other simulators: Batsim, ElastiSim, platforms, jobs.csv."""

from __future__ import annotations

import copy
import csv
import json
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import InputError
from foundation.records import JOBS, Placement, load_run, write_run
from foundation.records.table_files import frame_of
from tests.fixtures.exchange import BATSIM, CSV, ELASTISIM, MODEL, osub, write_elastisim_files
from tests.fixtures.records import make_ended, make_info, make_job, make_trace
from workloads.exchange.fields import Machines, Unit
from workloads.exchange.jobs_csv.jobs_csv_write import COLUMNS
from workloads.exchange.simgrid_platform import read_platform
from workloads.swf import read_swf

TRACE = """\
; Version: 2.2
; MaxProcs: 8
1 0 5 20 3 -1 -1 3 30 -1 1 7 1 -1 1 -1 -1 -1
2 2 0 2.5 8 -1 -1 8 -1 -1 1 7 1 -1 0 -1 -1 -1
3 9 0 0 1 -1 -1 1 -1 -1 0 7 1 -1 1 -1 -1 -1
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (path := tmp_path / "t.swf").write_text(TRACE)
    return path


def imported(folder: Path, document: object, *words: object) -> str:
    """Import a workload that is refused, and return what is said; nothing may be left of it."""
    path = folder / "w.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    before = set(folder.iterdir())
    said = osub("trace", "import", path, "--format", "batsim", "--out", folder / "o.swf", *words)
    assert said.code == 1, said.out
    assert set(folder.iterdir()) == before
    assert said.err.startswith(f"osub: {path}: "), said.err
    assert said.err.count("\n") == 1
    return said.err.removeprefix(f"osub: {path}: ").rstrip("\n")


def changed(**keys: object) -> dict[str, Any]:
    """Return the example with its first job changed."""
    document = copy.deepcopy(BATSIM)
    document["jobs"][0] |= keys
    return document


def test_a_workload_is_what_batsim_reads(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "w.json"
    said = osub("trace", "export", trace, "--format", "batsim", "--out", out)
    assert (said.code, said.out) == (0, f"{out}: 2 jobs\n")
    assert "jobs without a run time 1" in said.err
    document = json.loads(out.read_text())
    assert document["nb_res"] == 8
    assert [{key: job[key] for key in job if key != "extra_data"} for job in document["jobs"]] == [
        {"id": "1", "subtime": 0, "res": 3, "profile": "delay20", "walltime": 30},
        {"id": "2", "subtime": 2, "res": 8, "profile": "delay2.5"},
    ]
    assert document["profiles"] == {
        "delay20": {"type": "delay", "delay": 20},
        "delay2.5": {"type": "delay", "delay": 2.5},
    }
    assert json.loads(document["jobs"][0]["extra_data"])["swf"]["user"] == 7


def test_the_same_trace_gives_the_same_bytes(trace: Path, tmp_path: Path) -> None:
    made = []
    for name in ("a.json.gz", "b.json.gz"):
        osub("trace", "export", trace, "--format", "batsim", "--out", tmp_path / name)
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]


def test_resources_may_be_nodes(trace: Path, tmp_path: Path) -> None:
    out, platform = tmp_path / "w.json", tmp_path / "p.xml"
    words = ("--system", "N2C4", "--unit", "node", "--platform", platform)
    assert osub("trace", "export", trace, "--format", "batsim", "--out", out, *words).code == 0
    document = json.loads(out.read_text())
    assert (document["nb_res"], [job["res"] for job in document["jobs"]]) == (2, [1, 2])
    assert 'radical="0-1"' in platform.read_text()
    assert 'core="4"' in platform.read_text()
    out.write_text(json.dumps({key: document[key] for key in document if key != "osub"}))
    back = tmp_path / "b.swf"
    said = osub("trace", "import", out, "--format", "batsim", "--out", back, "--platform", platform)
    assert said.code == 0, said.err
    assert [job.requested_procs for job in read_swf(back).jobs] == [4, 8]
    assert read_swf(back).header.max_procs == 8


def test_a_workload_of_another_user_is_read(tmp_path: Path) -> None:
    path, out = tmp_path / "w.json", tmp_path / "o.swf"
    path.write_text(json.dumps(BATSIM, indent=1))
    said = osub("trace", "import", path, "--format", "batsim", "--out", out)
    assert said.code == 0, said.err
    assert "1 job without a number for a name" in said.out
    trace = read_swf(out)
    reported = [(job.job_number, job.submit_s, job.run_s, job.procs, job.requested_s) for job in trace.jobs]
    assert reported == [(1, 0, 20.25, 3, 30.5), (4, 2.25, 60.5, 8, None), (3, 7, 5, 1, None)]
    assert (trace.header.fields["MaxJobs"], trace.header.max_procs) == (("3",), 8)


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("res", 0, "job '1': res: 0 is not from 1 to"),
        ("res", -3, "job '1': res: -3 is not at least 0"),
        ("res", 2.5, "job '1': res: 2.5 is no whole number"),
        ("res", 9, "job '1': res: 9 are more than the 8 of nb_res; --lenient"),
        ("res", True, "job '1': res: True is no number"),
        ("res", 10**400, "job '1': res: 1000"),
        ("subtime", -1, "job '1': subtime: -1 is not at least 0"),
        ("subtime", "0", "job '1': subtime: '0' is no number"),
        ("subtime", 1e300, "job '1': subtime: 1e+300 is too large"),
        ("subtime", None, "job '1': subtime: is missing"),
        ("walltime", 0, "job '1': walltime: 0 is not above 0"),
        ("profile", "none", "job '1': profile: there is no profile 'none'; --lenient"),
        ("profile", "unused", "job '1': profile: 'unused' is of type parallel"),
        ("profile", 5, "job '1': profile: 5 is no text"),
        ("id", None, "jobs[0]: id: is missing"),
        ("id", 1.5, "jobs[0]: id: 1.5 is no text"),
        ("id", 3, "job '3': id: is there twice"),
        ("id", "x" * 65_536, "jobs[0]: id: is longer than 4,096 characters"),
        ("extra_data", '{"swf": 5}', "job '1': extra_data: swf: is no object"),
        ("extra_data", '{"swf":{"user":-1}}', "job '1': extra_data: user: -1 is not at least 0"),
        ("extra_data", '{"swf":{"colour":1}}', "job '1': extra_data: colour: is no field of SWF"),
        ("extra_data", '{"swf":{', "job '1': extra_data: is no JSON"),
    ],
)
def test_a_bad_value_is_reported_with_job_and_key(tmp_path: Path, key: str, value: object, what: str) -> None:
    assert imported(tmp_path, changed(**{key: value})).startswith(what)


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ({}, "jobs: is missing"),
        ({"jobs": [], "profiles": {}, "nb_res": 1}, "jobs: is missing, or empty"),
        ({**BATSIM, "nb_res": None}, "nb_res: is missing"),
        ({**BATSIM, "nb_res": 0}, "nb_res: 0 is not from 1"),
        ({**BATSIM, "jobs": {}}, "jobs: is no array"),
        ({**BATSIM, "jobs": [5]}, "jobs[0]: is no object"),
        ({**BATSIM, "profiles": []}, "profiles: is no object"),
        ({**BATSIM, "profiles": {"long": {"type": "delay"}}}, "profile 'long': delay: is missing"),
        (
            {**BATSIM, "profiles": {"long": {"type": "delay", "delay": 0}}},
            "profile 'long': delay: 0 is not above 0",
        ),
        (
            {**BATSIM, "profiles": {"long": {"type": "composed", "seq": []}}},
            "profile 'long': seq: is no list",
        ),
        ({**BATSIM, "osub": {"system": "N9", "unit": "core"}}, "osub: 'N9', 'core' are no system"),
        ({**BATSIM, "osub": {"system": "N9C9", "unit": "core"}}, "nb_res: 8 are not the 81 hosts"),
        ('{"jobs": [NaN]}', "character 11: NaN is no number of JSON"),
        ('{"jobs": [{"id": 1, "id": 2}]}', "character 11: the key 'id' is there twice"),
        ('{"jobs": [{}', "jobs[0]: id: is missing"),
        (json.dumps(BATSIM)[:-20], "character "),
        (json.dumps(BATSIM) + "x", "something follows the end"),
    ],
)
def test_a_bad_document_is_reported(tmp_path: Path, document: object, what: str) -> None:
    assert what in imported(tmp_path, document)


def test_sequences_of_sequences_take_no_longer_to_read_than_to_write(tmp_path: Path) -> None:
    deep = {f"p{level}": {"type": "composed", "seq": [f"p{level + 1}"] * 2} for level in range(40)}
    profiles = {**BATSIM["profiles"], **deep, "p40": {"type": "delay", "delay": 2**-40}}
    path, out = tmp_path / "w.json", tmp_path / "o.swf"
    path.write_text(json.dumps({**changed(profile="p0"), "profiles": profiles}))
    assert osub("trace", "import", path, "--format", "batsim", "--out", out).code == 0
    assert read_swf(out).jobs[0].run_s == 1


def test_profiles_in_a_circle_are_reported(tmp_path: Path) -> None:
    circle = {
        name: {"type": "composed", "seq": [other]} for name, other in (("long", "twice"), ("twice", "long"))
    }
    document = {**BATSIM, "profiles": {**BATSIM["profiles"], **circle}}
    assert "job '1': profile: its profiles are nested in more than 50 levels, or in a circle" in imported(
        tmp_path, document
    )


def test_what_cannot_be_reported_is_left_out_if_that_is_wanted(tmp_path: Path) -> None:
    path, out = tmp_path / "w.json", tmp_path / "o.swf"
    path.write_text(json.dumps(changed(profile="unused")))
    words = ("trace", "import", path, "--format", "batsim", "--out", out, "--lenient", "--json")
    said = osub(*words)
    assert said.code == 0, said.err
    assert json.loads(said.out)["left_out"] == {"jobs that are no delays or too wide": 1}
    assert [job.job_number for job in read_swf(out).jobs] == [4, 3]
    assert read_swf(out).header.fields["MaxJobs"] == ("2",)


def test_a_job_wider_than_the_system_is_reported(trace: Path, tmp_path: Path) -> None:
    words = ("trace", "export", trace, "--format", "batsim", "--out", tmp_path / "w.json", "--system", "N2C3")
    said = osub(*words)
    assert said.code == 1
    assert said.err.startswith(
        f"osub: {trace}: job 2: requested number of processors: 8 are more than N2C3 has"
    )
    assert list(tmp_path.iterdir()) == [trace]
    said = osub(*words, "--lenient")
    assert said.code == 0
    assert "jobs wider than the system 1" in said.err


def test_a_job_number_twice_is_reported(trace: Path, tmp_path: Path) -> None:
    trace.write_text(TRACE.replace("\n2 2", "\n1 2"))
    said = osub("trace", "export", trace, "--format", "batsim", "--out", tmp_path / "w.json")
    assert (said.code, said.err.strip()) == (
        1,
        f"osub: {trace}: job 1: job number: is there twice; --lenient leaves such jobs out",
    )
    assert list(tmp_path.iterdir()) == [trace]


@pytest.mark.slow
def test_options_that_do_not_go_together_are_reported(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    for words, what in (
        (("export", trace, "--format", "evalys", "--platform", tmp_path / "p"), "--platform is for"),
        (("export", trace, "--format", "batsim", "--sizes", tmp_path / "p"), "--sizes is for"),
        (
            ("export", trace, "--format", "elastisim", "--unit", "core"),
            "--unit: a host of ElastiSim's is a node",
        ),
        (("import", trace, "--format", "batsim", "--models", tmp_path), "--models and --sizes are for"),
        (("import", trace, "--format", "evalys"), "name the machines"),
        (
            ("import", trace, "--format", "batsim", "--system", "N1C1", "--platform", trace),
            "both name the machines",
        ),
        (("import", trace, "--format", "batsim", "--system", "x"), "is no JSON object|'x' is not a system"),
    ):
        said = osub("trace", *words, "--out", out)
        assert said.code in (1, 2)
        assert any(one in said.err for one in what.split("|")), said.err
        assert not out.exists()


def test_nothing_is_replaced_unasked(trace: Path, tmp_path: Path) -> None:
    (out := tmp_path / "w.json").write_text("mine")
    words = ("trace", "export", trace, "--format", "batsim", "--out", out)
    assert osub(*words).code == 1
    assert out.read_text() == "mine"
    assert osub(*words, "--force").code == 0
    assert json.loads(out.read_text())["nb_res"] == 8


ELASTISIM_TRACE = """\
; Version: 2.2
1 0 5 600 7 -1 -1 7 900 -1 1 7 1 -1 1 -1 -1 -1
2 2.5 0 120 4 -1 -1 4 -1 -1 1 7 1 -1 1 -1 -1 -1
"""

SIZES = "trace_job,min_nodes,preferred_nodes,max_nodes,parallel\n"


def imported_elastisim(folder: Path, *words: object) -> str:
    """Import jobs that are refused, and return what is said; nothing may be left of it."""
    path, before = folder / "jobs.json", set(folder.iterdir())
    said = osub("trace", "import", path, "--format", "elastisim", "--out", folder / "o.swf", *words)
    assert said.code == 1, said.out
    assert set(folder.iterdir()) == before
    assert said.err.count("\n") == 1
    return said.err


def test_the_folder_is_what_elastisim_runs(tmp_path: Path) -> None:
    trace, sizes, out = tmp_path / "t.swf", tmp_path / "s.csv", tmp_path / "e"
    trace.write_text(ELASTISIM_TRACE)
    sizes.write_text(SIZES + "1,1,2,3,0.75\n")
    words = ("--system", "N3C4", "--sizes", sizes)
    said = osub("trace", "export", trace, "--format", "elastisim", "--out", out, *words)
    assert said.code == 0, said.err
    assert sorted(file.name for file in out.iterdir()) == [
        "configuration.json", "jobs.json", "malleable.json", "platform.xml", "rigid.json",
    ]  # fmt: skip
    first, second = json.loads((out / "jobs.json").read_text())["jobs"]
    assert (first["type"], first["num_nodes_min"], first["num_nodes_max"]) == ("malleable", 1, 3)
    assert (first["walltime"], first["submit_time"], first["attributes"]["preferred"]) == (900, 0, 2)
    assert first["arguments"] == {"serial": 600 / (0.25 + 0.75 / 2), "share": 0.75, "steps": 10}
    assert (second["type"], second["num_nodes"], second["submit_time"]) == ("rigid", 1, 2)
    assert second["arguments"] == {"run": 120.0}
    assert "walltime" not in second
    configuration = json.loads((out / "configuration.json").read_text())
    assert configuration["schedule_on_job_finalize"], (
        "a waiting job starts when another ends, not at the next look"
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
def test_a_bad_value_of_elastisim_is_reported_with_job_and_key(
    tmp_path: Path, which: int, keys: dict[str, Any], what: str
) -> None:
    document = copy.deepcopy(ELASTISIM)
    document["jobs"][which] |= keys
    path = write_elastisim_files(tmp_path, document)
    said = imported_elastisim(tmp_path)
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
    said = imported_elastisim(tmp_path)
    assert said.startswith(f"osub: {path}: jobs[0]: ")
    assert what in said


def test_two_jobs_of_one_name_are_reported(tmp_path: Path) -> None:
    document = copy.deepcopy(ELASTISIM)
    for job in document["jobs"]:
        job["attributes"] = {"job": 7}
    write_elastisim_files(tmp_path, document)
    assert "jobs.json: job 7: attributes: job: is there twice" in imported_elastisim(tmp_path)


def test_models_may_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    path = write_elastisim_files(tmp_path)
    (tmp_path / "model.json").rename(tmp_path / "models/model.json")
    assert "there is no file 'model.json'" in imported_elastisim(tmp_path)
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
    assert read_swf(tmp_path / "o.swf").header.fields["MaxJobs"] == ("1",)


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
    trace.write_text(ELASTISIM_TRACE)
    sizes.write_text(SIZES + line)
    words = ("--out", out, "--system", "N3C4", "--sizes", sizes)
    said = osub("trace", "export", trace, "--format", "elastisim", *words)
    assert said.code == 1
    assert said.err.startswith(f"osub: {sizes}")
    assert what in said.err
    assert said.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == [sizes, trace]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (path := tmp_path / "jobs.csv").write_text(CSV)
    return path


def refused(table: Path, old: str, new: str, *words: object) -> str:
    """Import a changed table that is refused, and return what is said; nothing may be left of it."""
    assert old in CSV
    table.write_text(CSV.replace(old, new, 1))
    said = osub(
        "trace", "import", table, "--format", "evalys", "--out", table.parent / "r", "--system",
        "N2C4", *words,
    )  # fmt: skip
    assert said.code == 1, said.out
    assert list(table.parent.iterdir()) == [table]
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.slow
def test_a_run_has_the_columns_of_batsim(tmp_path: Path) -> None:
    jobs = [
        make_ended(1, placement=(Placement("n1", (0, 1, 3)), Placement("n2", (0,)))),
        make_ended(2, state="TIMEOUT", requested_s=2.0),
        make_job(3, state="REFUSED", placement=None),
    ]
    write_run(tmp_path / "r", make_info(wall_s=1.0), make_trace(tmp_path), frame_of(jobs, JOBS))
    for unit, allocated in (("core", "0-1 3-4"), ("node", "0-1")):
        out = tmp_path / f"{unit}.csv"
        words = ("--format", "evalys", "--out", out, "--unit", unit)
        assert osub("trace", "export", tmp_path / "r", *words).code == 0
        rows = list(csv.DictReader(out.read_text().splitlines()))
        assert tuple(rows[0]) == COLUMNS
        assert rows[0]["allocated_resources"] == allocated
        assert [row["final_state"] for row in rows] == [
            "COMPLETED_SUCCESSFULLY",
            "COMPLETED_WALLTIME_REACHED",
            "REJECTED",
        ]
        assert [row["success"] for row in rows] == ["1", "0", "0"]
    first = {key: rows[0][key] for key in ("starting_time", "execution_time", "waiting_time", "stretch")}
    assert first == {"starting_time": "1", "execution_time": "2", "waiting_time": "0.5", "stretch": "1.25"}
    assert [row["requested_time"] for row in rows] == ["-1", "2", "-1"]
    assert rows[2]["starting_time"] == rows[2]["allocated_resources"] == ""


def test_a_table_of_batsim_is_a_run(table: Path, tmp_path: Path) -> None:
    words = ("--format", "evalys", "--out", tmp_path / "r", "--system", "N2C4", "--policy", "easy", "--json")
    said = osub("trace", "import", table, *words)
    assert said.code == 0, said.err
    assert json.loads(said.out)["jobs"] == 3
    run = load_run(tmp_path / "r")
    rows = run.jobs.select("trace_job", "state", "start_s", "end_s", "dedicated_s", "nodes", "cores").rows()
    assert rows == [
        (0, "COMPLETED", 1.5, 21.75, 20.25, 1, 3),
        (1, "TIMEOUT", 21.75, 26.75, None, 1, 1),
        (2, "REFUSED", None, None, None, 3, 9),
    ]
    assert run.jobs["placement"].to_list()[:2] == [
        [{"node": "n1", "cores": "0-1,3"}],
        [{"node": "n2", "cores": "3"}],
    ]
    assert (run.info.policy, run.info.system, run.complete) == ("easy", "N2C4", True)
    assert [job.run_s for job in read_swf(tmp_path / "r/trace.swf.gz").jobs] == [20.25, 5, None]


def test_hosts_may_be_nodes(table: Path, tmp_path: Path) -> None:
    words = ("--format", "evalys", "--out", tmp_path / "r", "--system", "N9C2", "--unit", "node")
    assert osub("trace", "import", table, *words).code == 0
    placement = load_run(tmp_path / "r").jobs["placement"].to_list()
    assert placement[0] == [{"node": f"n{place}", "cores": "0-1"} for place in (1, 2, 4)]


def test_older_names_and_fewer_columns_are_read(table: Path, tmp_path: Path) -> None:
    table.write_text(
        "jobID,submission_time,waiting_time,execution_time,requested_number_of_processors,"
        "allocated_processors,success,requested_time\n"
        "4,1,2,3,1,0,1,\n"
        "5,1,-0.000001,10,1,1,0,10.0\n"
    )
    words = ("--format", "evalys", "--out", tmp_path / "r", "--system", "N2C4")
    said = osub("trace", "import", table, *words)
    assert said.code == 0, said.err
    rows = load_run(tmp_path / "r").jobs.select("trace_job", "state", "start_s", "end_s").rows()
    # second 0 is the first submission
    assert rows == [(4, "COMPLETED", 2.0, 5.0), (5, "TIMEOUT", 0.0, 10.0)]


@pytest.mark.slow
def test_what_came_from_a_run_compares_to_it_without_an_error(tmp_path: Path) -> None:
    jobs = [
        make_ended(number, start_s=float(number), end_s=number + 3.0, dedicated_s=3.0)
        for number in range(1, 6)
    ]
    info = make_info(wall_s=1.0, node_names=("n1", "n2"), multiplicity=1)
    write_run(tmp_path / "r", info, make_trace(tmp_path), frame_of(jobs, JOBS))
    assert (
        osub("trace", "export", tmp_path / "r", "--format", "evalys", "--out", tmp_path / "j.csv").code == 0
    )
    words = ("--format", "evalys", "--out", tmp_path / "b", "--system", "N2C4")
    assert osub("trace", "import", tmp_path / "j.csv", *words).code == 0
    said = osub("compare", tmp_path / "r", tmp_path / "b", "--json")
    assert said.code == 0, said.err
    errors = json.loads(said.out)["errors"][0]
    assert (errors["jobs"], errors["missing"], errors["compared"], errors["same_place"]) == (5, 0, 5, 1)
    assert (errors["start_s"]["max"], errors["run_time"]["max"]) == (0, 0)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("job_id,", "name,", "jobs.csv: job_id: there is no such column"),
        ("profile,", "job_id,", "jobs.csv: job_id: the column is there twice"),
        ("\n0,w", "\n1,w", ":3: job '1': job_id: is there twice"),
        ("\n0,w", "\n,w", ":2: job '?': job_id: is missing"),
        ("\n0,w", "\n" + "x" * 65_536 + ",w", "job_id: is longer than 4,096 characters"),
        ("0.000000,3", "-1,3", ":2: job '0': submission_time: -1 is not at least 0"),
        ("0.000000,3", "nan,3", ":2: job '0': submission_time: is missing"),
        ("0.000000,3", "inf,3", ":2: job '0': submission_time: inf is too large"),
        ("0.000000,3", "1e300,3", ":2: job '0': submission_time: 1e+300 is too large"),
        ("0.000000,3", "soon,3", ":2: job '0': submission_time: 'soon' is no number"),
        ("0.000000,3", "0,0", ":2: job '0': requested_number_of_resources: 0 is not from 1"),
        ("0.000000,3", "0,1.5", ":2: job '0': requested_number_of_resources: 1.5 is no whole number"),
        ("0.000000,3", "2,3", ":2: job '0': starting_time: 1.5 is before submission_time, 2"),
        ("21.75,1.5", "1,1.5", ":2: job '0': finish_time: 1 is before starting_time, 1.5"),
        ("COMPLETED_SUCCESSFULLY", "DONE", ":2: job '0': final_state: 'DONE' is none of"),
        ("0-1 3", "0-8", ":2: job '0': allocated_resources: 8 is none of the 8 hosts of N2C4 by core"),
        ("0-1 3", "0-999999999", "allocated_resources: 999,999,999 is none"),
        ("0-1 3", "3-1", ":2: job '0': allocated_resources: '3-1' is no interval such as 0-3: 3-1 ends"),
        ("0-1 3", "all", ":2: job '0': allocated_resources: 'all' is no interval"),
        (',""\n1', ',"{""osub"":{"\n1', ":2: job '0': metadata: is no JSON"),
        (',""\n1', ',"{""osub"":{""kind"":""odd""}}"\n1', ":2: job '0': metadata: Invalid enum value 'odd'"),
        (',""\n1', ',"{""osub"":{""state"":null}}"\n1', ":2: job '0': metadata: state: is missing"),
        (',""\n1', ',"{""osub"":{""start_s"":1}}"\n1', ":2: job '0': metadata: 'start_s' is no column"),
        (',""\n1', ',"{""osub"":{},""on"":[""a"",""b""]}"\n1', ":2: job '0': metadata: on: does not name"),
        ("\n1,w", "\n1,w,w", ":3: has 18 columns, and the first line 17"),
        ("\n1,w", '\n1,"w', "jobs.csv is no CSV file: "),
    ],
)
def test_a_bad_value_is_reported_with_line_job_and_column(table: Path, old: str, new: str, what: str) -> None:
    assert what in refused(table, old, new)


def test_times_that_are_not_there_are_reported(table: Path) -> None:
    assert "jobs.csv: starting_time: there is no such column" in refused(
        table, "starting_time,execution_time,finish_time,waiting_time", "a,execution_time,finish_time,b"
    )
    said = refused(table, "1.500000,20.250000,21.75,1.5", ",20.250000,21.75,")
    assert ":2: job '0': column start_s of trace_job 0: is null although state is COMPLETED" in said


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    from foundation.records import RunWriter

    with RunWriter.create(tmp_path / "r", make_info(), make_trace(tmp_path)) as writer:
        writer.append_job(make_job())
    said = osub("trace", "export", tmp_path / "r", "--format", "evalys", "--out", tmp_path / "j.csv")
    assert said.code == 1
    assert "is not finished" in said.err
    assert not (tmp_path / "j.csv").exists()


def test_a_core_that_the_system_does_not_have_is_reported(tmp_path: Path) -> None:
    write_run(tmp_path / "r", make_info(wall_s=1.0), make_trace(tmp_path), frame_of([make_ended()], JOBS))
    words = ("--format", "evalys", "--out", tmp_path / "j.csv", "--system", "N1C2")
    said = osub("trace", "export", tmp_path / "r", *words)
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "job 1: placement: node 'n1', core 3 are not in N1C2" in said.err
    assert not (tmp_path / "j.csv").exists()


HOSTS = '<cluster id="c" prefix="a" suffix="" radical="{}" speed="1Gf" bw="1GBps" lat="0us" core="4"/>'


def platform(folder: Path, inside: str, before: str = "") -> Path:
    (path := folder / "p.xml").write_text(
        f"<?xml version='1.0'?>\n{before}<platform version=\"4.1\"><zone id='z'>{inside}</zone></platform>"
    )
    return path


def test_hosts_that_compute_are_nodes(tmp_path: Path) -> None:
    inside = (
        HOSTS.format("0-3,7")
        + '<host id="n" speed="1Gf" core="4"/>'
        + '<host id="m" speed="1Gf"><prop id="role" value="master"/></host>'
        + '<host id="b" speed="0Gf"><prop id="batch_system" value="true"/></host>'
        + '<host id="f" speed="0Gf"><prop id="pfs_host" value="true"/></host>'
    )
    doctype = '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
    assert read_platform(platform(tmp_path, inside, doctype)) == Machines(6, 4, Unit.NODE)


@pytest.mark.parametrize(
    ("inside", "what"),
    [
        ("", "has 0 hosts that compute"),
        (HOSTS.format("3-1"), "cluster 'c': radical: '3-1' is no list such as 0-3,7"),
        (HOSTS.format("0-999999999"), "has 1,000,000,000 hosts that compute"),
        (HOSTS.format("x" * 65_536), "cluster 'c': radical: 'xxx"),
        ('<host id="n" core="-1"/>', "host 'n': core: '-1' is no number of cores"),
        ('<host id="n" core="2"/><host id="o" core="3"/>', "host 'o': core: 3 cores, and 'n' has 2"),
        ("<host", "is no XML"),
        (
            '<host id="n"><prop id="osub_system" value="N2C2"/><prop id="osub_unit" value="core"/></host>',
            "N2C2 by core does not have 1 host of 1",
        ),
        ('<host id="n"><prop id="osub_system" value="N0C0"/></host>', "are no system and unit"),
    ],
)
def test_what_is_no_system_is_reported(tmp_path: Path, inside: str, what: str) -> None:
    path = platform(tmp_path, inside)
    with pytest.raises(InputError) as caught:
        read_platform(path)
    assert str(caught.value).startswith(str(path))
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_entities_are_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE p [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    with pytest.raises(InputError, match="an entity"):
        read_platform(platform(tmp_path, "<host id='&b;'/>", bomb))


def test_what_is_no_platform_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "p.xml"
    with pytest.raises(InputError, match="cannot read"):
        read_platform(path)
    path.write_text("<html/>")
    with pytest.raises(InputError, match="is no platform of SimGrid: it begins with 'html'"):
        read_platform(path)
