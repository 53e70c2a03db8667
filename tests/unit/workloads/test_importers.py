from __future__ import annotations

import gzip
import json
from datetime import UTC
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from foundation.errors import InputError, UsageError
from workloads.importers.assemble_trace import ImportOptions
from workloads.importers.detect_log import LogKind, read_any
from workloads.importers.slurm_words import instant_s, length_s, memory_kib, swf_status
from workloads.swf import SwfJob, SwfTrace, write_swf

HEADING = "JobID|JobIDRaw|User|Account|Partition|QOS|JobName|State|Submit|Start|End|ElapsedRaw|TimelimitRaw"
HEADING += "|NNodes|NCPUS|ReqCPUS|ReqMem|TotalCPU|MaxRSS|NTasks"
ROWS = tuple(
    line.replace("@", "2024-03-04T")
    for line in """\
10|10|ada|phys|work|normal|solve|COMPLETED|@08:00:00|@08:01:00|@09:01:00|3600|120|2|8|8|4Gn|01:30:00||
10.batch|10.batch|||||batch|COMPLETED|@08:01:00|@08:01:00|@09:01:00|3600||1|4|4||00:30:00|100000K|1
10.0|10.0|||||solve|COMPLETED|@08:01:00|@08:01:00|@09:01:00|3600||2|8|8||01:00:00|204800K|8
11_[3-9]|11|ada|phys|work|normal|sweep|PENDING|@08:00:10|Unknown|Unknown|0|60|1|1|1|1G|||
11_2|13|ada|phys|work|normal|sweep|TIMEOUT|@08:00:10|@08:00:20|@09:00:20|3600|60|1|1|1|1G|||
12|12|bob|chem|devel|normal|bash|CANCELLED by 7|@08:30:00|@08:30:01|@08:40:01|600|240|1|1|2|500Mc|00:00:05||
14|14|bob|chem|work|normal|x|CANCELLED by 7|@08:31:00|None|@08:40:01|0|240|1|0|2|500Mc|||
15|15|bob|chem|work|normal|x|RUNNING|@08:31:00|@08:31:02|Unknown|1000|240|1|4|4|500Mc|||
""".splitlines()
)
OPTIONS = ImportOptions("week", zone=ZoneInfo("Europe/Berlin"))


def write(folder: Path, *rows: str, heading: str = HEADING) -> Path:
    (path := folder / "week.txt").write_text("\n".join([heading, *rows]) + "\n")
    return path


def jobs_of(trace: SwfTrace) -> dict[int, SwfJob]:
    return {job.job_number: job for job in trace.jobs}


def test_a_name_in_the_last_column_may_hold_the_mark_between_columns(tmp_path: Path) -> None:
    heading = HEADING.replace("JobName|", "") + "|JobName"
    cells = [row.split("|") for row in ROWS]
    rows = ["|".join([*row[:6], *row[7:], f"a|{row[6]}|COMPLETED|"]) for row in cells]
    trace, kind = read_any(write(tmp_path, *rows, heading=heading), OPTIONS)
    assert kind is LogKind.SACCT
    assert [job.run_s for job in trace.jobs] == [
        job.run_s for job in read_any(write(tmp_path, *ROWS), OPTIONS)[0].jobs
    ]


def test_parsable_accounting_becomes_a_trace(tmp_path: Path) -> None:
    trace, kind = read_any(write(tmp_path, *ROWS), OPTIONS)
    assert kind is LogKind.SACCT
    jobs = jobs_of(trace)
    assert list(jobs) == [10, 13, 12]
    assert jobs[10] == SwfJob(
        10, 0, wait_s=60, run_s=3600, allocated_procs=8, cpu_s=675, used_memory_kib=204_800,
        requested_procs=8, requested_s=7200, requested_memory_kib=1024**2, status=1, user=1,
        group=1, executable=1, queue=1, partition=1,
    )  # fmt: skip
    assert (jobs[13].status, jobs[13].submit_s, jobs[13].wait_s, jobs[13].executable) == (0, 10, 10, 2)
    assert (jobs[12].status, jobs[12].queue, jobs[12].user, jobs[12].requested_memory_kib) == (
        5,
        0,
        2,
        500 * 1024,
    )
    assert trace.report.skipped == {"not ended": 1, "never started": 2}
    header = trace.header
    assert (header.unix_start_time_s, header.time_zone_name) == (1709535600, "Europe/Berlin")
    assert (header.queues, header.max_procs) == ({1: "work", 2: "devel", 0: "interactive"}, 10)


