"""Writes the dashboard: ``python -m deploy.monitoring.dashboard > deploy/monitoring/dashboard.json``.

Grafana's own format (schema version 39, Grafana 11 and later), with the data source, the scrape jobs and the
instances as variables. Every expression is of metrics in ``docs/metrics.md``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from deploy.monitoring.panels import ROWS, Panel

Json = dict[str, object]

SCHEMA_VERSION = 39
WIDTH = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def render() -> Json:
    """Return the dashboard."""
    panels: list[Json] = []
    top = number = 0
    for title, row in ROWS:
        number += 1
        panels.append(
            {
                "type": "row",
                "id": number,
                "title": title,
                "collapsed": False,
                "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top},
                "panels": [],
            }
        )
        top += 1
        left, height = 0, 4 if row[0].is_number else 8
        for panel in row:
            if left + panel.width > WIDTH:
                left, top = 0, top + height
            number += 1
            panels.append(_panel(panel, number, {"h": height, "w": panel.width, "x": left, "y": top}))
            left += panel.width
        top += height
    return {
        "uid": "gangd",
        "title": "gangd",
        "description": "Gang scheduling of jobs that share cores. Metrics: docs/metrics.md",
        "tags": ["slurm", "gangd"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_source(), *_variables()]},
        "panels": panels,
    }


def _source() -> Json:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Prometheus",
        "query": "prometheus",
        "hide": 0,
        "refresh": 1,
        "multi": False,
        "includeAll": False,
    }


def _variables() -> list[Json]:
    asked = (
        ("controller", "Controller", "label_values(gangd_up_seconds, job)"),
        ("agents", "Agents", "label_values(gang_agent_up_seconds, job)"),
        ("instance", "Node", 'label_values(gang_agent_up_seconds{job=~"$agents"}, instance)'),
    )
    return [
        {
            "type": "query",
            "name": name,
            "label": label,
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "hide": 0,
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"], "selected": True},
        }
        for name, label, query in asked
    ]


def _panel(panel: Panel, number: int, place: Json) -> Json:
    return {
        "type": "stat" if panel.is_number else "timeseries",
        "id": number,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "range": not panel.is_number,
                "instant": panel.is_number,
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _number_options() if panel.is_number else _series_options(),
    }


def _defaults(panel: Panel) -> Json:
    shown: Json = {
        "unit": panel.unit,
        "min": 0,
        "color": {"mode": "thresholds" if panel.is_number else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": _steps(panel)},
        "mappings": [],
    }
    if not panel.is_number:
        shown["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "off" if panel.bad_from is None else "dashed"},
        }
    return shown


def _steps(panel: Panel) -> Sequence[Json]:
    if panel.bad_below is not None:
        return [{"color": "red", "value": None}, {"color": "green", "value": panel.bad_below}]
    good: list[Json] = [{"color": "green", "value": None}]
    return good if panel.bad_from is None else [*good, {"color": "red", "value": panel.bad_from}]


def _number_options() -> Json:
    return {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "orientation": "auto",
        "textMode": "value_and_name",
        "wideLayout": True,
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }


def _series_options() -> Json:
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(render(), indent=1) + "\n")
