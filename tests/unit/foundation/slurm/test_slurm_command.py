"""Slurm's commands: how they are run, their options, and the fake in their place."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from foundation.errors import HostError, UsageError
from foundation.slurm import CommandSlurm, SlurmJobState, SubmitRequest, slurm_types
from foundation.slurm.run_command import (
    CommandOutput,
    check_options,
    command_environment,
    run_command,
    sbatch_options,
    submit_environment,
)
from tests.fixtures.fake_slurm import FakeSlurm
from tests.fixtures.looks import looks

AWAY = CommandOutput(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")

PENDING = """{"job_id": 7, "job_state": "PENDING", "user_id": 0, "partition": "main", "submit_time": 1,
 "start_time": 0, "end_time": 0, "time_limit": null, "exit_code": 0, "node_count": 1}"""

REQUEST = SubmitRequest(script="#!/bin/sh\ntrue\n", name="j", environment={"HOME": "/home/user"})


class Script:
    """A runner that gives prepared answers and notes what it was asked."""

    def __init__(self, *answers: CommandOutput) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[list[str], str | None, Mapping[str, str]]] = []
        self.pauses: list[float] = []

    def __call__(
        self, words: Sequence[str], stdin: str | None, env: Mapping[str, str], _: float
    ) -> CommandOutput:
        self.calls.append((list(words), stdin, env))
        return self.answers.pop(0)

    def client(self) -> CommandSlurm:
        return CommandSlurm(Path("/etc/x/slurm.conf"), runner=self, pause=self.pauses.append)


def test_jobs_that_ended_well_are_read_by_their_raw_ids() -> None:
    script = Script(CommandOutput(0, "12\n13\n\nslurm_load_jobs\n", ""))
    assert script.client().completed() == {12, 13}
    assert {"--states=COMPLETED", "--format=%A", "--all"} <= set(script.calls[0][0])


def test_a_read_is_tried_again_while_slurm_is_away() -> None:
    script = Script(AWAY, AWAY, CommandOutput(0, "SLURM_VERSION = 22.05.8\n", ""))
    assert (script.client().version(), script.pauses) == ("22.05.8", [0.5, 1.0])


def test_a_read_that_a_signal_ended_is_tried_again() -> None:
    script = Script(CommandOutput(-13, "", ""), CommandOutput(0, "SLURM_VERSION = 22.05.8\n", ""))
    assert script.client().version() == "22.05.8"


def test_a_job_is_submitted_by_its_users_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    script = Script(CommandOutput(0, "17\n", ""))
    assert script.client().submit_by(["--hold", "job.sh"]) == 17
    words, stdin, environment = script.calls[0]
    assert (words, stdin) == (["sbatch", "--parsable", "--hold", "job.sh"], None)
    assert environment["MINE"] == "1"


def test_a_reservation_names_its_user_when_it_is_made_and_when_it_changes() -> None:
    script = Script(*[CommandOutput(0, "", "")] * 2)
    for anew in (True, False):
        script.client().reserve("r", ["n1"], 60, "alice", anew=anew)
    assert [call[0][1] for call in script.calls] == ["create", "update"]
    assert all("Users=alice" in call[0] for call in script.calls)


def test_a_read_gives_up_after_bounded_tries_and_says_so() -> None:
    script = Script(AWAY, AWAY, AWAY)
    with pytest.raises(slurm_types.SlurmUnreachableError, match="is slurmctld running"):
        script.client().version()
    assert len(script.calls) == 3


def test_a_submission_returns_the_id_and_passes_script_and_options() -> None:
    script = Script(CommandOutput(0, "17;cluster\n", ""))
    assert script.client().submit(REQUEST) == 17
    words, stdin, env = script.calls[0]
    assert words[:2] == ["sbatch", "--parsable"]
    assert stdin == REQUEST.script
    assert (env["SLURM_CONF"], env["HOME"]) == ("/etc/x/slurm.conf", "/home/user")


def test_a_submission_that_never_arrived_is_made_again() -> None:
    assert Script(AWAY, CommandOutput(0, "18\n", "")).client().submit(REQUEST) == 18


@pytest.mark.parametrize(
    "answer",
    [
        CommandOutput(None, "", "no answer"),
        CommandOutput(-13, "", ""),
        CommandOutput(1, "", "sbatch: error: Socket timed out on send/recv"),
    ],
)
def test_a_submission_without_an_answer_is_not_repeated(answer: CommandOutput) -> None:
    script = Script(answer)
    with pytest.raises(slurm_types.SubmitUncertainError):
        script.client().submit(REQUEST)
    assert len(script.calls) == 1


def test_a_refusal_is_reported_in_slurms_words() -> None:
    script = Script(
        CommandOutput(
            1, "", "sbatch: error: invalid partition specified: q\nsbatch: error: Batch job failed\n"
        )
    )
    with pytest.raises(slurm_types.SlurmRefusedError, match="Batch job failed"):
        script.client().submit(REQUEST)


def test_cancelling_a_job_that_has_ended_is_no_error() -> None:
    script = Script(
        CommandOutput(1, "", "scancel: error: Kill job error on job id 9: Invalid job id specified\n")
    )
    script.client().cancel([9])
    assert script.calls[0][0] == ["scancel", "9"]


def test_very_many_jobs_are_cancelled_by_several_commands() -> None:
    script = Script(*[CommandOutput(0, "", "")] * 3)
    script.client().cancel(range(2_500), only_pending=True)
    assert [len(words) for words, _, _ in script.calls] == [1002, 1002, 502]
    assert [number for words, _, _ in script.calls for number in words[2:]] == [
        str(one) for one in range(2_500)
    ]


def test_cancelling_nothing_asks_no_one() -> None:
    script = Script()
    script.client().cancel([])
    assert script.calls == []


def test_an_unknown_job_is_none_and_an_unreadable_one_an_error() -> None:
    script = Script(CommandOutput(0, '{"jobs": []}', ""), CommandOutput(0, "", ""))
    assert script.client().job(9) is None
    records = f'{{"jobs": [{{"job_id": 9}}, {PENDING}]}}'
    script = Script(CommandOutput(0, records, ""), CommandOutput(0, "", ""))
    with pytest.raises(slurm_types.UnreadableJobError, match="job 9: its record has another form"):
        script.client().job(9)


def test_a_list_of_jobs_is_tried_again_where_squeue_says_away_with_exit_code_0() -> None:
    away = CommandOutput(0, '{"errors": [{"description": "Failed while looking for jobs"}], "jobs": []}', "")
    script = Script(
        away, CommandOutput(0, f'{{"errors": [], "jobs": [{PENDING}]}}', ""), CommandOutput(0, "", "")
    )
    assert [job.job_id for job in script.client().jobs().jobs] == [7]
    assert script.pauses == [0.5]
    script = Script(away, away, away)
    with pytest.raises(slurm_types.SlurmUnreachableError, match="Failed while looking for jobs"):
        script.client().jobs()


def test_an_end_is_moved_in_a_zone_that_has_every_hour_once() -> None:
    script = Script(CommandOutput(1, "", "invalid keyword: end-of-9\n"))
    script.client().move_ends({9: 1_793_511_000})
    words, stdin, env = script.calls[0]
    assert (words, stdin) == (["scontrol"], "update JobId=9 EndTime=2026-11-01T05:30:00\nend-of-9\n")
    assert env["TZ"] == "UTC"


@pytest.mark.parametrize(
    "printed", ["", "Submitted batch job 9", "9 9", "-9", "9\n10", "99999999999", "\u0669"]
)
def test_a_submission_whose_id_cannot_be_read_is_uncertain(printed: str) -> None:
    with pytest.raises(slurm_types.SubmitUncertainError):
        Script(CommandOutput(0, printed, "")).client().submit(REQUEST)


def test_what_a_command_says_is_reported_in_one_printable_line() -> None:
    script = Script(CommandOutput(1, "", "sbatch: error: \x1b[31mno\x07" + "!" * 5000 + "\n"))
    with pytest.raises(slurm_types.SlurmRefusedError) as caught:
        script.client().submit(REQUEST)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_a_munged_that_is_away_is_waited_for_as_slurm_is() -> None:
    words = "sbatch: error: Batch job submission failed: Protocol authentication error\n"
    script = Script(*[CommandOutput(1, "", words)] * 3)
    with pytest.raises(slurm_types.SlurmUnreachableError, match="authentication"):
        script.client().submit(REQUEST)


def test_a_job_is_checked_without_being_submitted_and_the_line_that_reports_is_reported() -> None:
    words = "sbatch: unrecognized option '--bogus'\nTry \"sbatch --help\" for more information\n"
    script = Script(
        CommandOutput(0, "", "sbatch: Job 3 to start at ...\n"), CommandOutput(255, "", words), AWAY
    )
    client = script.client()
    client.check(REQUEST)
    assert script.calls[0][0][:2] == ["sbatch", "--test-only"]
    with pytest.raises(slurm_types.SlurmRefusedError, match="unrecognized option '--bogus'"):
        client.check(REQUEST)
    with pytest.raises(slurm_types.SlurmUnreachableError):
        client.check(REQUEST)


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        (
            "error: _parse_next_key: Parsing error at unrecognized key: Foo",
            "scontrol: fatal: Unable to process configuration file",
        ),
        (
            "error: get_addr_info: getaddrinfo() failed: Name or service not known: No error",
            "slurm_load_ctl_conf error: No error",
        ),
    ],
)
def test_why_a_configuration_cannot_be_read_is_reported(reason: str, end: str) -> None:
    script = Script(CommandOutput(1, "", f"scontrol: {reason}\nscontrol: error: more\n{end}\n"))
    with pytest.raises(slurm_types.SlurmRefusedError) as caught:
        script.client().config()
    assert str(caught.value) == f"`scontrol show config` failed: scontrol: {reason}; {end}"


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        (
            "sbatch: error: lua: Say no --mem.\nsbatch: error: cli_filter plugin terminated with error\n",
            "lua: Say no --mem.; sbatch: error: cli_filter plugin terminated with error",
        ),
        (
            "sbatch: error: Say why.\nsbatch: error: See our page.\nallocation failure: Unspecified error\n",
            "Say why.; See our page.; allocation failure: Unspecified error",
        ),
        ("sbatch: error: Invalid qos\n", "sbatch: error: Invalid qos"),
    ],
)
def test_a_refusal_has_the_words_of_a_site_s_own_filters(printed: str, message: str) -> None:
    """As Slurm 22.05 prints them of cli_filter.lua and job_submit.lua."""
    script = Script(CommandOutput(1, "", printed), CommandOutput(1, "", printed))
    for ask in (script.client().check, script.client().submit):
        with pytest.raises(slurm_types.SlurmRefusedError) as caught:
            ask(REQUEST)
        assert str(caught.value).endswith(f": {message}")


PATH = {"PATH": "/bin:/usr/bin"}

CALLER = {
    "PATH": "/bin", "HOME": "/root", "LD_LIBRARY_PATH": "/opt/lib", "TZ": "America/New_York",
    "LC_ALL": "de_DE.UTF-8", "SLURM_CONF": "/etc/a.conf", "SLURM_TIME_FORMAT": "relative",
    "SLURM_CLUSTERS": "other", "SLURM_JOB_ID": "7", "SQUEUE_FORMAT": "%j", "SQUEUE_STATES": "PD",
    "SBATCH_PARTITION": "night", "SCANCEL_STATE": "PENDING", "SINFO_FORMAT": "%n",
    "SCONTROL_ALL": "1",
}  # fmt: skip


def test_a_command_gets_its_stdin_and_gives_what_it_prints_as_it_is() -> None:
    answer = run_command(
        ["sh", "-c", "cat; printf 'a\\r\\nb\\377' >&2; exit 3"], "x\r\n" * 100_000, PATH, 10.0
    )
    assert answer.returncode == 3
    assert answer.stdout == "x\r\n" * 100_000, "no line end is made of another"
    assert answer.stderr == "a\r\nb\N{REPLACEMENT CHARACTER}"


def test_a_command_that_does_not_read_its_stdin_is_no_fault() -> None:
    assert run_command(["true"], "x" * (1 << 20), PATH, 10.0).returncode == 0


def test_a_missing_program_is_an_error_of_the_host() -> None:
    with pytest.raises(HostError, match="not installed"):
        run_command(["no-such-program-at-all"], None, {}, 1.0)


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["true", "a\0b"], None),
        (["true", "\ud800"], None),
        (["true"], "\ud800"),
        (["true", "x" * (1 << 20)], None),
    ],
)
def test_what_no_command_can_be_given_is_an_error_of_usage(words: list[str], stdin: str | None) -> None:
    with pytest.raises(UsageError, match="true cannot be given these words"):
        run_command(["true", *words], stdin, PATH, 1.0)


SLOWLY = "import time\nwhile True: print('x', flush=True); time.sleep(0.001)"


@pytest.mark.parametrize(
    ("words", "within_s", "too_long", "said"),
    [
        (["sleep", "60"], 0.05, False, None),
        (["sh", "-c", "exec >&- 2>&-; sleep 60"], 0.2, False, None),
        (["sh", "-c", "echo no file >&2; sleep 60"], 0.5, False, "no answer within 0.5 s, but: no file"),
        (["sh", "-c", "yes >&1"], 60.0, True, None),
        (["sh", "-c", "yes >&2"], 60.0, True, None),
        ([sys.executable, "-c", SLOWLY], 0.5, False, None),
    ],
)  # fmt: skip
def test_a_command_that_hangs_or_never_stops_talking_is_killed(
    words: list[str], within_s: float, too_long: bool, said: str | None
) -> None:
    answer = run_command(words, None, PATH, within_s, most_bytes=1 << 20)
    assert (answer.returncode, answer.too_long) == (None, too_long)
    assert said in (None, answer.stderr)
    assert answer.stdout == "" or not too_long


def test_slurms_variables_are_ours_and_which_slurm_it_is_the_callers() -> None:
    assert command_environment(CALLER, None) == {
        "PATH": "/bin", "HOME": "/root", "LD_LIBRARY_PATH": "/opt/lib", "TZ": "UTC",
        "LC_ALL": "C.UTF-8", "SLURM_CONF": "/etc/a.conf", "SLURM_TIME_FORMAT": "standard",
    }  # fmt: skip


def test_a_cluster_that_was_named_goes_before_the_callers() -> None:
    assert command_environment(CALLER, Path("/c/slurm.conf"))["SLURM_CONF"] == "/c/slurm.conf"


def test_a_job_gets_its_own_environment_and_what_it_takes_to_find_slurm() -> None:
    job = {"HOME": "/home/u", "TZ": "Asia/Tokyo", "SBATCH_QOS": "high", "SLURM_HINT": "x", "PATH": "/none"}
    assert submit_environment(job, command_environment(CALLER, None)) == {
        "HOME": "/home/u",
        "TZ": "Asia/Tokyo",
        "PATH": "/bin",
        "SLURM_CONF": "/etc/a.conf",
    }


@pytest.mark.parametrize("name", ["SLURMX", "MY_SLURM_X", "SQUEUE", "SRUNNER_X"])
def test_what_only_looks_like_slurms_is_left(name: str) -> None:
    assert name in command_environment({name: "1"}, None)


def test_ctrl_c_at_our_terminal_does_not_reach_a_command() -> None:
    program = """
