"""Points that are replayed: which cluster each wants, what a failure takes with it, what a key follows."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from deploy.local import GangKind, Shape
from foundation.errors import UsageError
from osub.sweep import replays
from osub.sweep.points import Point, point_of
from osub.sweep.replays import ByKind, SweepReplays, shape_of
from osub.sweep.spec import Parameters, read_spec
from osub.sweep.workers import KILLED, Failure, Processes
from tests.fixtures import sweep_work
from tests.fixtures.real_runs import real_run

SWF = "1 0 -1 3 1 -1 -1 1 10 -1 1 1 1 -1 1 -1 -1 -1\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (path := tmp_path / "log.swf").write_text(SWF)
    return path


def spec_of(tmp_path: Path, text: str) -> list[Parameters]:
    (path := tmp_path / "sweep.toml").write_text(text)
    return read_spec(path).combinations()


class NoCluster:
    """Stands for the embedded cluster, and notes what shapes it had."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[Shape | None] = []

    def up(self, shape: Shape) -> None:
        self.seen.append(shape)

    def down(self) -> None:
        self.seen.append(None)


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[SweepReplays, NoCluster, list[list[str]]]:
    commands: list[list[str]] = []

    def ended(command: list[str]) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        seed = command[command.index("--seed") + 1] if "--seed" in command else "1"
        if seed == "3":
            return subprocess.CompletedProcess(command, 1, "", "osub: Slurm took no job of this trace\n")
        if seed == "4":
            return subprocess.CompletedProcess(command, -9, "", "")
        reported = {"finished": True, "states": {"COMPLETED": 1}}
        return subprocess.CompletedProcess(command, 0, json.dumps(reported), "")

    monkeypatch.setattr(replays, "_ended", ended)
    monkeypatch.setattr(replays, "figures_of_run", lambda path: {"wait_mean_s": 1.0})
    made = SweepReplays(tmp_path / "out")
    cluster = NoCluster(tmp_path / "out" / "cluster")
    made._own = cluster  # type: ignore[assignment]
    return made, cluster, commands


def points(trace: Path, *several: Parameters) -> list[Point]:
    base: Parameters = {"kind": "replay", "trace": str(trace), "system": "N2C1"}
    return [point_of(base | one) for one in several]


def test_points_of_one_shape_share_a_cluster_and_it_ends_with_the_last(
    trace: Path, team: tuple[SweepReplays, NoCluster, list[list[str]]]
) -> None:
    made, cluster, commands = team
    asked = points(
        trace,
        {"multiplicity": 1, "seed": 1},
        {"multiplicity": 2, "gang": "osub"},
        {"multiplicity": 1, "seed": 2},
    )
    ended = list(made.run(asked))
    assert [point.key for point, _ in ended] == [asked[0].key, asked[2].key, asked[1].key]
    assert all(isinstance(outcome, dict) and outcome["wait_mean_s"] == 1.0 for _, outcome in ended)
    shapes = [shape for shape in cluster.seen if shape is not None]
    assert [(shape.multiplicity, shape.gang) for shape in shapes] == [
        (1, GangKind.NONE),
        (1, GangKind.NONE),
        (2, GangKind.OSUB),
    ]
    assert cluster.seen[-1] is None
    assert all("--force" in words for words in commands)


def test_variables_of_a_point_reach_its_replay(
    trace: Path, team: tuple[SweepReplays, NoCluster, list[list[str]]]
) -> None:
    made, _, commands = team
    list(made.run(points(trace, {"export": "FI_PROVIDER=verbs TOKEN=x"}, {})))
    exported = [[after for word, after in pairwise(words) if word == "--export"] for words in commands]
    assert exported == [["FI_PROVIDER=verbs", "TOKEN=x"], []]


def test_a_replay_that_fails_takes_no_other_with_it(
    trace: Path, team: tuple[SweepReplays, NoCluster, list[list[str]]]
) -> None:
    made, _, _ = team
    asked = points(trace, {"seed": 2}, {"seed": 3}, {"seed": 4}, {"multiplicity": 9}, {"gang": "no"})
    ended = {point.key: outcome for point, outcome in made.run(asked)}
    good, refused, killed, never, strange = (ended[point.key] for point in asked)
    assert isinstance(good, dict)
    assert (good["completed"], good["run"]) == (1, f"runs/{asked[0].key}")
    assert refused == Failure("Slurm took no job of this trace", again=False)
    assert killed == KILLED
    assert isinstance(never, dict)
    assert "must be 1 to 8" in str(never["error"])
    assert isinstance(strange, dict)
    assert "no cluster can be made" in str(strange["error"])


