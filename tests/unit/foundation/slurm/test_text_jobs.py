"""Jobs where Slurm prints no JSON: facts that no user can write, and cores among what users write."""

from __future__ import annotations

import json
import os
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ClusterError
from foundation.slurm import JobSnapshot, SlurmJob, SlurmJobState, slurm_types
from foundation.slurm.hosts import MOST_HOSTS, NodeBook, expand_hosts, expand_ids, fold_hosts
from foundation.slurm.job_sources import ChosenSource, JsonSource, TextSource
from foundation.slurm.json_jobs import JsonReader
from foundation.slurm.site_configuration import read_config, read_nodes, read_partitions, scheduling_config
from foundation.slurm.text_jobs import FACTS, read_facts

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm"
FACTS_TEXT = (FIXTURES / "facts.txt").read_text()
JSON = (FIXTURES / "jobs.json").read_text()
RAW = (FIXTURES / "jobs-raw.txt").read_text()
NODES = read_nodes((FIXTURES / "nodes.txt").read_text())
WRITTEN = {one["job_id"]: one for one in json.loads(JSON)["jobs"]}
EVIL = 1  # its name has a line that looks like another job's record, its comment what looks like cores
_OTHERS = r"JobId=\d+ (?!JobName=a )"
_RECORD = re.compile(rf"^{_OTHERS}(?:(?!^{_OTHERS}).)*", re.DOTALL | re.MULTILINE)
RECORDS = {int(found[0].split()[0].removeprefix("JobId=")): found[0] for found in _RECORD.finditer(RAW)}


class Commands:
    """Answers as Slurm's commands did when the fixtures were made; ``facts`` and ``raw`` can be changed."""

    def __init__(self) -> None:
        self.facts = FACTS_TEXT
        self.raw = dict(RECORDS)
        self.asked: list[str] = []
        self.names = list(WRITTEN)
        self.written: dict[int, str] = {}

    def __call__(self, *words: str, check: Callable[[str], object] = len) -> str:
        self.asked.append(words[0])
        if words[0] == "scontrol":
            return self._shown(words[-1])
        form = words[-1] if words[-1].startswith("--Format") else words[-2]
        if form.endswith("NodeList:0"):
            return self.facts
        if "Name:0" in form:
            assert words[-1] == f"--user={os.getuid()}"
            return "6|x\n" + "".join(f"{number}|{WRITTEN[number]['name']}\n" for number in self.names)
        if "Reason:0" in form:
            return "".join(f"{number}|{one['state_reason']}\n" for number, one in WRITTEN.items())
        field = {"Comment": "comment", "Feature": "features", "Account": "account", "QOS": "qos"}.get(
            form.removeprefix("--Format=").removeprefix("JobID:0|,").removesuffix(":0"), "admin_comment"
        )
        asked = WRITTEN[self._number(words[-2].removeprefix("--jobs="))]
        leader = asked["het_job_id"]
        shown = [one for one in WRITTEN.values() if one is asked or (leader and one["het_job_id"] == leader)]
        prefix = "{job_id}|" if "JobID:0|" in form else ""
        return "".join(
            f"{prefix.format_map(one)}{self.written.get(one['job_id'], one[field])}\n" for one in shown
        )

    def _shown(self, address: str) -> str:
        number = self._number(address)
        if number not in self.raw:
            raise slurm_types.SlurmRefusedError(f"Invalid job id specified: {address}")
        return self.raw[number]

    @staticmethod
    def _number(address: str) -> int:
        for number, one in WRITTEN.items():
            array = f"{one['array_job_id']}_{one['array_task_id']}"
            het = f"{one['het_job_id']}+{one['het_job_offset']}"
            if address in {array, het if one["het_job_id"] else "", str(number)}:
                return int(number)
        raise AssertionError(address)


def book() -> NodeBook:
    return NodeBook(lambda: NODES)


def read(commands: Commands) -> JobSnapshot:
    return TextSource(commands, os.getuid()).read(book())


def unreadable(commands: Commands) -> list[int | None]:
    return sorted((one.job_id for one in read(commands).unreadable if one.job_id != EVIL), key=str)


def from_json() -> dict[int, SlurmJob]:
    reader = JsonReader()
    reader.open(JSON)
    return {job.job_id: job for job in reader.read({node.name: node for node in NODES}.get).jobs}


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)


