"""What Prometheus and Grafana read, made when a cluster first starts: targets, alerts, dashboard, password.

Their images have no key and no password. Each of the two runs as its own user, who can read what is its own.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

import msgspec

import deploy.monitoring
from deploy.compose.inside import keys
from deploy.compose.inside.settings import (
    AGENT_METRICS_PORT,
    GANGD_METRICS_PORT,
    ContainerSettings,
    find_name,
)
from deploy.compose.inside.supervise import wait_for

ROOT = Path("/monitoring")
TARGETS = ROOT / "targets" / "agents.json"
_SOURCES = Path(deploy.monitoring.__file__).parent
_PROMETHEUS, _GRAFANA = 65534, 472
"""As whom they run; compose.monitoring.yaml says so, too."""


def run(settings: ContainerSettings) -> bool:  # noqa: ARG001 - as its callers have it
    """Make what they read, once the token is there with which metrics are asked for."""
    make_all(wait_for("the token for metrics", _token))
    return True


def _token() -> str | None:
    try:
        return keys.METRICS_TOKEN.read_text().strip() or None
    except OSError:
        return None


def make_all(token: str, root: Path = ROOT) -> None:
    """Make what they read; a password that is there is kept."""
    prometheus, grafana = root / "prometheus", root / "grafana"
    for folder, owner in (
        (prometheus, _PROMETHEUS),
        (root / "prometheus-data", _PROMETHEUS),
        (grafana, _GRAFANA),
        (root / "grafana-data", _GRAFANA),
    ):
        os.chown(folder, owner, 0)
        folder.chmod(0o700)
    targets = root / "targets"
    targets.chmod(0o755)
    if not (targets / "agents.json").exists():
        keys.put(targets / "agents.json", b"[]\n", 0, 0o644)
    keys.put(prometheus / "token", token.encode(), _PROMETHEUS)
    keys.put(prometheus / "alerts.yaml", (_SOURCES / "alerts.yaml").read_bytes(), _PROMETHEUS)
    keys.put(prometheus / "prometheus.yml", prometheus_yml().encode(), _PROMETHEUS)
    for name, text in provisioning().items():
        path = grafana / name
        for folder in reversed([one for one in path.parents if grafana in one.parents]):
            folder.mkdir(mode=0o700, exist_ok=True)
            os.chown(folder, _GRAFANA, 0)
        keys.put(path, text.encode(), _GRAFANA)
    keys.make_secret(grafana / "password", secrets.token_urlsafe(18).encode(), _GRAFANA)


def prometheus_yml() -> str:
    """Return whom Prometheus asks; in JSON, which is YAML, too. An instance is called as its host is."""
    host = [{"source_labels": ["__address__"], "regex": "(.*):[0-9]+", "target_label": "instance"}]
    ask = {"authorization": {"credentials_file": "/etc/osub/token"}, "relabel_configs": host}
    dashboard: dict[str, object] = {
        "global": {"scrape_interval": "5s", "evaluation_interval": "15s"},
        "rule_files": ["/etc/osub/alerts.yaml"],
        "scrape_configs": [
            {
                "job_name": "gangd",
                **ask,
                "static_configs": [{"targets": [f"controller:{GANGD_METRICS_PORT}"]}],
            },
            {
                "job_name": "gang-agent",
                **ask,
                "file_sd_configs": [{"files": [f"/targets/{TARGETS.name}"], "refresh_interval": "10s"}],
            },
        ],
    }
    return json.dumps(dashboard, indent=1) + "\n"


def provisioning() -> dict[str, str]:
    """Return Grafana's files by their names: Prometheus as its data source, and gangd's dashboard."""
    source: dict[str, object] = {
        "name": "Prometheus",
        "uid": "prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": "http://prometheus:9090",
        "isDefault": True,
        "editable": False,
        "jsonData": {"timeInterval": "5s", "httpMethod": "POST"},
    }
    provider: dict[str, object] = {
        "name": "osub",
        "type": "file",
        "disableDeletion": True,
        "allowUiUpdates": False,
        "options": {"path": "/etc/osub/dashboards"},
    }
    return {
        "provisioning/datasources/osub.yaml": json.dumps(
            {"apiVersion": 1, "datasources": [source]}, indent=1
        ),
        "provisioning/dashboards/osub.yaml": json.dumps({"apiVersion": 1, "providers": [provider]}, indent=1),
        "dashboards/gangd.json": (_SOURCES / "dashboard.json").read_text(),
    }


class _Named(msgspec.Struct):
    node: str


class _Nodes(msgspec.Struct):
    nodes: list[_Named]


def agent_targets(status: bytes) -> str:
    """Return the nodes that gangd knows as Prometheus's file of targets.

    One whose agent is silent stays among them, so that its silence is seen. Raises ValueError for what is no
    status of gangd.
    """
    listed = msgspec.json.decode(status, type=_Nodes).nodes
    nodes = [node for one in listed if (node := find_name([one.node])) is not None]
    found = sorted((node.number, node.name) for node in nodes)
    targets = [f"{name}:{AGENT_METRICS_PORT}" for _, name in found]
    return json.dumps([{"targets": targets}] if targets else []) + "\n"


def write_targets(status: Path, targets: Path = TARGETS) -> None:
    """Tell Prometheus which nodes gangd knows, if its list differs; nothing while gangd is silent."""
    try:
        text = agent_targets(status.read_bytes())
        if not targets.exists() or targets.read_text() != text:
            keys.put(targets, text.encode(), 0, 0o644)
    except (OSError, ValueError):
        return