def test_no_name_of_a_user_reaches_the_trace(tmp_path: Path) -> None:
    trace, _ = read_any(write(tmp_path, *ROWS), OPTIONS)
    text = b"".join(comment.raw for comment in trace.header.comments)
    assert b"ada" not in text
    assert b"chem" not in text


def test_interactive_jobs_are_those_that_fit_a_pattern(tmp_path: Path) -> None:
    options = ImportOptions("week", interactive=("partition=w*", "user=nobody"), nodes=4, procs=64)
    trace, _ = read_any(write(tmp_path, *ROWS), options)
    assert [job.queue for job in trace.jobs] == [0, 0, 2]
    assert (trace.header.max_nodes, trace.header.max_procs) == (4, 64)
    for bad in ("colour=red", "partition", "partition="):
        with pytest.raises(UsageError, match="FIELD=PATTERN"):
            read_any(write(tmp_path, *ROWS), ImportOptions("week", interactive=(bad,)))


def test_last_run_of_a_requeued_job_counts(tmp_path: Path) -> None:
    again = ROWS[0].replace("T08:01:00", "T08:51:00").replace("|3600|", "|60|")
    trace, _ = read_any(write(tmp_path, ROWS[0].replace("COMPLETED", "NODE_FAIL"), again), OPTIONS)
    assert [(job.wait_s, job.run_s) for job in trace.jobs] == [(3060, 60)]
    assert trace.report.skipped == {"earlier run of a requeued job": 1}


def test_array_tasks_without_a_number_of_their_own_get_one(tmp_path: Path) -> None:
    heading = "JobID,State,Submit,Start,End,NCPUS"
    rows = ("7,COMPLETED,100,110,120,2", "7,COMPLETED,100,130,150,2", '8_1,"COMPLETED",90,100,120,1')
    trace, _ = read_any(write(tmp_path, *rows, heading=heading), OPTIONS)
    assert [(job.job_number, job.submit_s, job.run_s) for job in trace.jobs] == [
        (8, 0, 20),
        (7, 10, 10),
        (9, 10, 20),
    ]
    assert any(note.startswith("2 array tasks") for note in trace.header.notes)


def test_trailing_delimiter_of_parsable_is_no_column(tmp_path: Path) -> None:
    rows = (f"{row}|" for row in ROWS)
    trace, _ = read_any(write(tmp_path, *rows, heading=f"{HEADING}|"), OPTIONS)
    assert len(trace.jobs) == 3


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1|2", ":3: 2 columns instead of 20"),
        (ROWS[0] + "|more|", ":3: "),
        (ROWS[0].replace("T08:00:00", "T88:00:00"), ":3: cannot make sense of"),
        (ROWS[0].replace("|4Gn|", "|4Zn|"), ":3: cannot make sense of '4Zn'"),
        (ROWS[0].replace("|120|", "|soon|"), ":3: cannot make sense of 'soon'"),
    ],
)
def test_malformed_lines_are_refused_or_skipped(row: str, words: str, tmp_path: Path) -> None:
    path = write(tmp_path, ROWS[0], row)
    with pytest.raises(InputError, match=words):
        read_any(path, OPTIONS)
    trace, _ = read_any(path, OPTIONS, strict=False)
    assert (len(trace.jobs), sum(trace.report.skipped.values())) == (1, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("JobID  Partition  State\n-----\n1 a b\n", "make it with `sacct"),
        (f"{HEADING}\n", "no job of this log ran"),
        (f"{HEADING}\n{ROWS[7]}\n", r"no job of this log ran: not ended \(1\)"),
        ("{broken", "no sound JSON"),
        ("{}", "no list of jobs"),
        ("", "is empty"),
    ],
)
def test_files_without_usable_jobs_are_reported_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    (path := tmp_path / "log").write_text(text)
    with pytest.raises(InputError, match=words) as raised:
        read_any(path, OPTIONS)
    assert "\n" not in str(raised.value)


