"""A report of a kind as JSON and as rows of tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from foundation.units import counted
from predictor.model.counter_groups import Clustering
from predictor.model.model_judges import Accuracy, CurveReport, KindReport
from predictor.model.pair_records import Records

SCHEMES = {
    "random": "records drawn at random (the thesis's)",
    "pair": "both orders of a pair on one side",
    "application": "victims never seen",
    "family": "victims' families never seen",
}


def json_of(report: KindReport) -> dict[str, Any]:
    """Return what ``osub predict evaluate --json`` says of a kind."""
    return {
        "records": len(report.records),
        "applications": len(report.records.places),
        "threshold": report.records.threshold,
        "excluded": report.excluded,
        "without_interval": report.single,
        "left_out": dict(report.records.features.left_out),
        "majority": report.majority,
        "twins": report.twins.accuracy,
        **{name: asdict(found) for name, found in report.accuracies.items()},
        "stepwise": {name: asdict(found) for name, found in report.stepwise.items()},
        "nearest": asdict(report.nearest),
        "curves": None if report.curves is None else _curves(report.curves),
        "with_excluded": asdict(report.included),
        "without_dangerous": {
            "records": report.clear_records,
            "majority": report.clear_majority,
            **{name: asdict(found) for name, found in report.clear.items()},
        },
        "cut": report.cut,
        "false_negatives": report.false_negatives,
        "rank_correlation": report.rank_correlation,
        "rank_interval": list(report.rank_interval),
        "mean_error": report.mean_error,
        "half_width": report.half_width,
        "coverage": report.coverage,
        "counters_kept": report.kept,
        "weights": report.weights,
        "separated": report.separated,
        "clusters": _clusters(report.records, report.clusters),
        "mispredictions": [asdict(one) for one in report.mispredictions],
        "calibration": [
            {"predicted": likely, "observed": seen, "records": count}
            for likely, seen, count in report.calibration
        ],
    }


def curves_sentence(report: KindReport) -> str | None:
    """Return how stressor curves did beside the model of counters; None where there are none."""
    found = report.curves
    if found is None:
        return None
    return (
        f"Stressor curves predict the loss of {counted(found.records, 'pair')} of victims never seen with a "
        f"mean error of {found.mean_error:.3f} and a rank correlation of {found.rank_correlation:.2f} "
        f"({found.rank_interval[0]:.2f} to {found.rank_interval[1]:.2f}); counters with "
        f"{found.model_mean_error:.3f} and {found.model_rank_correlation:.2f}."
    )


def _curves(found: CurveReport) -> dict[str, Any]:
    return {
        "records": found.records,
        "accuracy": asdict(found.accuracy),
        "rank_correlation": found.rank_correlation,
        "rank_interval": list(found.rank_interval),
        "mean_error": found.mean_error,
        "model_rank_correlation": found.model_rank_correlation,
        "model_mean_error": found.model_mean_error,
        "stressors": list(found.curves.stressors),
        "sensitivity": {name: levels.tolist() for name, levels in found.curves.sensitivity.items()},
        "pressure": {name: levels.tolist() for name, levels in found.curves.pressure.items()},
    }


def _clusters(records: Records, groups: Clustering) -> list[dict[str, Any]]:
    names = records.features.applications
    return [
        {
            "applications": [names[place] for place in groups.members(number).tolist()],
            "median_loss": None
            if groups.median_loss[number] != groups.median_loss[number]
            else float(groups.median_loss[number]),
            "dangerous": bool(groups.dangerous[number]),
        }
        for number in range(len(groups.centres))
    ]


def share(found: Accuracy) -> str:
    """Return an accuracy with its interval: ``64% (56 to 72)``."""
    return f"{found.accuracy:.0%} ({100 * found.low:.0f} to {100 * found.high:.0f})"


def margin(found: Accuracy) -> str:
    """Return by how much an accuracy beats the majority, in points, with its interval."""
    return f"{100 * found.margin:+.0f} ({100 * found.margin_low:+.0f} to {100 * found.margin_high:+.0f})"


def rows_of(report: KindReport) -> list[tuple[str, str, str]]:
    """Return what is told of a kind: who judged, accuracy, points above the majority."""
    rows = [("majority", f"{report.majority:.0%}", "")]
    rows.append(("no twins", share(report.twins), margin(report.twins)))
    rows.append(("nearest measured pair, victims never seen", share(report.nearest), margin(report.nearest)))
    if report.curves is not None:
        found = report.curves.accuracy
        what = (
            ""
            if report.curves.records == len(report.records)
            else f" ({counted(report.curves.records, 'pair')})"
        )
        rows.append((f"stressor curves, victims never seen{what}", share(found), margin(found)))
    for name, found in report.accuracies.items():
        rows.append((f"penalised, {SCHEMES[name]}", share(found), margin(found)))
    for name, found in report.stepwise.items():
        rows.append((f"stepwise, {SCHEMES[name]}", share(found), margin(found)))
    for name, found in report.clear.items():
        rows.append((f"without dangerous clusters, {SCHEMES[name]}", share(found), margin(found)))
    rows.append(("victims never seen, uncertain pairs too", share(report.included), margin(report.included)))
    return rows


def sentence_of(report: KindReport) -> str:
    """Return what a user should conclude, in one or two sentences."""
    found = report.accuracies["application"]
    if found.margin_low > 0:
        start = (
            "The model tells dangerous pairs of an application it has not seen better than the majority does"
        )
    elif found.margin_high < 0:
        start = "For an application it has not seen the model is worse than saying the same of all pairs"
    else:
        start = "Whether the model says more of an application it has not seen than the majority does is open"
    return (
        f"{start}: right in {share(found)} of pairs, against {report.majority:.0%}. Predicted and "
        f"measured losses rank alike at {report.rank_correlation:.2f} ({report.rank_interval[0]:.2f} to "
        f"{report.rank_interval[1]:.2f}); a predicted loss is off by {report.mean_error:.2f} on average."
    )