import os, signal, threading
from foundation.slurm.run_command import run_command
signal.signal(signal.SIGINT, lambda *_: None)
threading.Timer(0.3, os.killpg, (0, signal.SIGINT)).start()
answer = run_command(["sh", "-c", "sleep 1; echo whole"], None, {"PATH": "/bin:/usr/bin"}, 30.0)
print(answer.returncode, answer.stdout, end="")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, start_new_session=True
    )
    assert (done.stdout, done.stderr) == ("0 whole\n", "")


def test_what_a_killed_command_has_started_is_killed_with_it() -> None:
    mark = f"3{os.getpid() % 10_000:04}.5"
    assert run_command(["sh", "-c", f"sleep {mark} & sleep {mark}"], None, PATH, 0.3).returncode is None
    # A process that was killed goes on being listed until it gets a core to end on.
    assert any(
        not [one for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or ())]
        for _ in looks(60.0)
    )


def test_what_a_site_asks_for_is_passed_on() -> None:
    request = SubmitRequest(
        script="#!/bin/sh\n",
        name="j",
        account="physics",
        qos="long",
        reservation="tuesday",
        no_requeue=True,
        oversubscribe=True,
        tasks_per_core=1,
        memory_per_node_mib=300,
        options=("constraint=fast", "contiguous"),
    )
    assert {
        "--account=physics", "--qos=long", "--reservation=tuesday", "--no-requeue",
        "--oversubscribe", "--ntasks-per-core=1", "--mem=300M", "--constraint=fast", "--contiguous",
    } <= set(sbatch_options(request))  # fmt: skip


