"""Waiting for a cluster in containers: until it is whole, as long as anything moves, and what is said."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from deploy.compose.cluster import StuckError, wait_until_whole
from deploy.compose.engine import Engine, EngineName, find_engine
from deploy.compose.inside.slurm_says import Ready
from deploy.compose.plan import ComposeState
from deploy.shape import GangKind, Shape
from foundation.errors import ClusterError
from tests.fixtures.fake_engine import FakeEngine

HOME = "/somewhere"
STATE = ComposeState(
    home=HOME,
    engine=EngineName.DOCKER,
    debian=13,
    shape=Shape(nodes=2, cores=1, virtual=True, gang=GangKind.OSUB),
    most_nodes=64,
    memory_mib=65536,
    accounting=False,
)
NODES = tuple(f"{STATE.cluster}-node-{number}" for number in (1, 2))
WHOLE = Ready(2, 2, 2, NODES)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("deploy.compose.cluster._POLL_S", 0.0)
    made = FakeEngine(tmp_path)
    for name, role in [(f"{STATE.cluster}-controller-1", "controller"), *((one, "node") for one in NODES)]:
        made.add(name, role, HOME, STATE.cluster)
    return made


def engine() -> Engine:
    return find_engine(EngineName.DOCKER, with_compose=False)


def told(*looks: Ready) -> list[str]:
    return [json.dumps(asdict(one)) for one in looks]


def known(*names: str) -> str:
    """Return what Slurm says of its nodes."""
    rest = "CPUAlloc=0 CPUTot=1 Sockets=1 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=1 State=IDLE"
    return "".join(f"NodeName={name} {rest} NodeAddr=10.0.0.2\n" for name in names)


def test_it_waits_until_every_node_is_idle_with_an_agent(fake: FakeEngine) -> None:
    looks = (Ready(0, 0, 0), Ready(1, 2, 0), Ready(2, 2, 1, NODES[:1]), WHOLE)
    fake.change(answers={"ready": told(*looks), "scontrol": [known(*NODES)]})
    said: list[str] = []
    wait_until_whole(engine(), STATE, said.append)
    assert said == ["0 of 2 nodes are idle", "1 of 2 nodes is idle", "1 of 2 agents has joined"]


def test_a_node_whose_container_is_gone_is_forgotten_before_it_counts(fake: FakeEngine) -> None:
    gone = f"{STATE.cluster}-node-3"
    fake.change(
        answers={
            "ready": told(WHOLE),
            "scontrol": [known(NODES[0], gone), known(*NODES)],
            "sh": ["done"],
            "clear": ["done"],
        }
    )
    wait_until_whole(engine(), STATE, lambda _: None)
    [forget] = [call for call in fake.calls("exec") if "sh" in call]
    assert f"for node in {gone}; do" in forget[-1]
    assert [call[-1] for call in fake.calls("exec") if "clear" in call] == [gone]


def test_it_is_not_whole_while_slurm_does_not_say_whom_it_knows(fake: FakeEngine) -> None:
    fake.change(answers={"ready": told(WHOLE)})
    with pytest.raises(StuckError, match="nothing has moved for 0 s"):
        wait_until_whole(engine(), STATE, lambda _: None, stuck_s=0.0)


def test_who_is_waited_for_is_named_with_its_last_words_and_its_log(fake: FakeEngine) -> None:
    fake.change(
        answers={"ready": told(Ready(2, 2, 1, NODES[:1])), "scontrol": [known(*NODES)]},
        logs="osub: still waiting\nosub: the agent is\tlate\n",
    )
    said: list[str] = []
    with pytest.raises(StuckError) as error:
        wait_until_whole(engine(), STATE, said.append, stuck_s=0.0)
    assert said[-1].startswith(f"1 of 2 agents has joined; {NODES[1]} said last: osub: the agent is")
    assert f"`docker logs {NODES[1]}` has the rest" in str(error.value)
    assert f"`osub cluster status --state {HOME}`" in str(error.value)
    assert set(fake.read()["containers"]) == {f"{STATE.cluster}-controller-1", *NODES}, "left as they are"


@pytest.mark.parametrize("answers", [{}, {"ready": told(Ready(0, 0, 0))}, {"ready": ["Traceback"]}])
def test_while_slurm_knows_no_node_its_controller_is_asked_for(
    fake: FakeEngine, answers: dict[str, list[str]]
) -> None:
    fake.change(answers=answers)
    with pytest.raises(StuckError, match=f"`docker logs {STATE.cluster}-controller-1` has the rest"):
        wait_until_whole(engine(), STATE, lambda _: None, stuck_s=0.0)


def test_a_container_that_does_not_live_ends_the_waiting(fake: FakeEngine) -> None:
    fake.add(NODES[0], "node", HOME, STATE.cluster, Status="exited", ExitCode=1)
    fake.change(logs="osub: no freezer\n")
    with pytest.raises(ClusterError, match=f"{NODES[0]} does not live: osub: no freezer") as error:
        wait_until_whole(engine(), STATE, lambda _: None)
    assert not isinstance(error.value, StuckError)
