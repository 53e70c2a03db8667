"""The models against what was published or measured of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fixtures.golden import named, small_and_whole, whole_or_small
from workloads.swf import load_columns
from workloads.trace.models.generated_trace import (
    BATCH,
    INTERACTIVE,
    TYPELESS,
    LublinParameters,
    follow_the_day,
    sample_gaps,
    sample_runs_s,
    sample_sizes,
    slot_weights,
)
from workloads.trace.models.interactive_jobs import sample_sessions_s, synthesize_patterns, utilisation

LUBLIN_256 = "lublin_256.swf.gz"

Sample = NDArray[np.float64] | NDArray[np.int64]


def distance(one: Sample, other: Sample) -> float:
    """Return the two-sample Kolmogorov-Smirnov distance."""
    points = np.unique(np.concatenate((one, other)))
    shares = [np.searchsorted(np.sort(sample), points, side="right") / len(sample) for sample in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def _gaps(submits_s: NDArray[np.float64]) -> NDArray[np.float64]:
    seconds = np.floor(submits_s)
    return seconds[1:] - seconds[:-1]


def critical(one: Sample, other: Sample) -> float:
    """Return the distance that samples of one distribution exceed once in a thousand."""
    return 1.95 * float(np.sqrt(1 / len(one) + 1 / len(other)))


@pytest.mark.parametrize("log", small_and_whole(LUBLIN_256), ids=named)
def test_lublin_model_draws_from_the_distributions_of_its_authors_program(log: Path) -> None:
    reference = load_columns(log).frame
    rng = np.random.default_rng(20)
    sizes = sample_sizes(TYPELESS, 20_000, 256, rng)
    runs_s = sample_runs_s(TYPELESS, sizes, rng)
    submits_s = follow_the_day(np.cumsum(sample_gaps(TYPELESS, 20_000, rng)), slot_weights(TYPELESS))
    samples: dict[str, tuple[Sample, Sample]] = {
        "size": (sizes, reference["allocated_procs"].to_numpy()),
        "run time": (runs_s, reference["run_s"].to_numpy()),
        "gap between arrivals": (
            _gaps(submits_s),
            _gaps(reference["submit_s"].to_numpy()),
        ),
    }
    report = {name: (distance(*pair), critical(*pair)) for name, pair in samples.items()}
    print({name: f"KS {found:.4f}, critical (0.1 %) {limit:.4f}" for name, (found, limit) in report.items()})
    assert all(found < limit for found, limit in report.values()), report


def test_lublin_model_follows_the_course_of_the_day_of_its_authors_program() -> None:
    # arrivals come in bursts, so the day's course varies much more than independent arrivals would: what the
    # model's own samples differ among each other is the measure
    submits_s = load_columns(whole_or_small(LUBLIN_256)).frame["submit_s"].to_numpy()
    # the authors' program drops the fraction of a second at every arrival while its day goes on in full,
    # so its arrivals drift by half a second each
    reference = (submits_s + 0.5 * np.arange(len(submits_s))) % 86_400
    samples = []
    for seed in range(12):
        gaps = sample_gaps(TYPELESS, len(submits_s), np.random.default_rng(seed))
        samples.append(follow_the_day(np.cumsum(gaps), slot_weights(TYPELESS)) % 86_400)
    among = [distance(one, other) for place, one in enumerate(samples) for other in samples[:place]]
    to_reference = [distance(sample, reference) for sample in samples]
    print(f"KS to the reference {np.mean(to_reference):.4f}, among own samples {np.mean(among):.4f}")
    assert np.mean(to_reference) < np.percentile(among, 95)


@pytest.mark.parametrize("model", [TYPELESS, BATCH, INTERACTIVE])
def test_sizes_have_the_published_shares(model: LublinParameters) -> None:
    sizes = sample_sizes(model, 50_000, 128, np.random.default_rng(4))
    serial = np.mean(sizes == 1)
    # two-stage uniform sizes can round to 1 or to a power of two by themselves
    assert model.serial_share - 0.01 < serial < model.serial_share + 0.08
    power = np.mean((sizes > 1) & (sizes & (sizes - 1) == 0))
    assert power > model.power_of_two_share - 0.08


@pytest.mark.parametrize("model", [TYPELESS, BATCH, INTERACTIVE])
def test_run_times_have_the_moments_of_their_gamma_distributions(model: LublinParameters) -> None:
    ones = np.ones(200_000, dtype=np.int64)
    logs = np.log(sample_runs_s(model, ones, np.random.default_rng(5)) + 0.5)
    first = min(1.0, max(0.0, model.pa + model.pb))
    mean = first * np.prod(model.gamma_run_1) + (1 - first) * np.prod(model.gamma_run_2)
    assert logs.mean() == pytest.approx(mean, rel=0.05)


def test_interactive_jobs_have_the_measured_statistics() -> None:
    rng = np.random.default_rng(6)
    sessions_s = sample_sessions_s(30_000, rng)
    patterns = synthesize_patterns(sessions_s, rng)
    shares = np.array([utilisation(pattern) for pattern in patterns])
    counts = np.array([len(pattern.activations_s) for pattern in patterns])
    longest_s = np.array([max(pattern.activations_s, default=0) for pattern in patterns])
    print(
        f"90th percentile {np.percentile(sessions_s, 90) / 3600:.2f} h (5.2), "
        f"under 10 % {np.mean(shares < 0.1):.3f} (0.71), under 1 % {np.mean(shares < 0.01):.3f} (0.37), "
        f"under 10 busy periods {np.mean(counts < 10):.3f}, most {counts.max()} (94), "
        f"longest busy period, 54th percentile {np.percentile(longest_s, 54):.0f} s (30), "
        f"longest {longest_s.max()} s (46715)"
    )
    assert np.percentile(sessions_s, 90) == pytest.approx(5.2 * 3600, rel=0.06)
    assert np.mean(shares < 0.10) == pytest.approx(0.71, abs=0.02)
    assert np.mean(shares < 0.01) == pytest.approx(0.37, abs=0.02)
    assert np.mean(counts < 10) > 0.5
    assert counts.max() == 94
    assert np.percentile(longest_s, 54) == pytest.approx(30, abs=4)
    for hours in (1, 2, 4, 6, 12):
        at_limit = np.mean((sessions_s >= hours * 3600) & (sessions_s < hours * 3600 + 60))
        beside = np.mean((sessions_s >= hours * 3600 + 60) & (sessions_s < hours * 3600 + 120))
        assert at_limit > 5 * beside
