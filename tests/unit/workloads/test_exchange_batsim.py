from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.exchange import BATSIM, osub
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
    path = tmp_path / "t.swf"
    path.write_text(TRACE)
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
    foreign = {key: document[key] for key in document if key != "osub"}
    out.write_text(json.dumps(foreign))
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
    told = [(job.job_number, job.submit_s, job.run_s, job.procs, job.requested_s) for job in trace.jobs]
    assert told == [
        (1, 0, 20.25, 3, 30.5),
        (4, 2.25, 60.5, 8, None),
        (3, 7, 5, 1, None),
    ]
    assert (trace.header.max_jobs, trace.header.max_procs) == (3, 8)


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
    assert read_swf(out).header.max_jobs == 2


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
    out = tmp_path / "w.json"
    out.write_text("mine")
    words = ("trace", "export", trace, "--format", "batsim", "--out", out)
    assert osub(*words).code == 1
    assert out.read_text() == "mine"
    assert osub(*words, "--force").code == 0
    assert json.loads(out.read_text())["nb_res"] == 8
