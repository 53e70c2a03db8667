"""Writes the dashboard: ``python -m deploy.monitoring.dashboard > deploy/monitoring/dashboard.json``.

Grafana's own format (schema version 39, Grafana 11 and later), with the data source, the scrape jobs and the
instances as variables. Every expression is of metrics in ``docs/metrics.md``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

C = 'job=~"$controller"'
A = 'job=~"$agents",instance=~"$instance"'
"""Which series: those of the scrape jobs, and of the nodes, that are chosen above the dashboard."""


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and how its series are called in the legend."""

    expr: str
    legend: str

    def called(self, legend: str) -> Query:
        """Return the same expression under another name."""
        return Query(self.expr, legend)


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: what it shows, in which unit (Grafana's name of it), and how wide it is of 24 columns."""

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    width: int = 8
    is_number: bool = False
    bad_from: float | None = None
    bad_below: float | None = None
    stacked: bool = False


def quantiles(metric: str, labels: str) -> tuple[Query, ...]:
    """Return the middle and the slowest of a hundred of a histogram."""
    return tuple(
        Query(
            f"histogram_quantile({of}, sum by (le) (rate({metric}_bucket{{{labels}}}[$__rate_interval])))",
            name,
        )
        for of, name in (("0.5", "median"), ("0.99", "99 of 100"))
    )


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Is it well?",
        (
            Panel(
                "Health",
                "Each check of /healthz: 1 holds.",
                "none",
                (Query(f"gangd_healthy{{{C}}}", "{{check}}"),),
                6,
                True,
                bad_below=1,
            ),
            Panel(
                "Agents",
                "Nodes by what is known of their agent.",
                "none",
                (Query(f"gangd_nodes{{{C}}}", "{{agent}}"),),
                6,
                True,
            ),
            Panel(
                "Jobs",
                "Running, sharing cores, and held in this slice.",
                "none",
                (
                    Query(f"gangd_jobs_running{{{C}}}", "running"),
                    Query(f"gangd_jobs_shared{{{C}}}", "share"),
                    Query(f"sum(gangd_jobs_held{{{C}}})", "held"),
                ),
                6,
                True,
            ),
            Panel(
                "Alarms",
                "Alarms that stand.",
                "none",
                (Query(f"sum(gangd_alarms{{{C}}})", "alarms"),),
                3,
                True,
                bad_from=1,
            ),
            Panel(
                "Slurm's answer",
                "How old the newest is.",
                "s",
                (Query(f"gangd_slurm_age_seconds{{{C}}}", "age"),),
                3,
                True,
                bad_from=30,
            ),
        ),
    ),
    (
        "Gangs and slices",
        (
            Panel(
                "Gangs by state",
                "docs/states.md says what they mean.",
                "none",
                (Query(f"gangd_gangs{{{C}}}", "{{state}}"),),
                stacked=True,
            ),
            Panel(
                "Held jobs",
                "In the present slice, by how they are held.",
                "none",
                (Query(f"gangd_jobs_held{{{C}}}", "{{hold}}"),),
                stacked=True,
            ),
            Panel(
                "Nodes without agent",
                "Gangs with such a node are held nowhere.",
                "none",
                (Query(f'gangd_nodes{{{C},agent!="joined"}}', "{{agent}}"),),
                bad_from=1,
            ),
            Panel(
                "Length of slices",
                "What holds, and what was asked for: longer while switches are late.",
                "s",
                (
                    Query(f"gangd_slice_seconds{{{C}}}", "is"),
                    Query(f"gangd_slice_asked_seconds{{{C}}}", "asked"),
                    Query(f"gangd_lookahead_slices{{{C}}} * gangd_slice_seconds{{{C}}}", "final ahead"),
                ),
            ),
            Panel(
                "Lost to switching",
                "Part of a slice, on nine of ten nodes at most.",
                "percentunit",
                (Query(f"gangd_switch_lost_ratio{{{C}}}", "lost"),),
                bad_from=0.03,
            ),
            Panel(
                "Deciding",
                "How long one decision takes, with telling all nodes.",
                "s",
                (
                    *quantiles("gangd_decision_seconds", C),
                    quantiles("gangd_decision_cpu_seconds", C)[1].called("99 of 100, CPU time"),
                ),
                bad_from=0.25,
            ),
        ),
    ),
    (
        "What goes wrong",
        (
            Panel(
                "Alarms by kind",
                "osub top has their texts.",
                "none",
                (Query(f"gangd_alarms{{{C}}} > 0", "{{kind}}"),),
                stacked=True,
            ),
            Panel(
                "Faults of agents",
                "Of all nodes together, a minute.",
                "none",
                (Query(f"60 * rate(gangd_agent_faults_total{{{C}}}[$__rate_interval]) > 0", "{{kind}}"),),
            ),
            Panel(
                "Messages refused",
                "A minute, by reason.",
                "none",
                (
                    Query(
                        f"60 * rate(gangd_messages_dropped_total{{{C}}}[$__rate_interval]) > 0", "{{reason}}"
                    ),
                ),
            ),
            Panel(
                "Slurm",
                "Questions without an answer, ends moved and refused; a minute.",
                "none",
                (
                    Query(f"60 * rate(gangd_slurm_failures_total{{{C}}}[$__rate_interval])", "no answer"),
                    Query(f"60 * rate(gangd_ends_moved_total{{{C}}}[$__rate_interval])", "ends moved"),
                    Query(f"60 * rate(gangd_ends_refused_total{{{C}}}[$__rate_interval])", "ends refused"),
                ),
            ),
            Panel(
                "Slice record",
                "With its older files.",
                "bytes",
                (Query(f"gangd_record_bytes{{{C}}}", "size"),),
            ),
            Panel(
                "Connections", "Two for each agent.", "none", (Query(f"gangd_connections{{{C}}}", "open"),)
            ),
        ),
    ),
    (
        "Agents",
        (
            Panel(
                "Switches begin late",
                "After the instant of their slice, all nodes together.",
                "s",
                quantiles("gang_agent_switch_late_seconds", A),
                bad_from=0.01,
            ),
            Panel(
                "Switches take",
                "From the instant to the last write.",
                "s",
                quantiles("gang_agent_switch_seconds", A),
            ),
            Panel(
                "Not well",
                "Agents for which a check does not hold.",
                "none",
                (Query(f"sum by (check) (1 - gang_agent_healthy{{{A}}})", "{{check}}"),),
                bad_from=1,
            ),
            Panel(
                "Held",
                "Jobs that are held at a time, on average, all nodes added up.",
                "none",
                (
                    Query(
                        f"sum by (hold) (rate(gang_agent_held_job_seconds_total{{{A}}}[$__rate_interval]))",
                        "{{hold}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Leaks",
                "CPU time that frozen jobs use all the same: cores.",
                "none",
                (
                    Query(
                        f"topk(5, rate(gang_agent_leaked_cpu_seconds_total{{{A}}}[$__rate_interval]))",
                        "{{instance}}",
                    ),
                ),
                bad_from=0.05,
            ),
            Panel(
                "Jobs without a step",
                "Nothing runs in their allocation, or their folders cannot be read.",
                "none",
                (Query(f"topk(5, gang_agent_jobs_without_steps{{{A}}})", "{{instance}}"),),
            ),
            Panel(
                "Clocks",
                "How far the controller's clock may be from where agents believe it.",
                "s",
                (Query(f"max(gang_agent_clock_bound_seconds{{{A}}})", "worst"),),
            ),
            Panel(
                "Faults by node",
                "Most, a minute.",
                "none",
                (
                    Query(
                        f"topk(5, 60 * sum by (instance) (rate(gang_agent_faults_total{{{A}}}[5m])))",
                        "{{instance}}",
                    ),
                ),
            ),
            Panel(
                "Lease left",
                "Least of all agents; 0: an agent lets everything run.",
                "s",
                (Query(f"min(gang_agent_lease_seconds{{{A}}})", "least"),),
            ),
        ),
    ),
    (
        "What it costs",
        (
            Panel(
                "CPU of the controller",
                "Cores.",
                "none",
                (Query(f"rate(process_cpu_seconds_total{{{C}}}[$__rate_interval])", "gangd"),),
            ),
            Panel(
                "CPU of agents",
                "Cores; guardian not included.",
                "percentunit",
                (
                    Query(
                        f"quantile(0.5, rate(process_cpu_seconds_total{{{A}}}[$__rate_interval]))", "median"
                    ),
                    Query(f"max(rate(process_cpu_seconds_total{{{A}}}[$__rate_interval]))", "most"),
                ),
            ),
            Panel(
                "Memory",
                "Resident.",
                "bytes",
                (
                    Query(f"process_resident_memory_bytes{{{C}}}", "gangd"),
                    Query(f"max(process_resident_memory_bytes{{{A}}})", "agents, most"),
                ),
            ),
        ),
    ),
)


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