def test_missing_files_and_folders_are_input_errors(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="cannot read trace"):
            read_any(path, OPTIONS)


def json_job(new: bool, **changes: Any) -> dict[str, Any]:
    """A job of an old data parser, or of a new one with its wrapped numbers and lists of states."""

    def number(value: int) -> Any:
        return {"set": True, "infinite": False, "number": value} if new else value

    job: dict[str, Any] = {
        "job_id": 21,
        "array": {"job_id": 0, "task_id": number(0) if not new else {"set": False, "number": 0}},
        "user": "ada",
        "account": "phys",
        "name": "solve",
        "partition": "work",
        "qos": "normal",
        "state": {"current": ["COMPLETED"] if new else "COMPLETED", "reason": "None"},
        "time": {
            "submission": 1709535600, "start": 1709535660, "end": 1709539260, "elapsed": 3600,
            "limit": number(120), "total": {"seconds": 100, "microseconds": 500000},
        },
        "required": {"CPUs": 8, "memory_per_cpu": number(0), "memory_per_node": number(2048)},
        "allocation_nodes": 2,
        "tres": {
            "allocated": [{"type": "cpu", "count": 8}, {"type": "node", "count": 2}],
            "requested": [{"type": "cpu", "count": 8}, {"type": "mem", "count": 4096}],
        },
        "steps": [
            {"tasks": {"count": 4}, "tres": {"requested": {"max": [{"type": "mem", "count": 1024**2}]}}}
        ],
    }  # fmt: skip
    return job | changes


@pytest.mark.parametrize("new", [True, False])
def test_json_of_old_and_new_parsers_becomes_the_same_trace(new: bool, tmp_path: Path) -> None:
    path = tmp_path / "week.json"
    task = {"job_id": 30, "task_id": {"set": True, "number": 5} if new else 5}
    path.write_text(json.dumps({"jobs": [json_job(new), json_job(new, job_id=35, array=task)]}))
    trace, kind = read_any(path, OPTIONS)
    assert kind is LogKind.SACCT_JSON
    assert [job.job_number for job in trace.jobs] == [21, 35]
    job = trace.jobs[0]
    assert (job.wait_s, job.run_s, job.requested_s, job.procs) == (60, 3600, 7200, 8)
    assert (job.requested_memory_kib, job.used_memory_kib, job.cpu_s) == (512 * 1024, 512, 12.562)


def test_unlimited_jobs_of_json_have_no_requested_time_and_odd_ones_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "week.json"
    endless = json_job(True)
    endless["time"]["limit"] = {"set": True, "infinite": True, "number": 0}
    path.write_text(json.dumps({"jobs": [endless, {"job_id": 5}]}))
    with pytest.raises(InputError, match="job 1 of the list"):
        read_any(path, OPTIONS)
    trace, _ = read_any(path, OPTIONS, strict=False)
    assert [job.requested_s for job in trace.jobs] == [None]
    assert trace.report.skipped == {"malformed job": 1}


LINE = (
    "JobId=1001 UserId=ada(1005) GroupId=g(5) Name=a job = odd JobState=COMPLETED Partition=normal "
    "TimeLimit=7 StartTime=2021-02-11T22:36:20 EndTime=2021-02-11T22:36:34 NodeList=b1 NodeCnt=1 ProcCnt=12 "
    "WorkDir=/home/u ReservationName= Gres= Account=acc QOS=normal WcKey= Cluster=micro "
    "SubmitTime=2021-02-11T22:36:19 EligibleTime=2021-02-11T22:36:19 DerivedExitCode=0:0 ExitCode=0:0 \n"
)


