"""A live controller and its agents, asked over HTTP as Prometheus asks."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gangd.monitor.address import ListenAddress
from gangd.monitor.hand_out import handed_out
from gangd.monitor.metrics_table import CONTROLLER
from tests.fixtures.gang_loop import Stage, two_jobs

pytestmark = pytest.mark.slow


def ask(port: int | None, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scrape(port: int | None) -> dict[str, float]:
    """Values by name, labels in brackets."""
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(ask(port, "/metrics")[1])
        for sample in family.samples
    }


def test_a_controller_exports_what_its_status_says(tmp_path: Path) -> None:
    slurm = two_jobs()
    stage = Stage(tmp_path, slurm)
    agents = [stage.agent("n1"), stage.agent("n2")]
    with handed_out(ListenAddress("127.0.0.1", 0), None, CONTROLLER, stage.loop.metrics) as port:

        def scene() -> None:
            assert scrape(port)["gangd_healthy[lease]"] in (0.0, 1.0)
            for agent in agents:
                stage.welcome(agent)
            stage.until(lambda: scrape(port)["gangd_jobs_held[freeze]"] == 1)
            stage.until(lambda: ask(port, "/healthz")[0] == 200)
            found = scrape(port)
            status = stage.status()
            assert status is not None
            assert found["gangd_nodes[joined]"] == 2
            assert found["gangd_gangs[busy]"] == 2
            assert found["gangd_jobs_running"] == found["gangd_jobs_shared"] == 2
            assert found["gangd_slice_seconds"] == status.quantum_ms / 1000
            assert found["gangd_connections"] == 4
            assert found["gangd_slurm_age_seconds"] < 60
            before = found["gangd_decision_seconds_count"]
            stage.until(lambda: scrape(port)["gangd_decision_seconds_count"] > before)
            slurm.reachable = False
            stage.until(lambda: scrape(port)["gangd_alarms[slurm]"] == 1)
            assert scrape(port)["gangd_slurm_failures_total"] >= 1
            stage.agents.pop().sockets.close()
            stage.until(lambda: scrape(port)["gangd_nodes[lost]"] == 1)
            stage.until(lambda: ask(port, "/healthz")[0] == 503)
            assert "NOT OK agents: 1 of 2 nodes" in ask(port, "/healthz")[1]

        with stage.play(scene):
            pass