def test_on_a_cluster_that_is_there_an_unfinished_run_goes_on(
    trace: Path, tmp_path: Path, team: tuple[SweepReplays, NoCluster, list[list[str]]]
) -> None:
    made, cluster, commands = team
    (asked,) = points(trace, {"cluster": str(tmp_path / "theirs")})
    (begun := tmp_path / "out" / "runs" / asked.key).mkdir(parents=True)
    (begun / "run.json").touch()
    list(made.run([asked]))
    assert [shape for shape in cluster.seen if shape is not None] == []
    assert ["--resume" in words for words in commands] == [True]
    assert commands[0][commands[0].index("--cluster") + 1] == str(tmp_path / "theirs")


def test_a_cluster_in_containers_is_asked_for_a_run_that_was_not_copied(
    trace: Path,
    tmp_path: Path,
    team: tuple[SweepReplays, NoCluster, list[list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, _, commands = team
    monkeypatch.setattr(replays, "is_in_containers", lambda _: True)
    (asked,) = points(trace, {"cluster": str(tmp_path / "theirs")})
    place = tmp_path / "out" / "runs" / asked.key
    place.parent.mkdir(parents=True)
    real_run(place, [("batch", 0, 0.2, 1.2, 12.2, 10, "0")])
    ((_, outcome),) = made.run([asked])
    assert ["--resume" in words for words in commands] == [True]
    assert isinstance(outcome, dict)
    assert outcome["completed"] == 1


def test_simulations_come_before_replays(
    trace: Path, tmp_path: Path, team: tuple[SweepReplays, NoCluster, list[list[str]]]
) -> None:
    made, _, _ = team
    mixed: Sequence[Point] = [
        *points(trace, {"seed": 1}),
        point_of({"trace": str(trace), "system": "N2C1", "multiplicity": 2}),
    ]
    ended = [point for point, _ in ByKind(Processes(sweep_work.figures, 1), made).run(mixed)]
    assert [point.parameters.get("kind") for point in ended] == [None, "replay"]


def test_a_sweep_of_both_kinds_gives_each_what_it_takes(trace: Path, tmp_path: Path) -> None:
    found = spec_of(
        tmp_path,
        f'[base]\ntrace = "{trace.name}"\nsystem = "N2C1"\ngang = "osub"\noverhead = 1.1\n'
        '[grid]\nkind = ["simulate", "replay"]\nmultiplicity = [1, 2]\n',
    )
    simulated = [point for point in found if point["kind"] == "simulate"]
    replayed = [point for point in found if point["kind"] == "replay"]
    assert len(simulated) == len(replayed) == 2
    assert all("gang" not in point and point["overhead"] == 1.1 for point in simulated)
    assert all(point["gang"] == "osub" and "overhead" not in point for point in replayed)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('kind = "replay"\noverhead = 1.1\n', "overhead is nothing that a point of kind replay takes"),
        ('gang = "osub"\n', "gang is nothing that a point of kind simulate takes"),
        ('kind = "dream"\n', "a point's kind is simulate or replay, not dream"),
        ('kind = "replay"\n[base.set]\nwindow = 1\n', "set.window is nothing"),
    ],
)
def test_what_a_kind_does_not_take_is_refused(trace: Path, tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spec_of(tmp_path, f'[base]\ntrace = "{trace.name}"\nsystem = "N2C1"\n{lines}')


def test_a_replay_s_key_follows_the_model_that_keeps_jobs_apart(trace: Path, tmp_path: Path) -> None:
    (model := tmp_path / "model.json").write_text("{}")
    (one,) = points(trace, {"pairing": str(model)})
    model.write_text("{ }")
    (other,) = points(trace, {"pairing": str(model)})
    (simulated,) = [point_of({"trace": str(trace), "system": "N2C1"})]
    assert len({one.key, other.key, simulated.key}) == 3


def test_a_shape_is_what_the_parameters_say() -> None:
    asked: Parameters = {"system": "N4C2", "virtual": True, "multiplicity": 2, "gang": "slurm"}
    shape = shape_of(asked | {"queues": "mq", "interactive_nodes": 1, "multiplicity_interactive": 3})
    assert (shape.nodes, shape.cores, shape.gang, shape.interactive_count) == (4, 2, GangKind.SLURM, 1)
    with pytest.raises(UsageError):
        shape_of({"system": "nowhere"})