def test_completion_log_becomes_a_trace_packed_or_not(tmp_path: Path) -> None:
    path = tmp_path / "jobcomp.log.gz"
    other = LINE.replace("1001", "1002").replace("TimeLimit=7", "TimeLimit=UNLIMITED").replace("odd", "bash")
    path.write_bytes(gzip.compress((LINE + other).encode()))
    trace, kind = read_any(path, OPTIONS)
    assert kind is LogKind.JOBCOMP
    first, second = trace.jobs
    assert (first.job_number, first.wait_s, first.run_s, first.procs, first.requested_s) == (
        1001, 1, 14, 12, 420,
    )  # fmt: skip
    assert second.requested_s is None
    assert second.executable == 2


def test_malformed_completion_lines_are_refused_or_skipped(tmp_path: Path) -> None:
    path = tmp_path / "jobcomp.log"
    path.write_text(LINE + "JobId=7 UserId=ada(1)\n" + LINE.replace("ProcCnt=12", "ProcCnt=many"))
    with pytest.raises(InputError, match=r"jobcomp\.log:2: "):
        read_any(path, OPTIONS)
    trace, _ = read_any(path, OPTIONS, strict=False)
    assert (len(trace.jobs), trace.report.skipped) == (1, {"malformed line": 2})


@pytest.mark.parametrize(
    ("before", "after"), [("odd", "odd EndTime=2030-01-01T00:00:00"), ("WorkDir=", "WorkDir=/ ProcCnt=9 ")]
)
def test_who_writes_a_key_of_slurms_is_left_out_and_counted(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "jobcomp.log"
    assert before in LINE
    path.write_text(LINE + LINE.replace("1001", "1002").replace(before, after))
    trace, _ = read_any(path, OPTIONS)
    assert [job.job_number for job in trace.jobs] == [1001]
    assert trace.report.skipped == {"a key of Slurm's in a user's words": 1}


@pytest.mark.slow
def test_packed_log_that_is_cut_off_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "jobcomp.log.gz"
    path.write_bytes(gzip.compress(b"".join(LINE.encode() for _ in range(5000)))[:-500])
    with pytest.raises(InputError, match="truncated"):
        read_any(path, OPTIONS)


def test_swf_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.swf"
    path.write_bytes(b"; MaxProcs: 4\n1 0 1 10 1 -1 -1 1 20 -1 1 1 1 -1 1 -1 -1 -1\n")
    trace, kind = read_any(path, OPTIONS)
    assert (kind, trace.header.max_procs, len(trace.jobs)) == (LogKind.SWF, 4, 1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93_784),
        ("02:03:04", 7384),
        ("03:04", 184),
        ("03:04.500", 184.5),
        ("2-0", 172_800),
        ("2-01:30", 178_200),
        ("90", 90),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("", None),
    ],
)
def test_lengths_of_time_are_read_as_slurm_writes_them(text: str, seconds: float | None) -> None:
    assert length_s(text) == seconds


def test_words_of_slurm_are_read() -> None:
    assert length_s("90", 60) == 5400
    assert instant_s("1709535600", None) == 1709535600
    assert instant_s("2024-03-04T07:00:00", UTC) == 1709535600
    assert instant_s("2024-03-04 08:00:00+01:00", UTC) == 1709535600
    assert instant_s("Unknown", UTC) is None
    assert instant_s("0", UTC) is None
    assert memory_kib("4Gn", 8, 2) == 8 * 1024**2
    assert memory_kib("500Mc", 8, 2) == 4000 * 1024
    assert memory_kib("16G", 8, 2) == 16 * 1024**2
    assert memory_kib("2000", 8, 2) == 2000 * 1024
    assert memory_kib("0", 8, 2) is None
    assert [swf_status(state) for state in ("COMPLETED", "CANCELLED", "TIMEOUT", None)] == [1, 5, 0, None]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("|8|8|", "|inf|8|"),
        ("|8|8|", "|8|1e999|"),
        ("|3600|", f"|{'9' * 300}|"),
        ("|4Gn|", f"|{'9' * 300}G|"),
    ],
)
def test_numbers_that_no_trace_can_hold_are_refused_or_skipped(
    tmp_path: Path, number: str, text: str
) -> None:
    path = write(
        tmp_path,
        ROWS[0],
        ROWS[5].replace(number, text) if number in ROWS[5] else ROWS[0].replace(number, text),
    )
    with pytest.raises(InputError, match=":3: cannot make sense of"):
        read_any(path, OPTIONS)
    assert len(read_any(path, OPTIONS, strict=False)[0].jobs) == 1