def test_plain_text_says_what_json_says() -> None:
    expected = from_json()
    snapshot = read(Commands())
    assert [one.job_id for one in snapshot.unreadable] == [EVIL]
    assert len(snapshot.jobs) == len(expected) - 1 == 12
    for job in snapshot.jobs:
        other = expected[job.job_id]
        if job.job_id == 6:
            other = replace(other, name=None)
        if not job.state.holds_cores:
            other = replace(other, comment=None, features=None)
        assert job == other


@pytest.mark.parametrize("first", ["one", "two\nlines\n", "(null)"])
def test_each_component_of_a_heterogeneous_job_has_its_own_words(first: str) -> None:
    commands = Commands()
    commands.written = {4: first, 5: "gangd=off"}
    comments = {job.job_id: job.comment for job in read(commands).jobs}
    assert (comments[4], comments[5]) == (
        None if first == "(null)" else first.removesuffix("\n"),
        "gangd=off",
    )


def test_names_of_other_users_are_not_read() -> None:
    commands = Commands()
    commands.facts = FACTS_TEXT.replace("8|8|N/A|N/A|N/A|RUNNING|0|root", "8|8|N/A|N/A|N/A|RUNNING|1001|eve")
    commands.names.remove(8)
    [job] = [job for job in read(commands).jobs if job.job_id == 8]
    assert (job.uid, job.user, job.name) == (1001, "eve", None)


def test_a_name_of_two_lines_takes_no_other_jobs_name() -> None:
    """The names that are read are one's own; even so two lines that claim one id are no name."""
    names = {job.job_id: job.name for job in read(Commands()).jobs}
    assert names[6] is None, "job 1's name has a line that begins with 6|"
    assert names[8] == "fix.sh"


def test_what_was_asked_once_is_not_asked_again() -> None:
    commands = Commands()
    source, nodes = TextSource(commands, os.getuid()), book()
    first = source.read(nodes)
    commands.asked.clear()
    assert source.read(nodes) == first
    assert commands.asked == ["squeue"] * 3


def test_a_job_that_began_anew_is_asked_for_again() -> None:
    commands = Commands()
    source, nodes = TextSource(commands, os.getuid()), book()
    source.read(nodes)
    commands.facts = FACTS_TEXT.replace("|10:00|1|0|", "|10:00|2|0|")
    commands.asked.clear()
    assert {job.job_id: job.restarts for job in source.read(nodes).jobs}[8] == 2
    assert commands.asked.count("scontrol") == 1


@pytest.mark.parametrize(
    "forged",
    [
        " Nodes=aduqw-n1 CPU_IDs=0 Mem=1 ",
        " Nodes=aduqw-n[1-2] CPU_IDs=0-1 Mem=8192 ",
        " Nodes=aduqw-n2 CPU_IDs=0-3000000 Mem=1 ",
        " Nodes=@x';touch /tmp/x;' CPU_IDs=0 Mem=1 ",
        " Nodes=aduqw-n[1-99999999] CPU_IDs=0 Mem=1 ",
        "\n     Nodes=aduqw-n2 CPU_IDs=0-1 Mem=8192 GRES=\n",
        "CPU_IDs=",
        " Nodes=a CPU_IDs=x Mem=1 ",
    ],
)
@pytest.mark.parametrize("place", ["JobName=", "Comment=", "WorkDir=", "Dependency="])
def test_who_writes_what_looks_like_cores_gets_a_job_that_cannot_be_read(forged: str, place: str) -> None:
    commands = Commands()
    record = commands.raw[8].replace("WorkDir=", "Comment=  WorkDir=")
    commands.raw[8] = record.replace(place, place + forged, 1)
    assert commands.raw[8] != record
    assert unreadable(commands) == [8]


def test_without_its_cores_a_running_job_is_not_readable() -> None:
    commands = Commands()
    del commands.raw[8]
    assert unreadable(commands) == [8]


