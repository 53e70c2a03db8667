"""Metrics of daemons: the table and its server."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from foundation.errors import HostError, InputError, TrustError, UsageError
from gangd.core.states import AgentState, GangState
from gangd.daemon_process import Death
from gangd.monitor.address import ListenAddress, read_address, read_token
from gangd.monitor.hand_out import MetricsSource, handed_out
from gangd.monitor.metrics_document import render
from gangd.monitor.metrics_requests import MOST_BYTES, Health, MetricsRequest, answer, parse
from gangd.monitor.metrics_server import MOST, Exposition, MetricsServer, Pages
from gangd.monitor.metrics_table import (
    AGENT,
    AGENTS,
    CONTROLLER,
    PROCESS,
    STATES,
    Figures,
    Histogram,
    Metric,
    MetricKind,
    complete,
)
from gangd.wire.messages import WireError
from tests.fixtures.gang_loop import Stage, two_jobs

HERE = ListenAddress("127.0.0.1", 0)
TOKEN = "0123456789abcdef"
WELL = Health({"one": (True, "fine"), "two": (True, "fine")})
SICK = Health({"one": (True, "fine"), "two": (False, "silent")})


class Asked:
    def __init__(self) -> None:
        self.times = 0
        self.health = WELL
        self.deaths: list[Death] = []

    def metrics(self, accept: str) -> tuple[str, bytes]:
        self.times += 1
        return f"text/plain; {accept or 'plain'}", b"m 1\n"


@pytest.fixture
def asked() -> Asked:
    return Asked()


Start = Callable[..., MetricsServer]


@pytest.fixture
def start(asked: Asked) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def begin(token: str | None = None, patience_s: float = 5.0) -> MetricsServer:
            pages = Pages(asked.metrics, lambda: asked.health, token)
            server = MetricsServer(HERE, pages, asked.deaths.append, patience_s)
            server.start()
            stack.callback(server.stop)
            return server

        yield begin


def get(server: MetricsServer, path: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def raw(server: MetricsServer, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as one:
        with contextlib.suppress(OSError):
            one.sendall(data)
        came = b""
        with contextlib.suppress(OSError):
            while part := one.recv(65536):
                came += part
        return came


def test_metrics_and_health_are_answered(start: Start, asked: Asked) -> None:
    server = start()
    assert get(server, "/metrics?x=1") == (200, "m 1\n")
    assert get(server, "/healthz") == (200, "ok one: fine\nok two: fine\n")
    asked.health = SICK
    assert get(server, "/healthz") == (503, "ok one: fine\nNOT OK two: silent\n")
    assert get(server, "/")[0] == 404
    assert raw(server, b"HEAD /metrics HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")
    assert b" 405 " in raw(server, b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")


def test_with_a_token_only_those_see_metrics_who_send_it(start: Start, asked: Asked) -> None:
    server = start(TOKEN)
    assert get(server, "/metrics")[0] == 401
    for wrong in ("Bearer", "Bearer ", f"bearer {TOKEN}", f"Bearer {TOKEN}x", "Basic eDp5", "Bearer \xff"):
        assert get(server, "/metrics", Authorization=wrong)[0] == 401
    assert asked.times == 0
    assert get(server, "/metrics", Authorization=f"Bearer {TOKEN}")[0] == 200
    asked.health = SICK
    assert get(server, "/healthz") == (503, "NOT OK\n")
    assert "two: silent" in get(server, "/healthz", Authorization=f"Bearer {TOKEN}")[1]


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics SPDY/3\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"G\xe9T /metrics HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(start: Start, data: bytes) -> None:
    assert raw(start(), data).startswith(b"HTTP/1.1 400 ")


def test_huge_headers_are_refused_before_they_are_kept(start: Start) -> None:
    server = start()
    assert raw(server, b"GET /metrics HTTP/1.1\r\nX: " + b"y" * MOST_BYTES + b"\r\n\r\n")[:12] in (
        b"HTTP/1.1 431",
        b"",
    )
    raw(server, b"z" * 5_000_000)
    assert get(server, "/metrics")[0] == 200


def test_who_is_slow_is_cut_off_and_others_are_answered_meanwhile(start: Start) -> None:
    server = start(patience_s=0.5)
    slow = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    slow.sendall(b"GET /metr")
    assert get(server, "/metrics")[0] == 200
    assert slow.recv(100) == b""
    slow.close()


@pytest.mark.slow
def test_many_idle_connections_do_not_keep_others_out(start: Start) -> None:
    server = start(patience_s=60.0)
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(3 * MOST)]
    for _ in range(3):
        assert get(server, "/metrics")[0] == 200
    for one in idle:
        one.close()


def test_who_does_not_take_his_answer_is_cut_off(start: Start, asked: Asked) -> None:
    asked.metrics = lambda accept: ("text/plain", b"x" * 30_000_000)  # type: ignore[method-assign]
    server = start(patience_s=0.5)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as deaf:
        deaf.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        time.sleep(1.5)
        assert get(server, "/healthz")[0] == 200
        came = 0
        with contextlib.suppress(OSError):
            while part := deaf.recv(1 << 20):
                came += len(part)
        assert came < 30_000_000


def test_asking_all_the_time_makes_no_more_pages(start: Start, asked: Asked) -> None:
    server = start()
    began_s = time.monotonic()
    for _ in range(50):
        get(server, "/metrics")
    assert asked.times <= 2 + 2 * (time.monotonic() - began_s)


def test_a_page_that_cannot_be_made_is_an_answer_and_ends_nothing(start: Start, asked: Asked) -> None:
    def broken(accept: str) -> tuple[str, bytes]:
        raise KeyError("secret")

    asked.metrics = broken  # type: ignore[method-assign]
    server = start()
    status, text = get(server, "/metrics")
    assert status == 500
    assert "secret" not in text
    assert get(server, "/healthz")[0] == 200
    assert not asked.deaths


def test_an_address_that_is_taken_is_reported(start: Start) -> None:
    server = start()
    with pytest.raises(HostError, match="is another daemon there"):
        MetricsServer(
            ListenAddress("127.0.0.1", server.port), Pages(lambda _: ("", b""), lambda: WELL, None), print
        )


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("7323", "127.0.0.1", 7323, "127.0.0.1:7323"),
        ("0.0.0.0:80", "0.0.0.0", 80, "0.0.0.0:80"),
        ("[::1]:7323", "::1", 7323, "[::1]:7323"),
        (":9", "127.0.0.1", 9, "127.0.0.1:9"),
    ],
)
def test_addresses(text: str, host: str, port: int, shown: str) -> None:
    found = read_address(text)
    assert (found.host, found.port, str(found)) == (host, port, shown)
    assert found.is_loopback is not host.startswith("0")


@pytest.mark.parametrize(
    "text", ["", "x", "1.2.3.4", "host:80", "1.2.3.4:65536", "127.0.0.1:-1", "127.0.0.1:٣"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected PORT"):
        read_address(text)


def test_a_token_is_a_secret_of_some_length(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(InputError, match="cannot read"):
        read_token(path)
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o644)
    with pytest.raises(TrustError, match="chmod 600"):
        read_token(path)
    path.chmod(0o600)
    assert read_token(path) == TOKEN
    for text in ("short", "with space in it....", "x" * 5000):
        path.write_text(text)
        with pytest.raises((InputError, TrustError)):
            read_token(path)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text(TOKEN)
    (tmp_path / "elsewhere").chmod(0o600)
    with pytest.raises(TrustError):
        read_token(path)


def test_nothing_listens_unless_it_is_asked_for(tmp_path: Path) -> None:
    class Source(MetricsSource[None]):
        def figures(self) -> Figures:
            return {}

        def health(self) -> Health:
            return WELL

    source = Source()
    with handed_out(None, None, [], source) as port:
        assert port is None
    assert not source.is_served
    with (
        handed_out(HERE, None, [], source) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page,
    ):
        assert b"process_cpu_seconds_total" in page.read()
    assert source.is_served
    assert not source.deaths


def test_requests_are_read_strictly_and_headers_by_name() -> None:
    found = parse(b"GET /metrics?a=b HTTP/1.1\r\naccept: x\r\nAUTHORIZATION:  Bearer y \r\nOther: z")
    assert found == MetricsRequest("GET", "/metrics", "x", "Bearer y")
    assert answer(MetricsRequest("GET", "/metrics"), None, lambda: WELL, lambda _: ("k", b"b")).body == b"b"


ROOT = Path(__file__).parents[4]
UNITS = ("seconds", "bytes", "ratio", "slices")
COUNTED = ("nodes", "gangs", "jobs", "steps", "alarms", "connections", "healthy", "fds", "info")


def exported(table: tuple[Metric, ...]) -> set[str]:
    page = Exposition(table, dict).page("")[1].decode()
    return {family.name for family in text_string_to_metric_families(page)}


def test_the_page_is_what_the_table_says() -> None:
    reported = "python -m gangd.monitor.metrics_document > docs/metrics.md"
    assert (ROOT / "docs/metrics.md").read_text() == render(), reported


@pytest.mark.parametrize("table", [CONTROLLER, AGENT])
def test_all_that_is_exported_is_in_the_table_and_the_other_way_round(table: tuple[Metric, ...]) -> None:
    declared = {metric.name.removesuffix("_total") for metric in (*table, *PROCESS)}
    assert exported(table) == declared


@pytest.mark.parametrize("metric", [*CONTROLLER, *AGENT], ids=lambda metric: metric.name)
def test_names_carry_their_units(metric: Metric) -> None:
    assert re.fullmatch(r"(gangd|gang_agent)_[a-z_]+", metric.name)
    words = metric.name.removesuffix("_total").split("_")
    counts = metric.kind is MetricKind.COUNTER or any(word in COUNTED for word in words)
    assert words[-1] in UNITS or counts, metric.name
    assert not {"job", "node", "user"} & set(metric.label_names)
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
    assert (found[("replayed",)], found[("other",)]) == (3, 7)
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
    ("label", "pattern"), [("ALARMS", r"Alarm\(\s*\"([a-z_ ]+)\""), ("FAULTS", r"on_fault\(\s*\"([a-z_]+)\"")]
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


@pytest.mark.slow
def test_a_controller_exports_what_its_status_says(tmp_path: Path) -> None:
    slurm = two_jobs()
    stage = Stage(tmp_path, slurm)
    agents = [stage.agent("n1"), stage.agent("n2")]
    with handed_out(ListenAddress("127.0.0.1", 0), None, CONTROLLER, stage.loop.metrics) as port:

        def scene() -> None:
            assert scrape(port)["gangd_healthy[lease]"] in (0.0, 1.0)
            stage.welcome(*agents)
            stage.until(lambda: scrape(port)["gangd_jobs_held[freeze]"] == 1)
            stage.until(lambda: ask(port, "/healthz")[0] == 200)
            found = scrape(port)
            status = stage.status()
            assert status is not None
            assert (found["gangd_nodes[joined]"], found["gangd_gangs[busy]"]) == (2, 2)
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

        stage.act(scene)
