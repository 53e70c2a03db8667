"""Failure traces: read with bounds, refused in one line, drawn the same way every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foundation.errors import InputError, UsageError
from simulator.model.system import FAR_US, Failing, Outage, read_outages

HOUR_US = 3_600_000_000


@pytest.fixture
def trace(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "failures.csv"
    path.write_bytes(request.param.encode() if isinstance(request.param, str) else request.param)
    return path


@pytest.mark.parametrize("trace", ["node,down_s,up_s\nn2,10,20.5\nn1,3,\nn2,20.5,21\n"], indirect=True)
def test_a_trace_is_read_in_order_of_time(trace: Path) -> None:
    assert read_outages(trace, 2) == (
        Outage(3_000_000, FAR_US, 0),
        Outage(10_000_000, 20_500_000, 1),
        Outage(20_500_000, 21_000_000, 1),
    )


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("", ":1: no column node, down_s, up_s"),
        ("n1,2,3\n", ":1: no column node, down_s, up_s"),
        ("node,down_s,up_s\nn3,1,2\n", ":2: node: there is no node 'n3'; they are n1 to n2"),
        ("node,down_s,up_s\nn0,1,2\n", ":2: node: there is no node"),
        ("node,down_s,up_s\n1,1,2\n", ":2: node: there is no node"),
        ("node,down_s,up_s\nn1,1\n", ":2: 2 cells"),
        ("node,down_s,up_s\nn1,one,2\n", ":2: down_s: 'one' is no number"),
        ("node,down_s,up_s\nn1,-1,2\n", ":2: down_s: '-1' is no number"),
        ("node,down_s,up_s\nn1,1,nan\n", ":2: up_s: 'nan' is no number"),
        ("node,down_s,up_s\nn1,1,1e300\n", ":2: up_s: '1e300' is no number"),
        ("node,down_s,up_s\nn1,5,5\n", ":2: up_s: the node is up again at 5 s, not after"),
        ("node,down_s,up_s\nn1,5,9\nn2,1,2\nn1,8,12\n", ":4: n1 goes down while it is down already"),
        ("node,down_s,up_s\nn1,5,\nn1,8,12\n", ":3: n1 goes down while it is down already"),
        (b"node,down_s,up_s\nn1,5,\xff\n", "is no text in UTF-8"),
        ('node,down_s,up_s\nn1,"5\n', ":2: no CSV"),
    ],
    indirect=["trace"],
)
def test_a_trace_that_cannot_be_is_refused_in_one_line(trace: Path, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_outages(trace, 2)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_outages(tmp_path / "absent.csv", 2)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [1.0, 0.7])
def test_nodes_are_up_for_the_mean_time_and_down_for_the_mean_repair(shape: float) -> None:
    outages = Failing(mtbf_h=50, repair_h=2, shape=shape, seed=3).outages(200, 10_000 * HOUR_US)
    down_h = np.mean([outage.up_us - outage.down_us for outage in outages]) / HOUR_US
    assert down_h == pytest.approx(2, rel=0.03)
    assert len(outages) / 200 * (50 + 2) == pytest.approx(10_000, rel=0.05)


def test_a_longer_horizon_only_adds_outages_and_other_seeds_give_others() -> None:
    failing = Failing(mtbf_h=5, seed=3)
    short = failing.outages(20, 50 * HOUR_US)
    assert short == tuple(o for o in failing.outages(20, 500 * HOUR_US) if o.down_us < 50 * HOUR_US)
    assert short != Failing(mtbf_h=5, seed=4).outages(20, 50 * HOUR_US)


@pytest.mark.parametrize(
    "words",
    [{"mtbf_h": 0}, {"mtbf_h": float("nan")}, {"mtbf_h": 5, "repair_h": 0}, {"mtbf_h": 5, "shape": 99}],
)
def test_settings_that_cannot_be_are_refused(words: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Failing(**words)  # type: ignore[arg-type]
