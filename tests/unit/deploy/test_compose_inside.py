"""What runs in the containers: settings, Slurm's configuration, keys, cgroups, watched daemons."""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.compose.inside import cgroups, keys, monitoring
from deploy.compose.inside import slurm_says as ready
from deploy.compose.inside.accounting import write_secret_conf
from deploy.compose.inside.conf import cgroup_conf, gangd_toml, node_options, slurm_conf, slurmdbd_conf
from deploy.compose.inside.settings import (
    NodeName,
    find_name,
    read_settings,
    to_environment,
    wait_less_for_names,
)
from deploy.compose.inside.supervise import ForegroundDaemon, Supervisor, wait_for
from foundation.errors import ClusterError, HostError, OsubError, UsageError
from foundation.slurm.hosts import expand_hosts

ROOT = Path(__file__).parents[3]


def test_settings_come_back_as_they_were_sent() -> None:
    reported = {
        "OSUB_MOST_NODES": "100",
        "OSUB_QUEUES": "mq",
        "OSUB_INTERACTIVE_NODES": "3",
        "OSUB_SETTINGS": "A=1\nB=$x",
    }
    settings = read_settings(reported)
    assert settings.shape.settings == ("A=1", "B=$x")
    assert read_settings(to_environment(settings)) == settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OSUB_CLUSTER", "a b"),
        ("OSUB_CLUSTER", "a\nSlurmUser=root"),
        ("OSUB_MOST_NODES", "0"),
        ("OSUB_MOST_NODES", "1e3"),
        ("OSUB_MOST_NODES", "513"),
        ("OSUB_MOST_NODES", "\N{ARABIC-INDIC DIGIT TWO}"),
        ("OSUB_PINNED", "yes"),
        ("OSUB_GANG", "both"),
        ("OSUB_QUANTUM_MS", "nan"),
        ("OSUB_QUANTUM_MS", "1"),
        ("OSUB_SETTINGS", "NodeName=x\\"),
        ("OSUB_SETTINGS", "no setting"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named_or_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError):
        read_settings({name: value})


@given(st.dictionaries(st.sampled_from(sorted(to_environment(read_settings({})))), st.text(max_size=20)))
def test_any_environment_is_read_or_refused(environment: dict[str, str]) -> None:
    try:
        settings = read_settings(environment)
    except OsubError:
        return
    for line in slurm_conf(settings, "v1").splitlines():
        assert line.startswith("#") or "=" in line


def test_slurm_conf_lists_no_node_and_lets_so_many_come() -> None:
    text = slurm_conf(read_settings({"OSUB_MOST_NODES": "70"}), "v1")
    assert "\nNodeName=" not in text
    assert "\nMaxNodeCount=70\n" in text
    assert "PartitionName=main Nodes=ALL Default=YES OverSubscribe=FORCE:2" in text
    assert "\nAccountingStorageHost=accounting\n" in text
    assert "JobAcctGatherType=jobacct_gather/linux" in text, "v1: no hierarchy but the freezer can be written"


def test_interactive_nodes_are_the_first_ones() -> None:
    settings = read_settings(
        {"OSUB_QUEUES": "mq", "OSUB_INTERACTIVE_NODES": "2", "OSUB_MULTIPLICITY_INTERACTIVE": "4"}
    )
    text = slurm_conf(settings, "v2")
    assert "NodeSet=interactive Feature=interactive\n" in text
    assert "PartitionName=interactive Nodes=interactive Default=NO OverSubscribe=FORCE:4" in text
    assert [node_options(settings, number).split("Feature=")[1] for number in (1, 2, 3)] == [
        "interactive",
        "interactive",
        "batch",
    ]


def test_the_users_own_settings_win() -> None:
    text = slurm_conf(read_settings({"OSUB_SETTINGS": "slurmdtimeout=99"}), "v1")
    assert "slurmdtimeout=99\n" in text
    assert "SlurmdTimeout=" not in text


def test_without_accounting_no_one_waits_for_it() -> None:
    assert "AccountingStorage" not in slurm_conf(read_settings({"OSUB_ACCOUNTING": "0"}), "v1")


