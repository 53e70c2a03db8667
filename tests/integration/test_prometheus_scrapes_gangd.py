"""A real Prometheus on a live gangd and a live agent: it answers every question of the dashboard."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from gangd.monitor.address import Address
from gangd.monitor.hand_out import handed_out
from gangd.monitor.metrics_table import CONTROLLER
from tests.fixtures.gang_host import until
from tests.fixtures.gang_loop import Stage, two_jobs

FOLDER = Path(__file__).parents[2] / "deploy/monitoring"
TOKEN = "a-token-of-the-tests-0123456789"
MAY_BE_EMPTY = ("> 0",)
"""Of alarms and faults nothing is drawn while there are none."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="needs Prometheus: apt-get install prometheus"
    ),
]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def ask(port: int, path: str, **query: str) -> dict[str, object]:
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as page:
        found = json.load(page)
    assert isinstance(found, dict)
    return found


def configure(folder: Path, targets: dict[str, int]) -> None:
    (folder / "token").write_text(TOKEN)
    jobs = [
        {
            "job_name": name,
            "scrape_interval": "1s",
            "authorization": {"credentials_file": str(folder / "token")},
            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
        }
        for name, port in targets.items()
    ]
    (folder / "prometheus.yml").write_text(
        json.dumps({"rule_files": [str(FOLDER / "alerts.yaml")], "scrape_configs": jobs})
    )


def test_prometheus_scrapes_and_answers_every_question_of_the_dashboard(tmp_path: Path) -> None:
    stage = Stage(tmp_path, two_jobs())
    two = stage.agent("n2")
    token = tmp_path / "secret"
    token.write_text(TOKEN)
    token.chmod(0o600)
    ports = {"gang-agent": free_port(), "prometheus": free_port()}
    started: list[subprocess.Popen[bytes]] = []
    with handed_out(Address("127.0.0.1", 0), token, CONTROLLER, stage.loop.metrics) as port:
        assert port is not None
        configure(tmp_path, {"gangd": port, "gang-agent": ports["gang-agent"]})

        def answered(expression: str) -> list[object]:
            plain = re.sub(r"\$(controller|agents|instance)", ".*", expression)
            found = ask(ports["prometheus"], "query", query=plain.replace("$__rate_interval", "10s"))
            assert found["status"] == "success", expression
            data = found["data"]
            assert isinstance(data, dict)
            return list(data["result"])

        def scene() -> None:
            where = f"{stage.sockets.publish_endpoint},{stage.sockets.report_endpoint}"
            agent = [sys.executable, "-m", "gangd.agent.main", "run", "--node", "n1", "--controller", where]
            agent += ["--keys", str(stage.keys), "--state", str(tmp_path / "agent"), "--freezer", "recording"]
            agent += ["--hold-by", "freeze", "--no-realtime", "--metrics", str(ports["gang-agent"])]
            agent += ["--metrics-token", str(token)]
            started.append(subprocess.Popen(agent, stderr=subprocess.DEVNULL))
            words = ["prometheus", f"--config.file={tmp_path}/prometheus.yml"]
            words += [f"--storage.tsdb.path={tmp_path}/data", "--log.level=error"]
            words += [f"--web.listen-address=127.0.0.1:{ports['prometheus']}"]
            started.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
            stage.welcome(two)

            def scraped() -> bool:
                try:
                    return [one["value"][1] for one in answered("up")] == ["1", "1"]  # type: ignore[index]
                except OSError:
                    return False

            until(lambda: stage_lives() and scraped(), 60, "both are scraped")
            until(lambda: stage_lives() and bool(answered("rate(gangd_up_seconds[10s])")), 30, "two scrapes")
            dashboard = json.loads((FOLDER / "dashboard.json").read_text())
            for panel in dashboard["panels"]:
                for target in panel.get("targets", ()):
                    stage_lives()
                    found = answered(target["expr"])
                    may_be_empty = any(sign in target["expr"] for sign in MAY_BE_EMPTY)
                    assert found or may_be_empty, f"{panel['title']}: {target['expr']}"
            rules = ask(ports["prometheus"], "rules")["data"]
            assert isinstance(rules, dict)
            health = [rule["health"] for group in rules["groups"] for rule in group["rules"]]
            assert set(health) <= {"ok", "unknown"}
            assert len(health) > 15

        def stage_lives() -> bool:
            two.listen()
            two.report()
            return True

        try:
            with stage.play(scene):
                pass
        finally:
            for child in started:
                child.terminate()
                child.wait(20)