@pytest.mark.parametrize(
    "changes",
    [{"allocation_nodes": 10**400}, {"job_id": 1e300}, {"required": {"CPUs": 1e308}}, {"job_id": "x"}],
)
def test_numbers_of_json_that_no_trace_can_hold_are_skipped(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "week.json"
    path.write_text(json.dumps({"jobs": [json_job(False), json_job(False, **changes)]}))
    with pytest.raises(InputError, match="job 1 of the list"):
        read_any(path, OPTIONS)
    assert len(read_any(path, OPTIONS, strict=False)[0].jobs) == 1


@pytest.mark.parametrize(
    "changes",
    [{"name": 5}, {"partition": ["work"]}, {"state": {"current": [["RUNNING"]]}}, {"partition": "\ud800"}],
)
def test_words_of_json_that_are_none_do_no_harm(tmp_path: Path, changes: dict[str, Any]) -> None:
    (path := tmp_path / "week.json").write_text(json.dumps({"jobs": [json_job(False, **changes)]}))
    assert len(read_any(path, OPTIONS)[0].jobs) == 1


def test_what_is_made_of_huge_numbers_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "week.json"
    required = {"CPUs": 10**14, "memory_per_cpu": 10**14, "memory_per_node": 0}
    path.write_text(json.dumps({"jobs": [json_job(False, job_id=10**15, required=required)]}))
    made = tmp_path / "made.swf"
    write_swf(made, read_any(path, OPTIONS)[0])
    assert [job.job_number for job in read_any(made, OPTIONS)[0].jobs] == [10**15]


def test_names_in_the_header_hold_no_orders_for_a_terminal(tmp_path: Path) -> None:
    (path := tmp_path / "week.json").write_text(
        json.dumps({"jobs": [json_job(False, partition="a\x1b]0;pwned\x07\n; MaxProcs: 9\u2028b")]})
    )
    header = read_any(path, OPTIONS)[0].header
    assert header.max_procs == 8
    assert all(comment.text.isprintable() for comment in header.comments)


def test_blank_lines_before_the_heading_are_passed_over(tmp_path: Path) -> None:
    (path := tmp_path / "week.txt").write_text(f"\n\n{HEADING}\n{ROWS[0]}\nnonsense\n")
    with pytest.raises(InputError, match=":5: 1 column instead of 20"):
        read_any(path, OPTIONS)
    assert len(read_any(path, OPTIONS, strict=False)[0].jobs) == 1


def test_a_damaged_packed_log_is_reported_and_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = gzip.compress(
        "\n".join([HEADING, *(ROWS[0].replace("10|10", f"{n}|{n}") for n in range(900))]).encode(), 1
    )
    (path := tmp_path / "log.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="lenient"):
        read_any(path, OPTIONS)
    trace, _ = read_any(path, OPTIONS, strict=False)
    assert 10 < len(trace.jobs) < 900
    assert trace.report.skipped["damaged end of file"] == 1
    path.write_bytes(whole[:12])
    for strict in (True, False):
        with pytest.raises(InputError, match=r"fetch it again$"):
            read_any(path, OPTIONS, strict)


def test_a_table_that_breaks_its_own_rules_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, '"' + "x" * 200_000 + '",2,3', heading="JobID,Submit,State")
    with pytest.raises(InputError, match=r"week\.txt:2: field larger"):
        read_any(path, OPTIONS)
