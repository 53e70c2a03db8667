"""The table of metrics: what is documented is what is exported, complete from the first scrape on."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gangd.core.states import AgentState, GangState
from gangd.monitor.metrics_document import render
from gangd.monitor.metrics_server import Exposition
from gangd.monitor.metrics_table import (
    AGENT,
    AGENTS,
    CONTROLLER,
    PROCESS,
    STATES,
    Histogram,
    Metric,
    MetricKind,
    complete,
)
from gangd.wire.messages import WireError

ROOT = Path(__file__).parents[4]
UNITS = ("seconds", "bytes", "ratio", "slices")
COUNTED = ("nodes", "gangs", "jobs", "steps", "alarms", "connections", "healthy", "fds", "info")


def exported(table: tuple[Metric, ...]) -> set[str]:
    page = Exposition(table, dict).page("")[1].decode()
    return {family.name for family in text_string_to_metric_families(page)}


def test_the_page_is_what_the_table_says() -> None:
    told = "python -m gangd.monitor.metrics_document > docs/metrics.md"
    assert (ROOT / "docs/metrics.md").read_text() == render(), told


@pytest.mark.parametrize("table", [CONTROLLER, AGENT])
def test_all_that_is_exported_is_in_the_table_and_the_other_way_round(table: tuple[Metric, ...]) -> None:
    declared = {metric.name.removesuffix("_total") for metric in (*table, *PROCESS)}
    assert exported(table) == declared


@pytest.mark.parametrize("metric", [*CONTROLLER, *AGENT], ids=lambda metric: metric.name)
def test_names_carry_their_units(metric: Metric) -> None:
    assert re.fullmatch(r"(gangd|gang_agent)_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") is (metric.kind is MetricKind.COUNTER)
    words = metric.name.removesuffix("_total").split("_")
    counts = metric.kind is MetricKind.COUNTER or any(word in COUNTED for word in words)
    assert words[-1] in UNITS or counts, metric.name
    assert not {"job", "node", "user"} & set(metric.label_names)
    assert bool(metric.bounds_s) is (metric.kind is MetricKind.HISTOGRAM)
    assert list(metric.bounds_s) == sorted(metric.bounds_s)


@pytest.mark.parametrize("table", [CONTROLLER, AGENT])
def test_every_series_is_there_while_nothing_has_happened(table: tuple[Metric, ...]) -> None:
    page = Exposition(table, dict).page("")[1].decode()
    found = {
        (sample.name, tuple(sample.labels.values()))
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    for metric in table:
        for series in metric.series() if metric.kind not in (MetricKind.INFO, MetricKind.HISTOGRAM) else ():
            assert (metric.name, series) in found
        for bound in metric.bounds_s:
            assert (f"{metric.name}_bucket", (str(bound),)) in found
    assert len(found) < 200


def test_what_the_table_does_not_name_is_counted_under_other() -> None:
    [metric] = [one for one in CONTROLLER if one.name == "gangd_messages_dropped_total"]
    found = complete([metric], {metric.name: {("replayed",): 3, ("new",): 2, ("newer",): 5}})[metric]
    assert isinstance(found, dict)
    assert found[("replayed",)] == 3
    assert found[("other",)] == 7
    with pytest.raises(KeyError, match="no_such"):
        complete([metric], {"no_such": 1.0})


def test_a_histogram_counts_each_duration_once_and_its_buckets_grow() -> None:
    histogram = Histogram((0.1, 1.0))
    for duration_s in (0.05, 0.1, 0.5, 7.0):
        histogram.add(duration_s)
    found = histogram.buckets()
    assert found.counts == (2, 3, 4)
    assert math.isclose(found.sum_s, 7.65)


def test_states_and_kinds_are_those_of_the_scheduler() -> None:
    assert {state.value for state in GangState} - {"gone"} == set(STATES)
    assert tuple(state.value for state in AgentState) == AGENTS
    [dropped] = [one for one in CONTROLLER if one.name == "gangd_messages_dropped_total"]
    kinds = {kind.kind for kind in (WireError, *WireError.__subclasses__())}
    assert kinds - {"foreign_controller", "missed_plan"} <= set(dropped.labels[0][1])


@pytest.mark.parametrize(
    ("label", "pattern"),
    [
        ("ALARMS", r"Alarm\(\s*\"([a-z ]+)\""),
        ("FAULTS", r"on_fault\(\s*\"([a-z_]+)\""),
    ],
)
def test_every_kind_in_the_code_is_named(label: str, pattern: str) -> None:
    from gangd.monitor import metrics_table

    text = "\n".join(path.read_text() for path in (ROOT / "gangd").rglob("*.py"))
    assert set(re.findall(pattern, text)) <= set(getattr(metrics_table, label))


@pytest.mark.parametrize("table", [CONTROLLER, AGENT])
def test_promtool_finds_nothing_to_say(table: tuple[Metric, ...]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool: apt-get install prometheus")
    page = Exposition(table, dict).page("")[1]
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
