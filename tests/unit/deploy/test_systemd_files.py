"""Files that are shipped: units, dashboard, alerts, and the words of daemons in them."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest

import deploy
from deploy.local.daemons import last_words
from deploy.local.layout import make_layout
from deploy.shape import Shape
from gangd.agent.agent_options import parser, with_command
from gangd.controller.controller_config import Config, load_config
from gangd.monitor.metrics_table import AGENT, CONTROLLER, PROCESS, Metric, MetricKind
from tests.fixtures.exposure import UNITS, exposures, page_exposures, page_score, score

FOLDER = Path(deploy.__file__).parent / "systemd"
NEEDS_A_VALUE = {
    *("lease_ms", "mark_jobs", "slurm_conf", "takeover_ms", "record", "status_mode", "pairing"),
    *("metrics", "metrics_token", "quantum_min_ms", "memory_mib", "memory_stall", "memory_freeze_ms"),
}  # keys whose default is that they are not set: the file shows an example


def unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(FOLDER / name)
    return found


def test_the_example_shows_every_key_with_its_default(tmp_path: Path) -> None:
    text = (FOLDER / "gangd.toml").read_text()
    shown = re.sub(r"(?m)^# (?=[a-z_]+ = )", "", text)
    assert set(tomllib.loads(shown)) == set(Config.__struct_fields__)
    (path := tmp_path / "gangd.toml").write_text(shown)
    read, plain = load_config(path), Config()
    for key in Config.__struct_fields__:
        if key in NEEDS_A_VALUE:
            assert getattr(plain, key) is None
        else:
            assert getattr(read, key) == getattr(plain, key), key
    path.write_text(text)
    assert load_config(path) == plain, "as it is it changes nothing"
    assert msgspec.structs.asdict(read)["keys"] == Path("/etc/gangd/keys")


@pytest.mark.parametrize("name", ["gangd.service", "gang-agent.service"])
def test_units_bound_what_the_daemons_may_do(name: str) -> None:
    service = unit(name)["Service"]
    assert service["Type"] == "notify"
    assert float(service["WatchdogSec"]) >= 10
    for key, value in {
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "RestrictNamespaces": "yes",
        "MemoryDenyWriteExecute": "yes",
        "Restart": "always",
    }.items():
        assert service[key] == value
    assert "@system-service" in (FOLDER / name).read_text()
    assert not (FOLDER / name).stat().st_mode & 0o111


def test_the_controller_has_no_privilege_and_the_agent_few() -> None:
    controller, agent = unit("gangd.service")["Service"], unit("gang-agent.service")["Service"]
    assert (controller["User"], controller["CapabilityBoundingSet"]) == ("gangd", "")
    assert "User" not in agent
    granted = set(agent["CapabilityBoundingSet"].split())
    assert granted <= {"CAP_KILL", "CAP_SYS_NICE", "CAP_SYS_PTRACE", "CAP_IPC_LOCK", "CAP_DAC_READ_SEARCH"}
    assert "ProtectControlGroups" not in agent
    assert "RestrictRealtime" not in agent
    assert agent["ExecStopPost"] == "gang-agent thaw --expired"


def test_commands_of_the_units_are_ones_that_the_daemons_take() -> None:
    default = (FOLDER / "gang-agent.default").read_text()
    options = shlex.split(re.search(r'(?m)^OPTIONS="(.*)"$', default)[1])  # type: ignore[index]
    assert parser().parse_args(with_command(["run", *options])).controllers == ["controller"]
    parser().parse_args(["thaw", "--expired"])


VERSION = 252  # whose scores the page has


def version() -> int | None:
    if shutil.which("systemd-analyze") is None:
        return None
    output = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True)
    return int(output.stdout.split()[1])


@pytest.mark.skipif(version() != VERSION, reason=f"needs systemd-analyze {VERSION}: apt-get install systemd")
@pytest.mark.parametrize("unit", UNITS)
def test_the_page_explains_what_a_unit_leaves_open(unit: str, tmp_path: Path) -> None:
    text = (FOLDER / f"{unit}.service").read_text()
    # Programs need not be there; and a private mount namespace, which all of the rest implies, is named.
    text = re.sub(r"(?m)^(Exec\w+)=\S+", r"\1=/bin/true", text)
    text = text.replace("[Service]\n", "[Service]\nPrivateMounts=yes\n")
    (file := tmp_path / f"{unit}.service").write_text(text)
    output = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(file)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"},
        check=True,
    ).stdout
    assert score(output) == page_score(unit)
    assert exposures(output) == page_exposures(unit)


FATAL = "slurmctld: fatal: Unable to process configuration file"


@pytest.mark.parametrize(
    ("logged", "message"),
    [
        (
            f"slurmctld: error: _parse_next_key: Parsing error at unrecognized key: Foo\n{FATAL}\n",
            f"{FATAL} (_parse_next_key: Parsing error at unrecognized key: Foo)",
        ),
        (
            f'slurmctld: error: ReturnToService value "banana" is not a valid number\n{FATAL}\n',
            f'{FATAL} (ReturnToService value "banana" is not a valid number)',
        ),
        (
            "slurmctld: error: no plugin for x\nslurmctld: fatal: failed to initialize priority\n",
            "slurmctld: fatal: failed to initialize priority (no plugin for x)",
        ),
        (
            "slurmctld: error: nothing is stored\nslurmctld: fatal: Can't find plugin for select/x\n",
            "slurmctld: fatal: Can't find plugin for select/x",
        ),
        ("", "it logged nothing"),
    ],
)
def test_last_words_name_the_reason(tmp_path: Path, logged: str, message: str) -> None:
    layout = make_layout(tmp_path, tmp_path, Shape(nodes=1, cores=1), ((0,),))
    layout.logs.mkdir()
    (layout.logs / "slurmctld.out").write_text(logged)
    assert last_words(layout, "slurmctld") == message


MONITORING = Path(__file__).parents[3] / "deploy/monitoring"
TABLE: dict[str, Metric] = {metric.name: metric for metric in (*CONTROLLER, *AGENT, *PROCESS)}
ALERTS = (MONITORING / "alerts.yaml").read_text()
NAME = re.compile(r"\b(?:gangd|gang_agent|process)_[a-z_]+")
LABEL = re.compile(r"([a-z_]+)\s*(=~|!=|=|!~)\s*\"([^\"]*)\"")
FREE = {"job", "instance", "le"}  # labels that Prometheus adds, and those of histograms


needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus"
)


GRID_COLUMNS = 24  # of a Grafana dashboard


def panels() -> list[dict[str, object]]:
    found = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
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


def test_panels_fit_and_each_says_what_it_shows() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        assert isinstance(place, dict)
        assert place["x"] + place["w"] <= GRID_COLUMNS
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
    tests = (MONITORING / "alerts_test.yaml").read_text()
    assert len(rules) == len(alert_expressions()) > 15
    for rule in rules:
        name = rule.split("\n", 1)[0]
        for key in ("summary: ", "reason: ", "action: ", "severity: "):
            assert key in rule, name
        firing = rf'alertname="{name}"[^\n]*\n?(?:[^\n]*\n){{0,3}}?[^\n]*value: 1'
        assert re.search(firing, tests), f"no test in which {name} fires"


@pytest.mark.slow
@needs_promtool
def test_promtool_takes_the_rules_and_their_tests_hold() -> None:
    for words in (("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")):
        done = subprocess.run(
            ["promtool", *words], cwd=MONITORING, capture_output=True, text=True, check=False
        )
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
