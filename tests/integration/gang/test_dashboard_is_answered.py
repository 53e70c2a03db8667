"""A real Prometheus on a cluster under gangd: every panel and every alert rule gets an answer.

In the run jobs take turns, an agent is silent for a while, and so is the controller: panels that show only
what goes wrong have something to show then.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
import zmq

from deploy.local.gang import keys_folder
from gangd.curve_keys import load_agent_keys
from gangd.wire.sockets import connect_agent
from tests.fixtures.looks import until
from tests.integration.gang.stage import SPIN, Stage

FOLDER = Path(__file__).parents[3] / "deploy/monitoring"
TOKEN = "a-token-of-the-tests-0123456789"
SLOW_S = 60.0
ANSWERED_S = 120.0
STEADY_S = "10s"
_METRIC = re.compile(r"\b(?:gangd|gang_agent|process)_[a-z_]+|\bup\b")

pytestmark = [
    pytest.mark.long,
    pytest.mark.slurm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="needs Prometheus: apt-get install prometheus"
    ),
]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Prometheus:
    """A Prometheus that scrapes once a second."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, **query: str) -> dict[str, object]:
        """Ask its API; returns the data of the answer."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as page:
            found = json.load(page)
        assert found["status"] == "success", query
        data: dict[str, object] = found["data"]
        return data

    def values(self, expression: str) -> list[float]:
        """Return the values that an expression has now, without those that are not known."""
        plain = re.sub(r"\$(controller|agents|instance)", ".*", expression)
        data = self.ask("query", query=plain.replace("$__rate_interval", STEADY_S))
        result = data["result"]
        assert isinstance(result, list), expression
        found = [float(one["value"][1]) for one in result]
        return [value for value in found if not math.isnan(value)]

    def is_up(self, targets: int) -> bool:
        """Whether all targets were scraped."""
        try:
            return self.values("up") == [1.0] * targets
        except OSError:
            return False


@contextmanager
def prometheus(folder: Path, targets: dict[str, list[int]]) -> Iterator[Prometheus]:
    (folder / "token").write_text(TOKEN)
    jobs = [
        {
            "job_name": name,
            "scrape_interval": "1s",
            "authorization": {"credentials_file": str(folder / "token")},
            "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
        }
        for name, ports in targets.items()
    ]
    (folder / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"evaluation_interval": "1s"},
                "rule_files": [str(FOLDER / "alerts.yaml")],
                "scrape_configs": jobs,
            }
        )
    )
    found = Prometheus(free_port())
    words = ["prometheus", f"--config.file={folder}/prometheus.yml", "--log.level=error"]
    words += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{found.port}"]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        until(lambda: found.is_up(sum(map(len, targets.values()))), SLOW_S, "all targets are scraped")
        yield found
    finally:
        process.terminate()
        process.wait(20)


def panels() -> dict[str, str]:
    """Return the expressions of the dashboard, each with the title of its panel."""
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    return {
        target["expr"]: panel["title"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    }


def silent(pid: int, condition: Callable[[], bool], what: str) -> None:
    """Stop a process until something holds, and let it go on."""
    os.kill(pid, signal.SIGSTOP)
    try:
        until(condition, SLOW_S, what)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_every_panel_and_every_alert_has_an_answer(stage: Stage, tmp_path: Path) -> None:
    (token := tmp_path / "secret").write_text(TOKEN)
    token.chmod(0o600)
    roles = ["gangd", *(f"gang-agent {node}" for node in stage.nodes)]
    ports = {role: free_port() for role in roles}
    with ExitStack() as stack:
        options = {
            role: ("--metrics", str(port), "--metrics-token", str(token)) for role, port in ports.items()
        }
        replaced = stack.enter_context(stage.in_place_of(options))
        targets = {"gangd": [ports["gangd"]], "gang-agent": [ports[role] for role in roles[1:]]}
        seen = stack.enter_context(prometheus(tmp_path, targets))
        for node in stage.nodes:
            for _ in range(2):
                stage.start(SPIN, node)
        waiting = panels()
        assert len(waiting) > 35

        def ask_all() -> bool:
            for expression in [one for one in waiting if seen.values(one)]:
                del waiting[expression]
            return not waiting

        def all_but_faults() -> bool:
            return ask_all() or all("> 0" in expression for expression in waiting)

        until(all_but_faults, ANSWERED_S, f"every panel of what is well has an answer; without: {waiting}")
        # The controller says nothing for longer than a lease: agents let go, and tell of it afterwards.
        leases = "sum(gang_agent_faults_total)"
        faults = seen.values(leases)[0]
        gangd, agent = replaced["gangd"], replaced[roles[1]]
        silent(gangd.pid, lambda: seen.values(leases)[0] > faults, "agents note the end of their lease")
        # An agent says nothing until it is taken for lost, which is an alarm; then it speaks again.
        silent(agent.pid, lambda: bool(seen.values("gangd_alarms > 0")), "the silent agent is an alarm")
        with rubbish(stage) as say:
            until(
                lambda: say() and ask_all(), ANSWERED_S, f"every panel has an answer; without one: {waiting}"
            )
        rules_are_evaluated(seen)


@contextmanager
def rubbish(stage: Stage) -> Iterator[Callable[[], bool]]:
    """Give what says something to the controller, with the key of a node, that is no message."""
    node = stage.nodes[0]
    publish, reports = (f"tcp://127.0.0.1:{port}" for port in stage.layout.gang_ports)
    with connect_agent(load_agent_keys(keys_folder(stage.layout), node), node, publish, reports) as sockets:

        def say() -> bool:
            return bool(sockets.reports.poll(1000, zmq.POLLOUT)) and sockets.reports.send(b"rubbish") is None

        yield say


def rules_are_evaluated(seen: Prometheus) -> None:
    """Every rule is evaluated without an error, and every metric that it names is there."""
    rules = [
        rule
        for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]
    assert len(rules) > 15
    for rule in rules:
        assert seen.ask("query", query=rule["expr"])["resultType"] == "vector", rule["alert"]
        for metric in _METRIC.findall(rule["expr"]):
            assert seen.values(f"count({metric})"), f"{rule['alert']}: no exporter has {metric}"

    def healthy() -> bool:
        groups = seen.ask("rules")["groups"]
        assert isinstance(groups, list)
        reported = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
        return set(reported) == {rule["alert"] for rule in rules} and set(reported.values()) == {"ok"}

    until(healthy, SLOW_S, "every rule was evaluated without an error")