def test_nothing_is_said_of_what_no_one_asked_for() -> None:
    said = " ".join(sbatch_options(SubmitRequest(script="#!/bin/sh\n", name="j")))
    for word in ("account", "qos", "reservation", "requeue", "oversubscribe", "per-core", "mem"):
        assert word not in said


@pytest.mark.parametrize(
    ("path", "said"),
    [("/a/1.out", "/a/1.out"), ("/a%j%/x", "/a%%j%%/x"), ("/a\\b%j", "/a\\\\b%j"), (None, "/dev/null")],
)
def test_slurm_expands_nothing_in_the_path_of_an_output(path: str | None, said: str) -> None:
    request = SubmitRequest(script="#!/bin/sh\n", name="j", output=None if path is None else Path(path))
    assert f"--output={said}" in sbatch_options(request)


@pytest.mark.parametrize(
    "option",
    ["constraint=a&b", "requeue", "comment=gangd=off", "nodelist=n[1-2]", "mail-user=a@b", "gres=gpu:1"],
)
def test_a_site_s_own_option_is_taken(option: str) -> None:
    assert check_options([option]) == (option,)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("partition=x", "use --partition"),
        ("part=x", "reads it as --partition"),
        ("array=1-4", "one job"),
        ("hetjob", "not heterogeneous"),
        ("time=5", "comes from the trace"),
        ("exclusive", "share cores"),
        ("-p", "long option"),
        (":", "long option"),
        ("comment=a\nb", "long option"),
        ("", "long option"),
        ("Wrap=true", "long option"),
        ("comment=" + "x" * 2000, "long option"),
    ],
)
def test_what_would_change_a_submission_is_refused_in_one_line(option: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        check_options([option])
    assert "\n" not in str(caught.value)


def request(
    nodes: int = 1, tasks: int = 1, partition: str | None = None, minutes: int | None = None
) -> SubmitRequest:
    return SubmitRequest(
        script="#!/bin/sh\n",
        name="job",
        nodes=nodes,
        tasks_per_node=tasks,
        partition=partition,
        time_limit_minutes=minutes,
    )


def test_jobs_share_cores_up_to_the_multiplicity_then_wait() -> None:
    slurm = FakeSlurm(nodes=2, cores=1, multiplicity=2)
    ids = [slurm.submit(request(nodes=2)) for _ in range(3)]
    assert [job.state for job in slurm.jobs().jobs] == [
        SlurmJobState.RUNNING,
        SlurmJobState.RUNNING,
        SlurmJobState.PENDING,
    ]
    slurm.advance(10)
    third = slurm.job(ids[2])
    assert third is not None
    assert third.state is SlurmJobState.RUNNING
    assert third.nodes == ("n1", "n2")


def test_the_least_loaded_node_is_taken() -> None:
    slurm = FakeSlurm(nodes=2, cores=2, multiplicity=2)
    places = [slurm.submit(request()) for _ in range(3)]
    jobs = {job.job_id: job for job in slurm.jobs().jobs}
    assert [jobs[number].cores[0].node for number in places] == ["n1", "n2", "n1"]
    assert jobs[places[2]].cores[0].cores == (1,)


def test_a_limit_ends_a_job() -> None:
    slurm = FakeSlurm(run_time=lambda _: 200.0)
    number = slurm.submit(request(minutes=1))
    slurm.advance(60)
    job = slurm.job(number)
    assert job is not None
    assert job.state is SlurmJobState.TIMEOUT


@pytest.mark.parametrize("bad", [request(nodes=3), request(tasks=2), request(partition="gpu")])
def test_what_can_never_run_is_refused(bad: SubmitRequest) -> None:
    with pytest.raises(slurm_types.SlurmRefusedError):
        FakeSlurm(nodes=2, cores=1).submit(bad)


def test_unknown_jobs_are_refused() -> None:
    slurm = FakeSlurm()
    with pytest.raises(slurm_types.SlurmRefusedError):
        slurm.cancel([7])
    assert slurm.move_ends({7: 0}) == {7: "Invalid job id specified for job 7"}
    with pytest.raises(slurm_types.SlurmRefusedError):
        slurm.signal(7, "USR1")


def test_an_outage_is_an_error_everywhere() -> None:
    slurm = FakeSlurm()
    slurm.reachable = False
    with pytest.raises(slurm_types.SlurmUnreachableError):
        slurm.jobs()


def test_a_lost_answer_leaves_the_job_behind() -> None:
    slurm = FakeSlurm()
    slurm.lose_next_answer = True
    with pytest.raises(slurm_types.SubmitUncertainError):
        slurm.submit(request())
    assert len(slurm.jobs().jobs) == 1
