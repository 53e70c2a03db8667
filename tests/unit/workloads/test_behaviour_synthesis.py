from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from foundation.errors import HostError, UsageError
from osub.cli.main import run
from workloads.behaviour.pattern_synthesis import decode, encode, synthesize
from workloads.behaviour.recording_library import behaviour_statistics, pattern_trace, read_library, sampled
from workloads.behaviour.utilisation_series import write_series
from workloads.swf import InteractivePattern, write_swf
from workloads.trace.models.interactive_jobs import sample_sessions_s, synthesize_patterns


def recorded(count: int = 60) -> list[InteractivePattern]:
    rng = np.random.default_rng(11)
    return synthesize_patterns(sample_sessions_s(count, rng), rng)


def short_and_long() -> list[InteractivePattern]:
    """Two kinds: a minute with three short busy periods, and hours with a single long one."""
    short = [InteractivePattern(20 + n, 20, (5, 6, 5), (4, 5)) for n in range(10)]
    return short + [InteractivePattern(100, 50, (9000 + 10 * n,), ()) for n in range(10)]


@pytest.mark.parametrize(
    "pattern",
    [
        InteractivePattern(10, 20, (5, 30), (15,)),
        InteractivePattern(0, 0, (7,), ()),
        InteractivePattern(3600, 0, (), ()),
    ],
)
def test_encoded_patterns_come_back(pattern: InteractivePattern) -> None:
    assert decode(encode(pattern)) == pattern


def test_averages_that_lose_a_period_get_the_shortest_one() -> None:
    series = encode(InteractivePattern(10, 20, (5, 30), (15,)))
    series[1], series[2] = -0.5, 0.3
    assert decode(series, 5000) == InteractivePattern(10, 20, (5, 30), (5,))


def test_new_patterns_are_of_the_recorded_kinds_and_not_mixtures_of_them() -> None:
    pytest.importorskip("dtaidistance", reason="needs the extra 'traces'")
    made = synthesize(short_and_long(), 40, seed=3, clusters=2)
    assert made.cluster_sizes == (10, 10)
    kinds = {(len(pattern.activations_s), pattern.total_s > 1000) for pattern in made.patterns}
    assert kinds == {(3, False), (1, True)}
    assert len(set(made.patterns)) > 20


def test_statistics_of_new_patterns_are_near_those_of_their_sources() -> None:
    pytest.importorskip("dtaidistance", reason="needs the extra 'traces'")
    sources = recorded()
    made = behaviour_statistics(synthesize(sources, 200, seed=1).patterns)
    source = behaviour_statistics(sources)
    assert made is not None
    assert source is not None
    print(source, made)
    assert made.under_10_percent == pytest.approx(source.under_10_percent, abs=0.12)
    assert made.few_periods_share == pytest.approx(source.few_periods_share, abs=0.12)
    assert made.length_p90_s == pytest.approx(source.length_p90_s, rel=0.3)
    assert made.most_periods <= source.most_periods


def test_same_seed_same_patterns_and_the_global_generators_are_left_alone() -> None:
    pytest.importorskip("dtaidistance", reason="needs the extra 'traces'")
    random.seed(5)
    state = random.getstate()
    numpy_state = str(np.random.get_state())
    first = synthesize(recorded(20), 10, seed=4)
    assert random.getstate() == state
    assert str(np.random.get_state()) == numpy_state
    assert first == synthesize(recorded(20), 10, seed=4)
    assert first != synthesize(recorded(20), 10, seed=5)


def test_patterns_that_are_all_alike_can_be_synthesized() -> None:
    pytest.importorskip("dtaidistance", reason="needs the extra 'traces'")
    alike = [InteractivePattern(10, 20, (5, 30), (15,))] * 6
    assert set(synthesize(alike, 5).patterns) == {alike[0]}


@pytest.mark.parametrize(("count", "clusters"), [(0, None), (3, 0), (3, 99)])
def test_impossible_syntheses_are_usage_errors(count: int, clusters: int | None) -> None:
    with pytest.raises(UsageError):
        synthesize(recorded(5), count, clusters=clusters)
    with pytest.raises(UsageError, match="at least 2"):
        synthesize(recorded(1), 3)


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("dtaidistance")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dtaidistance", None)
    with pytest.raises(HostError, match=r"osub\[traces\]"):
        synthesize(recorded(5), 3)


def test_command_prints_statistics_and_makes_a_file_that_is_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("dtaidistance", reason="needs the extra 'traces'")
    folder = tmp_path / "recorded"
    folder.mkdir()
    write_swf(folder / "a.swf", pattern_trace(recorded(12), "recorded"))
    write_series(folder / "b.csv", [sampled("s", InteractivePattern(10, 20, (5, 30), (15,)))])
    assert run(["trace", "patterns", str(folder)]) == 0
    assert "71 %" in capsys.readouterr().out
    out = tmp_path / "new.swf"
    words = ["trace", "patterns", str(folder), "--synthesize", "20", "--out", str(out)]
    assert run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["recordings"], found["synthesized"]["jobs"], sum(found["clusters"])) == (13, 20, 13)
    assert run([*words, "--force"]) == 0
    assert "recorded" in capsys.readouterr().out
    out.rename(folder / "new.swf")
    assert len(read_library(folder).recordings) == 33


def test_command_refuses_half_a_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", "patterns", str(tmp_path), "--synthesize", "3"]) == 2
    assert "go together" in capsys.readouterr().err
    assert run(["trace", "patterns", str(tmp_path / "none")]) == 1
