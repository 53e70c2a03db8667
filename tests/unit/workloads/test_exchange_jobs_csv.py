from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from foundation.records import JOBS, Placement, load_run, write_run
from foundation.records.table_files import frame_of
from tests.fixtures.exchange import CSV, osub
from tests.fixtures.records import make_ended, make_info, make_job, make_trace
from workloads.exchange.jobs_csv.jobs_csv_write import COLUMNS
from workloads.swf import read_swf


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(CSV)
    return path


def refused(table: Path, old: str, new: str, *words: object) -> str:
    """Import a changed table that is refused, and return what is said; nothing may be left of it."""
    assert old in CSV
    table.write_text(CSV.replace(old, new, 1))
    said = osub(
        "trace",
        "import",
        table,
        "--format",
        "evalys",
        "--out",
        table.parent / "r",
        "--system",
        "N2C4",
        *words,
    )
    assert said.code == 1, said.out
    assert list(table.parent.iterdir()) == [table]
    assert said.err.count("\n") == 1
    return said.err


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