@pytest.mark.parametrize(
    ("release", "word"), [((22, 5), "CgroupAutomount=yes"), ((24, 11), "EnableControllers=yes")]
)
def test_with_v2_slurm_needs_no_systemd_and_hands_controllers_down(
    release: tuple[int, int], word: str
) -> None:
    lines = cgroup_conf("v2", release).splitlines()
    assert {"CgroupPlugin=cgroup/v2", "IgnoreSystemd=yes", word} <= set(lines)
    assert "Automount" not in cgroup_conf("v1", release), "a defunct option since 24.05"


def test_gangd_gets_the_hold_mode() -> None:
    text = gangd_toml(read_settings({"OSUB_HOLD": "freeze", "OSUB_QUANTUM_MS": "100"}))
    assert 'hold = "freeze"\nquantum_ms = 100\n' in text


def test_gangd_hands_out_metrics_where_it_is_watched_and_to_who_has_the_token() -> None:
    assert "metrics" not in gangd_toml(read_settings({}))
    document = tomllib.loads(gangd_toml(read_settings({"OSUB_MONITORING": "1"})))
    assert document["metrics"] == "0.0.0.0:7323"
    assert document["metrics_token"] == "/etc/gangd/metrics.token"


@pytest.fixture
def root_owns(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container it is root who gives files to their owners; a plain user's tests keep them."""
    if os.geteuid() != 0:
        monkeypatch.setattr("os.chown", lambda *_: None)
        monkeypatch.setattr("os.fchown", lambda *_: None)


def test_prometheus_asks_gangd_and_each_node_that_gangd_knows() -> None:
    document = json.loads(monitoring.prometheus_yml())
    jobs = {one["job_name"]: one for one in document["scrape_configs"]}
    assert set(jobs) == {"gangd", "gang-agent"}, "the names that the alerts know"
    assert jobs["gangd"]["static_configs"] == [{"targets": ["controller:7323"]}]
    status = {"nodes": [{"node": f"c-node-{number}", "agent": "joined"} for number in (10, 2)]}
    assert json.loads(monitoring.agent_targets(json.dumps(status).encode())) == [
        {"targets": ["c-node-2:7324", "c-node-10:7324"]}
    ]


@pytest.mark.usefixtures("root_owns")
@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"nodes": [{"node": 3}]}', b"\xff"])
def test_what_is_no_status_of_gangd_changes_no_target(content: bytes, tmp_path: Path) -> None:
    status, targets = tmp_path / "status.json", tmp_path / "agents.json"
    monitoring.write_targets(status, targets)
    assert not targets.exists(), "there is no status yet"
    status.write_bytes(b'{"nodes": [{"node": "c-node-1"}, {"node": "http://elsewhere"}]}')
    monitoring.write_targets(status, targets)
    before = targets.read_text()
    assert json.loads(before) == [{"targets": ["c-node-1:7324"]}]
    status.write_bytes(content)
    monitoring.write_targets(status, targets)
    assert targets.read_text() == before


def test_what_watches_can_read_its_own_and_a_password_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.compose.inside.monitoring._PROMETHEUS", os.geteuid())
    monkeypatch.setattr("deploy.compose.inside.monitoring._GRAFANA", os.geteuid())
    monkeypatch.setattr("os.chown", lambda *_: None)
    monkeypatch.setattr("os.fchown", lambda *_: None)
    for name in ("targets", "prometheus", "prometheus-data", "grafana", "grafana-data"):
        (tmp_path / name).mkdir()
    monitoring.make_all("a-token", tmp_path)
    password = (tmp_path / "grafana/password").read_text()
    monitoring.make_all("a-token", tmp_path)
    assert (tmp_path / "grafana/password").read_text() == password
    assert len(password) >= 20
    secret = [tmp_path / "grafana/password", tmp_path / "prometheus/token"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in secret] == [0o400, 0o400]
    assert (tmp_path / "targets/agents.json").read_text() == "[]\n"
    shown = (ROOT / "deploy/monitoring/dashboard.json").read_text()
    assert (tmp_path / "grafana/dashboards/gangd.json").read_text() == shown
    assert (tmp_path / "prometheus/alerts.yaml").read_text() == (
        ROOT / "deploy/monitoring/alerts.yaml"
    ).read_text()


