"""Parts of the controller: its record, its state between lives, orders to Slurm, alarms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from foundation.errors import HostError, InputError
from foundation.records import SliceRecord
from gangd.controller.alarms import AlarmBoard, alarms_of, fault_alarm, worded
from gangd.controller.command_executor import CommandExecutor
from gangd.controller.orders import ActiveOrder, OrderTarget
from gangd.controller.slicefiles import NAME
from gangd.controller.slicelog import SliceLog, read_slices
from gangd.controller.state_directory import StateDirectory
from gangd.core import Alarm, SliceRow
from gangd.wire import AgentFault
from gangd.wire.connection_limiter import Denied

# Record


def row(number: int, start_ns: int) -> SliceRow:
    return SliceRow(number, start_ns, 250_000_000, 7, "n1", "run", 1500, -3, 40)


def test_recorded_slices_are_read_in_the_time_of_a_run(tmp_path: Path) -> None:
    log = SliceLog(tmp_path, wall_ms=1_000_000_000.0, monotonic_ns=5_000_000_000)
    log.append([row(1, 4_000_000_000), row(2, 6_500_000_000)])
    log.close()
    assert list(read_slices(tmp_path, 1_000_000.0, {8})) == []
    assert list(read_slices(tmp_path, 1_000_000.0, {7})) == [
        SliceRecord(
            slice=2,
            start_s=1.5,
            length_s=0.25,
            job=7,
            node="n1",
            role="run",
            cpu_s=0.0015,
            skew_us=-3.0,
            freeze_us=40.0,
        )
    ]


def test_a_restarted_controller_goes_on_in_the_same_record(tmp_path: Path) -> None:
    for wall_ms, start_ns in ((1_000_000.0, 0), (2_000_000.0, 1_000_000_000)):
        log = SliceLog(tmp_path, wall_ms, start_ns)
        log.append([row(0, start_ns)])
        log.close()
    assert [record.start_s for record in read_slices(tmp_path, 1000.0)] == [0.0, 1000.0]


def test_a_torn_line_is_skipped_and_a_foreign_file_refused(tmp_path: Path) -> None:
    log = SliceLog(tmp_path, 0.0, 0)
    log.append([row(0, 0)])
    log.close()
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes() + b'[1, 2, "to')
    assert len(list(read_slices(path, 0.0))) == 1
    later = SliceLog(tmp_path, 5000.0, 0)
    later.append([row(9, 0)])
    later.close()
    assert [(record.slice, record.start_s) for record in read_slices(path, 0.0)] == [(0, 0.0), (9, 5.0)]
    path.write_bytes(msgspec.json.encode((0, 0, 1, 7, "n1", "run", None, 0, 0)))
    with pytest.raises(InputError, match="anchor"):
        list(read_slices(path, 0.0))
    with pytest.raises(InputError, match="cannot read"):
        list(read_slices(tmp_path / "missing", 0.0))


# Keeper


def test_a_second_controller_is_kept_away_and_a_later_one_starts_later(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path)
    one = first.begin(1000)
    with pytest.raises(HostError, match="another gangd"):
        StateDirectory(tmp_path)
    first.state.limits = {"7": {"base_s": 1.0}}
    first.save()
    first.close()
    second = StateDirectory(tmp_path)
    assert second.state.limits == {"7": {"base_s": 1.0}}
    other = second.begin(10)
    assert other.started_ns > one.started_ns, "although the clock was set back"
    assert other.incarnation != one.incarnation
    second.close()


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (b"{ not json", []),
        (b"", []),
        (b'{"version":2,"orders":[GOOD]}', ["n1"]),
        (b'{"limits":{"7":{"base_s":"x"}},"orders":[{"what":"dance"},GOOD]}', ["n1"]),
        (b'{"orders":{}}', []),
    ],
)
def test_a_damaged_state_file_is_kept_aside_with_what_orders_it_has(
    tmp_path: Path, content: bytes, kept: list[str]
) -> None:
    good = ActiveOrder(what="pause", target=OrderTarget("node", "n1"), since_s=1.0, uid=0, by="root")
    content = content.replace(b"GOOD", msgspec.json.encode(good))
    (tmp_path / "controller.json").write_bytes(content)
    keeper = StateDirectory(tmp_path)
    assert keeper.state.limits == {}
    assert [order.target.name for order in keeper.state.orders] == kept
    assert (tmp_path / "controller.damaged-1.json").read_bytes() == content
    assert keeper.damaged is not None
    keeper.begin(1)
    keeper.close()
    (tmp_path / "controller.json").write_bytes(content)
    again = StateDirectory(tmp_path)
    assert (tmp_path / "controller.damaged-2.json").read_bytes() == content, "an earlier one stays"
    again.close()
    (tmp_path / "controller.json").unlink(missing_ok=True)
    later = StateDirectory(tmp_path)
    assert later.damaged is not None, "also after a restart"
    for path in tmp_path.glob("controller.damaged-*"):
        path.unlink()
    assert later.damaged is None
    later.close()


# Orders


def test_a_refusal_to_move_the_end_of_a_job_that_runs_is_an_alarm() -> None:
    nothing: Any = None
    orders = CommandExecutor(nothing, nothing, nothing, nothing, None, lambda: 7)
    orders.on_moved({1: 5.0}, {2: "Job is not running for job 2", 3: "Invalid job id specified for job 3"})
    assert orders.alarms.standing(7) == []
    orders.on_moved({}, {2: "Access/permission denied for job 2"})
    [alarm] = orders.alarms.standing(7)
    assert (alarm.kind, alarm.job) == ("limits", 2)
    assert "Access/permission denied" in alarm.text


# Alarms


def test_an_alarm_is_news_once_and_again_after_its_end() -> None:
    board = AlarmBoard()
    assert board.raise_(Alarm("slurm", "slurm", "away"), None, 0)
    assert not board.raise_(Alarm("slurm", "slurm", "still away"), None, 5)
    assert [(one.text, one.since_ns, one.count) for one in board.standing(6)] == [("still away", 0, 2)]
    assert board.clear("slurm", "slurm")
    assert not board.clear("slurm", "slurm")
    assert board.raise_(Alarm("slurm", "slurm", "away"), None, 9)
    assert board.standing(10**15) == []


def test_an_alarm_names_the_job_the_user_and_the_nodes_that_caused_it() -> None:
    board = AlarmBoard()
    stopped = Alarm("foreign freeze", "7", "it was stopped", job=7, nodes=("n1", "n2"))
    board.raise_(stopped, "alice", 0)
    board.raise_(stopped, None, 1)  # Slurm does not list it any more
    [alarm] = board.standing(2)
    assert (alarm.job, alarm.user, alarm.nodes) == (7, "alice", ("n1", "n2"))
    assert alarm.text == "job 7 of user alice on n1, n2: it was stopped"
    many = Alarm("fault", "stray", "strays", nodes=tuple(f"n{number}" for number in range(8)))
    assert worded(many) == "n0, n1, n2, n3, n4 and 3 more: strays"
    assert worded(Alarm("slurm", "slurm", "away")) == "away"


def test_faults_that_need_something_done_are_alarms_of_their_job_and_node() -> None:
    alarm = fault_alarm("n1", AgentFault("freeze_failed", 3, "step 7.0 does not freeze\x1b[2J", 7))
    assert alarm is not None
    assert (alarm.kind, alarm.job, alarm.nodes) == ("fault", 7, ("n1",))
    assert "\x1b" not in alarm.text
    other = fault_alarm("n2", AgentFault("freeze_failed", 1, "step 7.0 does not freeze", 7))
    assert other is not None
    assert other.subject != alarm.subject
    stray = fault_alarm("n1", AgentFault("stray", 1, "2 processes of user 1000 run outside of jobs"))
    assert stray is not None
    assert (stray.job, stray.nodes) == (None, ("n1",))
    assert fault_alarm("n1", AgentFault("late_switch", 9, "slice 3 began 12 ms late")) is None


def test_alarms_without_number_are_not_kept() -> None:
    board = AlarmBoard()
    for number in range(3_000):
        board.raise_(Alarm("door", str(number), "shut out"), None, number)
        board.raise_(Alarm("slurm", "slurm", "away"), None, number)
    standing = board.standing(3_000)
    assert len(standing) <= 1_000
    assert "slurm" in {one.kind for one in standing}, "what is seen all the time stays"
    assert "2999" in {one.subject for one in standing}


def test_of_much_at_the_limit_the_first_few_are_named() -> None:
    news = [Denied(f"10.0.0.{number}", 1) for number in range(100)]
    alarms = alarms_of(news)
    assert [alarm.subject for alarm in alarms] == [*(f"10.0.0.{number}" for number in range(10)), "others"]
    assert "90 other addresses" in alarms[-1].text
    assert alarms_of(news[:10]) == alarms[:10]
