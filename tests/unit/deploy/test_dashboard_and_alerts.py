"""Dashboard and alert rules: made from the code, of metrics that there are, and right to promtool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.monitoring.dashboard import WIDTH, render
from gangd.monitor.metrics_table import AGENT, CONTROLLER, PROCESS, Metric, MetricKind

FOLDER = Path(__file__).parents[3] / "deploy/monitoring"
TABLE: dict[str, Metric] = {metric.name: metric for metric in (*CONTROLLER, *AGENT, *PROCESS)}
ALERTS = (FOLDER / "alerts.yaml").read_text()
NAME = re.compile(r"\b(?:gangd|gang_agent|process)_[a-z_]+")
LABEL = re.compile(r"([a-z_]+)\s*(=~|!=|=|!~)\s*\"([^\"]*)\"")
FREE = {"job", "instance", "le"}
"""Labels that Prometheus adds, and those of histograms."""

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus"
)


def panels() -> list[dict[str, object]]:
    found = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    assert isinstance(found, list)
    return found


def dashboard_expressions() -> list[str]:
    found = [target["expr"] for panel in panels() for target in panel.get("targets", [])]  # type: ignore[attr-defined]
    assert len(found) > 30
    return found


def alert_expressions() -> dict[str, str]:
    return dict(re.findall(r"- alert: (\w+)\n\s+expr: (.*)\n", ALERTS))


def check(expression: str) -> None:
    """See that an expression is of metrics and label values that are declared, and counters are rated."""
    names = NAME.findall(expression)
    for name in names:
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        metric = TABLE.get(name) or TABLE.get(base)
        assert metric is not None, f"{name} is not exported: {expression}"
        if metric.kind is MetricKind.HISTOGRAM:
            assert name != base, f"{name} is a histogram: {expression}"
        if metric.kind in (MetricKind.COUNTER, MetricKind.HISTOGRAM):
            assert re.search(rf"(rate|increase)\({name}", expression), f"{name} only grows: {expression}"
        declared = {label: set(values) for label, values in metric.labels}
        inside = re.search(rf"{name}\{{([^}}]*)\}}", expression)
        for label, _, values in LABEL.findall(inside[1] if inside else ""):
            if label in FREE:
                continue
            assert label in declared, f"{name} has no label {label}: {expression}"
            assert set(values.split("|")) <= declared[label], f"no such {label}: {expression}"
        grouped = re.search(r"by \(([a-z_, ]+)\)", expression)
        for label in grouped[1].split(", ") if grouped else ():
            assert label in declared or label in FREE, f"{name} has no label {label}: {expression}"


def test_the_dashboard_is_what_the_code_makes() -> None:
    told = "python -m deploy.monitoring.dashboard > deploy/monitoring/dashboard.json"
    assert json.loads((FOLDER / "dashboard.json").read_text()) == render(), told


def test_panels_fit_and_each_says_what_it_shows() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        assert isinstance(place, dict)
        assert place["x"] + place["w"] <= WIDTH
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"]


@pytest.mark.parametrize("expression", [*dashboard_expressions(), *alert_expressions().values()])
def test_every_expression_is_of_metrics_that_there_are(expression: str) -> None:
    if expression.startswith("up{"):
        assert set(re.findall(r'job="([a-z-]+)"', expression)) <= {"gangd", "gang-agent"}
        return
    assert NAME.search(expression)
    check(expression)


def test_what_is_not_declared_is_found() -> None:
    for wrong in (
        "gangd_no_such",
        'gangd_nodes{agent="away"}',
        'gangd_nodes{node="n1"}',
        "gangd_ends_moved_total",
        "gangd_decision_seconds",
        "sum by (node) (gangd_nodes)",
    ):
        with pytest.raises(AssertionError):
            check(wrong)


def test_every_alert_says_why_and_what_to_do_and_is_tested() -> None:
    rules = ALERTS.split("- alert: ")[1:]
    tests = (FOLDER / "alerts_test.yaml").read_text()
    assert len(rules) == len(alert_expressions()) > 15
    for rule in rules:
        name = rule.split("\n", 1)[0]
        for key in ("summary: ", "reason: ", "action: ", "severity: "):
            assert key in rule, name
        firing = rf'alertname="{name}"[^\n]*\n?(?:[^\n]*\n){{0,3}}?[^\n]*value: 1'
        assert re.search(firing, tests), f"no test in which {name} fires"


@needs_promtool
def test_promtool_takes_the_rules_and_their_tests_hold() -> None:
    for words in (("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")):
        done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_takes_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = []
    for number, expression in enumerate(dashboard_expressions()):
        plain = re.sub(r"\$(controller|agents|instance)", ".*", expression).replace("$__rate_interval", "1m")
        rules.append({"record": f"checked:number{number}", "expr": plain})
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