# https://grafana.com/docs/grafana/latest/administration/provisioning
SOURCE = {
    *("name", "type", "access", "orgId", "uid", "url", "user", "database", "basicAuth", "basicAuthUser"),
    *("withCredentials", "isDefault", "jsonData", "secureJsonData", "version", "editable"),
}
PROVIDER = {
    *("name", "orgId", "folder", "folderUid", "type", "disableDeletion", "updateIntervalSeconds"),
    *("allowUiUpdates", "options"),
}


def test_grafana_is_configured_with_the_words_that_it_knows() -> None:
    files = monitoring.provisioning()
    document = json.loads(files["provisioning/datasources/osub.yaml"])
    [source] = document["datasources"]
    assert set(source) <= SOURCE
    assert (document["apiVersion"], source["type"], source["url"]) == (
        1,
        "prometheus",
        "http://prometheus:9090",
    )
    assert source["isDefault"] is True, "what the dashboard's variable takes"
    document = json.loads(files["provisioning/dashboards/osub.yaml"])
    [provider] = document["providers"]
    assert set(provider) <= PROVIDER
    assert (document["apiVersion"], provider["type"]) == (1, "file")
    assert not [text for text in files.values() if "$__" in text and "apiVersion" in text]


def test_a_cluster_is_whole_when_its_nodes_and_no_others_are_idle_with_an_agent() -> None:
    assert ready.Ready(3, 3, None).is_whole(3)
    assert ready.Ready(3, 3, 3).is_whole(3)
    assert not ready.Ready(3, 4, 3).is_whole(3), "one that is gone is still known"
    assert not ready.Ready(3, 3, 2).is_whole(3)
    assert ready.Ready(3, 3, 2).in_words(3) == "2 of 3 agents have joined"
    assert ready.Ready(1, 3, 0).in_words(3) == "1 of 3 nodes is idle"
    assert ready.read_ready('{"idle": 1, "known": 2, "joined": null, "ready": ["a"]}') == ready.Ready(
        1, 2, None, ("a",)
    )
    for text in ("", "[]", '{"idle": "x"}', "Traceback"):
        assert ready.read_ready(text) is None
    status = '{"nodes": [{"node": "a", "agent": "joined"}, {"node": "b", "agent": "lost"}]}'
    assert ready.joined_nodes(status) == {"a"}
    assert ready.joined_nodes("{") == set()
    assert ready.joined_nodes('{"nodes": 3}') == set()


