"""A node in containers: its name, whom it has Slurm forget, and what it does when Slurm does not know it."""

from __future__ import annotations

import pytest

from deploy.compose.inside.node import AddressReporter, outdated
from deploy.compose.inside.settings import NodeName, find_name
from deploy.compose.inside.slurm_says import drained_for, forget, read_addresses
from deploy.compose.inside.supervise import Supervisor


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["osub-abcde-node-3.osub-abcde_cluster"], NodeName("osub-abcde-node-3", 3)),
        (["osub-abcde_node_12.dns.podman"], NodeName("osub-abcde_node_12", 12)),
        (["18f343d20680", "x-node-1"], NodeName("x-node-1", 1)),
        (["controller"], None),
        (["x-node-0"], None),
        (["x-node-1;reboot"], None),
        (["x-node-1\n"], None),
        (["-node-1"], None),
        ([], None),
    ],
)
def test_a_node_has_the_name_that_dns_gives_it(words: list[str], expected: NodeName | None) -> None:
    assert find_name(words) == expected


def test_slurm_forgets_who_had_the_address_before() -> None:
    known = {"c-node-1": "10.0.0.2", "c-node-2": "10.0.0.3", "c-node-3": "10.0.0.4"}
    assert outdated("c-node-4", "10.0.0.3", known, has_left=False) == ["c-node-2"]
    assert outdated("c-node-1", "10.0.0.3", known, has_left=False) == ["c-node-1", "c-node-2"]
    assert outdated("c-node-3", "10.0.0.4", known, has_left=False) == []
    assert outdated("c-node-3", "10.0.0.4", known, has_left=True) == ["c-node-3"]
    assert outdated("c-node-4", "10.0.0.5", known, has_left=True) == []


@pytest.mark.parametrize(
    ("state", "reason", "has_left"),
    [
        ("IDLE+DRAIN+DYNAMIC_NORM", "Reason=its container stops [root@2026-11-24T16:00:00]", True),
        ("DOWN+DRAIN+DYNAMIC_NORM", "Reason=its container stops", True),
        ("IDLE+DRAIN", "Reason=disk [root@2026-11-24T16:00:00]", False),
        ("IDLE+DRAIN", "Reason=its container stops, says he [root@2026-11-24T16:00:00]", False),
        ("DOWN", "Reason=its container stops [root@2026-11-24T16:00:00]", False),
        ("IDLE", "", False),
    ],
)
def test_a_node_that_left_is_distinguished_from_one_that_a_user_drained(
    state: str, reason: str, has_left: bool
) -> None:
    line = f"NodeName=c-node-1 Arch=x86_64 NodeAddr=10.0.0.2 State={state} ThreadsPerCore=1 {reason}\n"
    assert drained_for(line, "its container stops") is has_left
    assert not drained_for("", "its container stops")


def test_a_node_that_has_come_back_meanwhile_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [{"c-node-1": "10.0.0.2"}, {"c-node-1": "10.0.0.9"}]
    told: list[tuple[str, ...]] = []

    def scontrol(*words: str) -> bool:
        told.append(words)
        return words[0] != "delete"

    monkeypatch.setattr("deploy.compose.inside.slurm_says.addresses", lambda: known.pop(0))
    monkeypatch.setattr("deploy.compose.inside.slurm_says.scontrol", scontrol)
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert forget("c-node-1", "10.0.0.2")
    assert [words[0] for words in told] == ["update", "delete"], "once, while it had the old address"
    assert not known


def test_slurmd_of_a_node_that_slurm_does_not_know_is_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, answer = [0.0], [None, {}, {}, {}, {"c-node-1": "10.0.0.2"}]
    ended: list[str] = []
    supervisor = Supervisor.__new__(Supervisor)
    monkeypatch.setattr(Supervisor, "end_one", lambda _, name: ended.append(name))
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    monkeypatch.setattr("deploy.compose.inside.node.own_address", lambda: "10.0.0.2")
    monkeypatch.setattr("deploy.compose.inside.node.addresses", lambda: answer.pop(0))
    address = AddressReporter("c-node-1", supervisor)
    for at_s, expected in ((0.0, 0), (100.0, 0), (130.0, 0), (170.0, 1), (180.0, 1), (400.0, 1)):
        now_s[0] = at_s
        address.look()
        assert len(ended) == expected, at_s
    assert address.registered == "10.0.0.2"
    assert not answer


def test_addresses_are_read_from_what_slurm_prints() -> None:
    text = (
        "NodeName=c-node-1 Arch=x86_64 CPUTot=1 NodeAddr=10.0.0.2 NodeHostName=ab Comment=x NodeAddr=9.9 y\n"
        "No nodes in the system\nNodeName=c-node-2 State=DOWN\n"
    )
    assert read_addresses(text) == {"c-node-1": "10.0.0.2"}