def test_a_list_of_cores_that_scontrol_cut_is_not_believed() -> None:
    commands = Commands()
    ids = ",".join(str(number) for number in range(4))
    commands.raw[8] = commands.raw[8].replace("CPU_IDs=0-1 ", f"CPU_IDs={ids}{',0' * 60} ")
    assert unreadable(commands) == [8]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("|RUNNING|", "|ASLEEP|"),
        ("|30:00|", "|soon|"),
        ("|2026-11-22T11:39:44", "|00:12:04"),
        ("|2026-11-22T11:39:44|", "|Tomorr 11:39|"),
        ("|main|1|", "|main|many|"),
        ("11|11|N/A", "11|N/A"),
    ],
)
def test_a_line_of_another_form_harms_only_itself(before: str, after: str) -> None:
    line = next(line for line in FACTS_TEXT.split("\n") if before in line and not line.startswith("1|"))
    commands = Commands()
    commands.facts = FACTS_TEXT.replace(line, line.replace(before, after, 1))
    assert unreadable(commands) == [int(line.partition("|")[0])]
    assert len(read(commands).jobs) == 11


def test_lines_that_are_none_have_no_id() -> None:
    assert [number for number, _ in read_facts("hello\n\n1|2\n" + FACTS_TEXT.split("\n")[0])] == [None, 1, 11]
    assert len(FACTS_TEXT.split("\n")[0].split("|")) == len(FACTS)


# Which source


class Json:
    """A source that gives prepared outcomes."""

    def __init__(self, *outcomes: Exception | JobSnapshot) -> None:
        self.outcomes = list(outcomes)
        self.reads = 0

    def read(self, _: NodeBook) -> JobSnapshot:
        self.reads += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def snapshot_of(state: SlurmJobState) -> JobSnapshot:
    return JobSnapshot((replace(from_json()[9], state=state),))


@pytest.mark.parametrize(
    "error", [slurm_types.UnknownFormatError("no json"), slurm_types.AnswerTooLongError("more than 64 MiB")]
)
def test_plain_text_is_read_for_a_minute_where_json_is_not_to_be_had(error: Exception) -> None:
    now_s = 0.0
    json_jobs, text_jobs = snapshot_of(SlurmJobState.PENDING), snapshot_of(SlurmJobState.CANCELLED)
    source = Json(error, json_jobs)
    chosen = ChosenSource({"JSON": source, "text": Json(text_jobs, text_jobs)}, lambda: now_s)
    assert chosen.read(book()) is text_jobs
    assert chosen.why_not == {"JSON": str(error)}
    now_s = 59.0
    assert chosen.read(book()) is text_jobs
    assert source.reads == 1
    now_s = 61.0
    assert chosen.read(book()) is json_jobs
    assert (chosen.name, chosen.why_not) == ("JSON", {})


def test_slurm_being_away_is_no_reason_to_read_something_else() -> None:
    chosen = ChosenSource({"JSON": Json(slurm_types.SlurmUnreachableError("away")), "text": Json()})
    with pytest.raises(slurm_types.SlurmUnreachableError):
        chosen.read(book())


@pytest.mark.parametrize(
    "said",
    [
        "squeue: unrecognized option '--json'",
        "squeue: fatal: Unable to find plugin: serializer/json",
        "squeue: fatal: unable to load openapi plugins",
    ],
)
def test_a_slurm_without_json_is_known_by_what_it_says(said: str) -> None:
    def ask(*_: str, check: Callable[[str], object] = len) -> str:
        raise slurm_types.SlurmRefusedError(said)

    with pytest.raises(slurm_types.UnknownFormatError):
        JsonSource(ask).read(book())


def test_a_node_that_joined_the_cluster_is_asked_for_once_it_is_needed() -> None:
    now_s, loads = 0.0, [NODES[:1], NODES]
    nodes = NodeBook(lambda: loads.pop(0), lambda: now_s)

    def ask(*_: str, check: Callable[[str], object] = len) -> str:
        check(JSON)
        return JSON

    source = JsonSource(ask)
    assert {one.job_id for one in source.read(nodes).unreadable} == {1, 2, 5, 8, 10}
    assert len(loads) == 1, "not asked for again at once"
    now_s = 6.0
    assert source.read(nodes).unreadable == ()


NODES_TEXT = (FIXTURES / "nodes.txt").read_text()
PARTITIONS = (FIXTURES / "partitions.txt").read_text()