def test_names_that_no_one_knows_fail_soon(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text("search dns.podman\nnameserver 10.89.0.1\nnameserver 10.9.9.9\noptions ndots:0\n")
    wait_less_for_names(path)
    once = path.read_text()
    assert once.splitlines() == [
        "search dns.podman",
        "options ndots:0",
        "nameserver 10.89.0.1",
        "options timeout:1 attempts:3",
    ]
    wait_less_for_names(path)
    assert path.read_text() == once
    wait_less_for_names(tmp_path / "none")


@pytest.mark.usefixtures("root_owns")
def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    keys.make_secret(path, b"first", os.geteuid())
    keys.make_secret(path, b"second", os.geteuid())
    assert path.read_bytes() == b"first"
    assert stat.S_IMODE(path.stat().st_mode) == 0o400


def test_no_one_copies_keys_before_all_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.compose.inside.keys.CURVE", tmp_path)
    monkeypatch.setattr("deploy.compose.inside.keys.METRICS_TOKEN", tmp_path / "metrics.token")
    monkeypatch.setattr("os.chown", lambda *_: None)
    monkeypatch.setattr("os.fchown", lambda *_: None)
    monkeypatch.setattr("pwd.getpwnam", lambda _: pwd.getpwuid(os.geteuid()))
    seen: list[bool] = []

    def make(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        seen.append(keys.are_made("c", 2, tmp_path))
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr("subprocess.run", make)
    keys.make_all("c", 2)
    assert seen == [False], "while they are being made"
    assert keys.are_made("c", 2, tmp_path)
    assert not keys.are_made("c", 3, tmp_path), "a node more has no key yet"


def test_keys_are_made_for_the_names_of_every_compose() -> None:
    names = expand_hosts(keys.agent_names("osub-abcde", 12))
    assert len(names) == 24
    assert {find_name([name]) for name in names} == {NodeName(name, int(name[16:])) for name in names}


def test_a_node_copies_its_own_keys_and_no_other(tmp_path: Path) -> None:
    source, own = tmp_path / "curve", tmp_path / "gangd" / "keys"
    (source / "agents").mkdir(parents=True)
    assert not keys.copy_agent_keys("n-node-1", source, own)
    for name in ("controller.key", "controller.key_secret"):
        (source / name).write_text(name)
    for node in ("n-node-1", "n-node-2"):
        for suffix in ("key", "key_secret"):
            (source / "agents" / f"{node}.{suffix}").write_text(node)
    assert keys.copy_agent_keys("n-node-1", source, own)
    found = sorted(str(path.relative_to(own)) for path in own.rglob("*") if path.is_file())
    assert found == ["agents/n-node-1.key", "agents/n-node-1.key_secret", "controller.key"]
    assert all(stat.S_IMODE((own / name).stat().st_mode) == 0o600 for name in found)


def test_slurmdbd_conf_is_for_its_user_alone(tmp_path: Path) -> None:
    (path := tmp_path / "slurmdbd.conf").write_text("older, and readable")
    write_secret_conf(path, slurmdbd_conf("word"), os.geteuid())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "StoragePass=word\n" in path.read_text()


def v2_root(folder: Path) -> Path:
    (folder / "cgroup.controllers").write_text("cpu memory pids\n")
    (folder / "cgroup.procs").write_text("")
    (folder / "cgroup.subtree_control").write_text("")
    return folder


def test_a_v2_root_is_emptied_and_its_controllers_are_handed_down(tmp_path: Path) -> None:
    root = v2_root(tmp_path)
    cgroups.make_ready(root)
    assert (root / "init").is_dir()
    assert (root / "cgroup.subtree_control").read_text() == "+pids", "the last of them, in a plain file"


def test_the_hosts_own_cgroups_are_left_alone(tmp_path: Path) -> None:
    reported = tmp_path / "cgroup"
    v2_root(tmp_path)
    for text in ("0::/\n", "0::/init\n", "1:name=systemd:/\n0::/\n"):
        reported.write_text(text)
        cgroups.refuse_shared(reported, tmp_path)
    reported.write_text("0::/system.slice/docker-0123.scope\n")
    with pytest.raises(HostError, match="default-cgroupns-mode"):
        cgroups.refuse_shared(reported, tmp_path)


def test_processes_move_into_the_leaf(tmp_path: Path) -> None:
    root = v2_root(tmp_path)
    (root / "cgroup.procs").write_text("7\n8\n")
    (root / "init").mkdir()
    cgroups.empty_root(root)
    assert (root / "init" / "cgroup.procs").read_text() == "8"


def test_without_the_freezer_the_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"compose\.cgroup1\.yaml"):
        cgroups.make_ready(tmp_path)


def test_folders_that_a_killed_container_left_are_removed(tmp_path: Path) -> None:
    job = tmp_path / "freezer" / "slurm_n-node-1" / "uid_0" / "job_5" / "step_0"
    job.mkdir(parents=True)
    (other := tmp_path / "freezer" / "slurm_n-node-2" / "uid_0").mkdir(parents=True)
    assert cgroups.clear_left("n-node-1", tmp_path) == []
    assert not (tmp_path / "freezer" / "slurm_n-node-1").exists()
    assert other.is_dir()


@pytest.mark.slow
def test_daemons_are_started_anew_and_ended_last_first(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = (
        "import sys, signal, time\n"
        "name, log = sys.argv[1:]\n"
        "def end(*_):\n    open(log, 'a').write(f'{name} ends\\n'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "open(log, 'a').write(f'{name} begins\\n')\n"
        "time.sleep(60)\n"
    )
    # In a process of its own: it takes SIGTERM for itself.
    code = (
        "import os, signal, sys\n"
        "from deploy.compose.inside.supervise import ForegroundDaemon, Supervisor\n"
        f"script, log = {script!r}, {str(log)!r}\n"
        "one = Supervisor()\n"
        "for name in ('first', 'second'):\n"
        "    one.start(ForegroundDaemon(name=name, words=[sys.executable, '-c', script, name, log]))\n"
        "killed = []\n"
        "def tick():\n"
        "    text = open(log).read() if os.path.exists(log) else ''\n"
        "    if not killed and 'first begins' in text and 'second begins' in text:\n"
        "        killed.append(one.daemons[0].process.pid); one.daemons[0].process.kill()\n"
        "    elif text.count('first begins') == 2:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "assert one.watch(tick, 0.05)\n"
        "one.end()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert log.read_text().splitlines()[-2:] == ["second ends", "first ends"]
    assert log.read_text().count("first begins") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_needed", "status", "said"),
    [
        (True, 7, "x ended 5 times in a row, last by exit code 1: giving up"),
        (False, 0, "started again in 0 s"),
    ],
)
def test_a_daemon_that_never_runs_is_given_up_if_others_need_it(
    *, is_needed: bool, status: int, said: str
) -> None:
    code = (
        "import deploy.backoff as b, deploy.compose.inside.supervise as s\n"
        "b.FIRST_S = 0.0\n"
        f"x = s.ForegroundDaemon(name='x', words=['false'], is_needed={is_needed})\n"
        "one = s.Supervisor(); one.start(x)\n"
        "def tick(): one.is_ending = x.short_runs > 7\n"
        "raise SystemExit(7 if one.watch(tick, poll_s=0.01) is False else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == status
    assert said in done.stderr


def test_waiting_ends_and_says_for_what() -> None:
    with pytest.raises(ClusterError, match="the sun: not within 0 s"):
        wait_for("the sun", lambda: None, within_s=0.0)


@pytest.mark.parametrize("words", [[], ["root"], ["node", "--help"]])
def test_a_role_that_is_none_is_refused(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "deploy.compose.inside", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_the_containers_need_nothing_but_what_a_node_installs() -> None:
    code = "import sys, deploy.compose.inside.__main__; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    heavy = {"psutil", "typer", "rich", "polars", "numpy", "numba", "plotly"}
    assert not heavy & {name.partition(".")[0] for name in done.stdout.split()}
    assert Supervisor is not None
    assert ForegroundDaemon is not None


@pytest.mark.parametrize(
    ("has_v2", "plugins", "lacks"),
    [
        (True, ("cgroup_v1", "cgroup_v2", "select_cons_tres"), None),
        (True, ("cgroup_v1", "select_cons_tres"), "cgroup_v2.so"),
        (False, ("cgroup_v2", "select_cons_tres"), "cgroup_v1.so"),
        (True, (), None),
    ],
)
def test_a_slurm_without_the_plugin_for_the_hosts_cgroups_is_refused_in_a_line(
    tmp_path: Path, *, has_v2: bool, plugins: tuple[str, ...], lacks: str | None
) -> None:
    root, folder = tmp_path / "cgroup", tmp_path / "usr" / "lib" / "x86_64-linux-gnu" / "slurm-wlm"
    root.mkdir()
    folder.mkdir(parents=True)
    if has_v2:
        (root / "cgroup.controllers").touch()
    for name in plugins:
        (folder / f"{name}.so").touch()
    if lacks is None:
        cgroups.refuse_missing_plugin(root, tmp_path / "usr")
        return
    with pytest.raises(HostError) as refused:
        cgroups.refuse_missing_plugin(root, tmp_path / "usr")
    assert f"no {lacks} in {folder}" in str(refused.value)
    assert "\n" not in str(refused.value)