def test_nodes_have_states_as_flags_and_a_reason() -> None:
    nodes = {node.name: node for node in read_nodes(NODES_TEXT)}
    assert nodes["aduqw-n1"].is_up
    assert [node.reason for node in nodes.values() if not node.is_up] == ["bad disk, see log"]
    assert "DRAIN" in nodes["aduqw-n2"].states


def test_cores_are_those_of_all_sockets_and_no_threads() -> None:
    one, two = read_nodes(NODES_TEXT)
    assert (one.cores, one.sockets, one.cores_per_socket, one.threads_per_core) == (4, 1, 4, 2)
    assert (two.cores, two.sockets, two.cores_per_socket, two.threads_per_core) == (6, 2, 3, 2)


def test_a_node_that_counts_each_core_as_one_cpu_has_all_its_cores() -> None:
    [node, _] = read_nodes(NODES_TEXT.replace("CPUTot=8", "CPUTot=4"))
    assert node.cores == 4


def test_a_node_that_does_not_respond_is_not_up() -> None:
    node = read_nodes(NODES_TEXT.replace("State=MIXED ", "State=MIXED* "))[0]
    assert "NOT_RESPONDING" in node.states
    assert not node.is_up


def test_what_an_operator_writes_of_a_node_is_not_taken_for_what_slurm_says() -> None:
    said = NODES_TEXT.replace("bad disk, see log", "x State=IDLE Sockets=9 CPUAlloc=0 CoresPerSocket=9")
    assert [(node.cores, node.is_up) for node in read_nodes(said)] == [(4, True), (6, False)]
    lines = NODES_TEXT.rstrip() + " Comment=x\nNodeName=evil CPUTot=3\nNodeName=aduqw-n1 Sockets=7\n"
    assert [node.name for node in read_nodes(lines)] == ["aduqw-n1", "aduqw-n2"]


def test_partitions_have_their_nodes_and_multiplicity() -> None:
    [main] = read_partitions(PARTITIONS)
    assert (main.name, main.nodes) == ("main", ("aduqw-n1", "aduqw-n2"))
    assert (main.multiplicity, main.forced, main.is_default, main.is_up) == (2, True, True, True)
    [optional] = read_partitions(PARTITIONS.replace("FORCE:2", "YES:4"))
    assert (optional.multiplicity, optional.forced) == (4, False)
    [alone] = read_partitions(PARTITIONS.replace("FORCE:2", "NO"))
    assert alone.multiplicity == 1


@pytest.mark.parametrize(
    ("printed", "limit_s"),
    [("UNLIMITED", None), ("00:05:00", 300), ("2-01:00:00", 176_400), ("1:2", None), ("", None)],
)
def test_the_longest_time_of_a_partition_is_known(printed: str, limit_s: int | None) -> None:
    [main] = read_partitions(PARTITIONS.replace("MaxTime=UNLIMITED", f"MaxTime={printed}"))
    assert main.most_time_s == limit_s


def test_the_most_nodes_of_a_job_in_a_partition_are_known() -> None:
    assert read_partitions(PARTITIONS)[0].most_nodes is None
    [main] = read_partitions(PARTITIONS.replace("MaxNodes=UNLIMITED", "MaxNodes=4"))
    assert main.most_nodes == 4


def test_a_partition_whose_nodes_are_no_host_list_is_an_error() -> None:
    with pytest.raises(ClusterError, match="host list"):
        read_partitions(PARTITIONS.replace("Nodes=aduqw-n[1-2]", "Nodes=@all"))


def test_configuration_is_a_mapping() -> None:
    config = read_config((FIXTURES / "config.txt").read_text())
    assert (config["SLURM_VERSION"], config["MessageTimeout"]) == ("22.05.8", "10 sec")


def test_what_says_when_jobs_start_is_kept_as_one_line_of_bounded_length() -> None:
    kept = scheduling_config(read_config((FIXTURES / "config.txt").read_text()))
    assert kept["SchedulerType"] == "sched/backfill"
    assert {"SchedulerParameters", "PriorityType", "Epilog", "CompleteWait"} <= kept.keys()
    assert not {"SlurmUser", "StateSaveLocation", "AuthInfo", "AccountingStoragePass"} & kept.keys()
    hostile = {"SchedulerParameters": "x\n\x1b[31m" + "y" * 10_000, "Other": "z"}
    [value] = scheduling_config(hostile).values()
    assert value.isprintable()
    assert len(value) <= 2048


NAMES = st.lists(
    st.from_regex(r"\A[a-z]{1,3}-?(0[0-9]|[1-9][0-9]{0,2})\Z"), min_size=1, max_size=30, unique=True
)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("(null)", ()),
        ("n1", ("n1",)),
        ("n[1-3,7],x9", ("n1", "n2", "n3", "n7", "x9")),
        ("n[08-10]", ("n08", "n09", "n10")),
        ("n[8-10]", ("n8", "n9", "n10")),
        ("r[1-2]n[01-02].a-b", ("r1n01.a-b", "r1n02.a-b", "r2n01.a-b", "r2n02.a-b")),
        ("n[1-2],n2,n1", ("n1", "n2")),
    ],
)
def test_what_slurm_prints_is_expanded_in_its_order(text: str, hosts: tuple[str, ...]) -> None:
    assert expand_hosts(text) == hosts


@given(NAMES)
def test_folded_names_expand_to_themselves(names: list[str]) -> None:
    assert sorted(expand_hosts(fold_hosts(names))) == sorted(names)


@pytest.mark.parametrize(
    "bad",
    [
        "n[1-",
        "n[3-1]",
        "n[]",
        "n1,",
        ",n1",
        "n1,,n2",
        "n1\n",
        "n 1",
        "@all",
        "n1,@x",
        "@x';touch /tmp/x;'",
        "n1!n2",
        "n1&n2",
        "n1^n2",
        "n[1-3/2]",
        "n%s",
        "n*",
        "n[1-x]",
        "n[000x133]",
        "n[1][",
        "-n",
        ".n",
        "n[1-4000000000]",
        "ñ1",
        "n[\u0661-\u0662]",
        "a" * 256,
        "n[1-2]" * 17 + "n1",
    ],
)
def test_what_is_no_host_list_says_so_in_a_line(bad: str) -> None:
    with pytest.raises(ClusterError, match="cannot be read as a") as caught:
        expand_hosts(bad)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("bad", ["@g", "n[1-2]", "a,b", "n1\n", "", "@x';touch /tmp/x;'"])
def test_only_host_names_are_folded(bad: str) -> None:
    with pytest.raises(ClusterError, match="cannot be read as a host name"):
        fold_hosts(["n1", bad])


def test_no_host_list_runs_a_program(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    for text in (f"@x';touch {proof};'", f"@x';touch${{IFS}}{proof};'", f"n1,@x';touch\t{proof};'"):
        with pytest.raises(ClusterError):
            expand_hosts(text)
        with pytest.raises(ClusterError):
            fold_hosts([text])
    assert not proof.exists()


@pytest.mark.parametrize(
    "text",
    [
        "n[0-99999999]",
        "n[0-999][0-999]",
        "n[0-65534],m[0-9]",
        pytest.param("n," * 70_000 + "n", marks=pytest.mark.slow),
    ],
)
def test_the_size_of_a_host_list_is_bounded_before_it_is_made(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ClusterError, match="cannot be read as a host list"):
            expand_hosts(text)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert len(expand_hosts(f"n[1-{MOST_HOSTS}]")) == MOST_HOSTS


def test_id_lists_expand() -> None:
    assert expand_ids("0-3,7") == (0, 1, 2, 3, 7)
    assert expand_ids("65535") == (65_535,)


@pytest.mark.parametrize(
    "bad",
    ["", "1-x", "3-1", "-1", "1,", "+1", " 1", "1_0", "1\n", "\u0661", "0-3000000", "65536", "0-9999999999"],
)
def test_what_is_no_id_list_says_so(bad: str) -> None:
    with pytest.raises(ClusterError, match="cannot be read as a"):
        expand_ids(bad)


def test_the_size_of_an_id_list_is_bounded_before_it_is_made() -> None:
    tracemalloc.start()
    try:
        for bomb in ("0-3000000", ",".join(["0-65535"] * 1000)):
            with pytest.raises(ClusterError, match="an id list"):
                expand_ids(bomb)
        with pytest.raises(ClusterError, match="beyond the 4 ids"):
            expand_ids("0-4", below=4)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
