"""Files for a cluster in containers, and its nodes."""

from __future__ import annotations

import os
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

import deploy
from deploy.compose.engine import EngineName
from deploy.compose.inside.node import AddressReporter, outdated
from deploy.compose.inside.settings import NodeName, find_name, read_settings, to_environment
from deploy.compose.inside.slurm_says import drained_for, forget, read_addresses
from deploy.compose.inside.supervise import Supervisor
from deploy.compose.plan import ComposeState, Monitoring, compose_environment
from deploy.shape import Shape

ROOT = Path(deploy.__file__).parents[1]
FOLDER = ROOT / "deploy" / "compose"
FILES = sorted(FOLDER.glob("compose*.yaml"))
SERVICES = ["accounting", "controller", "database", "keys", "node"]

RIGHTS = {
    "keys": {"CHOWN", "DAC_OVERRIDE", "FOWNER"},
    "database": {"CHOWN", "DAC_OVERRIDE", "SETUID", "SETGID"},
    "accounting": {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL"},
    "controller": {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL", "SYS_NICE"},
    "node": {
        *("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL"),
        *("SYS_NICE", "SYS_PTRACE", "IPC_LOCK"),
    },
}

SEEN_BY = {"password": {"keys", "database", "accounting"}, "curve": {"keys", "controller", "node"}}


def loaded(name: str = "compose.yaml") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return found


SERVICE = loaded()["services"]


def test_the_main_file_has_these_services() -> None:
    assert sorted(SERVICE) == SERVICES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_container_is_privileged_or_shares_a_name_space_with_the_host(path: Path) -> None:
    for service in loaded(path.name)["services"].values():
        assert not service.get("privileged", False)
        for key in ("pid", "ipc", "uts", "userns_mode", "devices", "volumes_from", "cgroup_parent"):
            assert key not in service
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), "the loopback alone"
        assert service.get("network_mode", "none") == "none"
        assert "seccomp=unconfined" not in service.get("security_opt", [])
    assert "ALL" not in [
        right for one in loaded(path.name)["services"].values() for right in one.get("cap_add", [])
    ]


@pytest.mark.parametrize("name", SERVICES)
def test_each_right_is_given_by_itself(name: str) -> None:
    assert SERVICE[name]["cap_drop"] == ["ALL"]
    assert set(SERVICE[name]["cap_add"]) == RIGHTS[name]
    assert "no-new-privileges:true" in SERVICE[name]["security_opt"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_right_says_why(path: Path) -> None:
    lines = path.read_text().splitlines()
    for place, line in enumerate(lines):
        if re.match(r"\s+- [A-Z_]{3,}\b", line):
            shared = line.strip() in ("- SETGID", "- FOWNER")  # with the reason of the line above
            assert " # " in line or (shared and " # " in lines[place - 1]), f"{path.name}: {line}"


def test_cgroups_are_reached_by_one_right_or_by_one_folder() -> None:
    v1, v2 = loaded("compose.cgroup1.yaml")["services"], loaded("compose.cgroup2.yaml")["services"]
    assert list(v1) == list(v2) == ["node"]
    assert v1["node"] == {"volumes": ["/sys/fs/cgroup/freezer/${OSUB_CLUSTER:-osub}:/sys/fs/cgroup/freezer"]}
    assert v2["node"]["cap_add"] == ["SYS_ADMIN"]


@pytest.mark.parametrize("name", SERVICES)
def test_only_named_volumes_are_mounted_and_keys_by_those_who_need_them(name: str) -> None:
    volumes = dict(word.split(":", 1) for word in SERVICE[name].get("volumes", []))
    assert set(volumes) <= set(loaded()["volumes"])
    for secret, seen_by in SEEN_BY.items():
        assert (secret in volumes) == (name in seen_by), f"{secret} in {name}"
    for secret in ("munge", "curve", "password"):
        if secret in volumes and name != "keys":
            assert volumes[secret].endswith(":ro")


WATCH = loaded("compose.monitoring.yaml")


def test_ports_are_those_of_prometheus_and_grafana_alone() -> None:
    services = [(path.name, loaded(path.name)["services"].items()) for path in FILES]
    published = {(file, name) for file, found in services for name, one in found if "ports" in one}
    assert published == {("compose.monitoring.yaml", name) for name in ("prometheus", "grafana")}


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_who_watches_has_no_right_and_writes_its_own_volume_alone(name: str) -> None:
    service = WATCH["services"][name]
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["read_only"] is True
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["user"].split(":")[0] not in ("0", "root")
    assert [word for word in service["volumes"] if not word.endswith(":ro")] == [
        "prometheus-data:/prometheus" if name == "prometheus" else "grafana-data:/var/lib/grafana"
    ]
    assert not {"curve", "munge", "password"} & {word.split(":")[0] for word in service["volumes"]}
    assert service["labels"] == WATCH["x-labels"] | {"osub.role": name}


def test_grafana_has_no_default_password_and_asks_no_one_outside() -> None:
    environment = WATCH["services"]["grafana"]["environment"]
    assert environment["GF_SECURITY_ADMIN_PASSWORD__FILE"] == "/etc/osub/password"
    assert "GF_SECURITY_ADMIN_PASSWORD" not in environment
    assert {environment[key] for key in environment if "CHECK_FOR" in key or "REPORT" in key} == {"false"}
    assert "GF_AUTH_ANONYMOUS_ENABLED" not in environment


def test_no_volume_is_called_as_another_begins() -> None:
    names = [name for path in FILES for name in loaded(path.name).get("volumes", {})]
    assert not [(one, other) for one in names for other in names if one != other and other.startswith(one)]


def test_what_watches_is_found_again_by_its_labels() -> None:
    for thing in [*WATCH["volumes"].values(), *WATCH["networks"].values()]:
        assert thing["labels"] == WATCH["x-labels"] == loaded()["x-labels"]


def test_everything_carries_the_labels_by_which_it_is_found_again() -> None:
    for name, service in SERVICE.items():
        assert service["labels"] == loaded()["x-labels"] | {"osub.role": name}
    for thing in [*loaded()["volumes"].values(), *loaded()["networks"].values()]:
        assert thing["labels"] == loaded()["x-labels"]


def test_nothing_reaches_in_or_out() -> None:
    assert loaded()["networks"]["cluster"]["internal"] is True
    assert all(service.get("networks", ["cluster"]) == ["cluster"] for service in SERVICE.values())


@pytest.mark.parametrize("name", SERVICES)
def test_daemons_have_an_init_and_time_to_end(name: str) -> None:
    assert SERVICE[name]["init"] is True
    assert SERVICE[name]["stop_grace_period"] == "40s"
    assert SERVICE[name]["restart"] == ("no" if name == "keys" else "unless-stopped")


def test_what_is_looked_at_is_looked_at_each_second_while_it_starts() -> None:
    watched = {name for name, service in SERVICE.items() if "healthcheck" in service}
    assert watched == {"accounting", "controller", "database", "node"}
    quick = loaded("compose.start-interval.yaml")["services"]
    assert quick == {name: {"healthcheck": {"start_interval": "1s"}} for name in watched}
    assert all("start_interval" not in SERVICE[name]["healthcheck"] for name in watched), "Docker < 25"


def test_every_variable_has_a_default_and_is_set_by_up() -> None:
    text = "".join(path.read_text() for path in FILES)
    asked = set(re.findall(r"\$\{(OSUB_\w+)", text))
    assert set(re.findall(r"(?<!\$)\$\{(OSUB_\w+):-", text)) == asked
    state = ComposeState(
        home="/h", engine=EngineName.DOCKER, debian=13, shape=Shape(nodes=2, cores=1, virtual=True),
        most_nodes=64, memory_mib=1, accounting=True,
        monitoring=Monitoring(prometheus_image="p", prometheus_port=1, grafana_image=None, grafana_port=2),
    )  # fmt: skip
    assert asked <= set(compose_environment(state))


def test_the_defaults_are_a_cluster() -> None:
    shown = loaded()["x-environment"]
    defaults = {key: re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", value) for key, value in shown.items()}
    settings = read_settings(defaults)
    assert to_environment(settings) == defaults
    assert settings == read_settings({}), "the containers' own defaults are the same"


def test_no_image_has_a_key() -> None:
    text = (FOLDER / "Containerfile").read_text()
    cluster = text.split("FROM debian AS daemons")[1].split("FROM debian AS database")[0]
    assert "rm -rf /etc/munge/munge.key" in cluster.split("COPY")[0], "in the layer that installs munge"
    assert [line for line in cluster.splitlines() if line.startswith("COPY")] == [
        "COPY --from=builder /opt/osub /opt/osub",
        "COPY deploy/compose/inside/health-check.sh /usr/local/sbin/osub-health-check",
    ]
    assert not re.search(
        r"(?i)password|secret\b|BEGIN .*KEY", text.replace("Nothing in them is a secret", "")
    )
    assert sorted(path.name for path in (FOLDER / "site").iterdir()) == ["README"]


def test_the_context_is_a_list_of_what_goes_in() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    wanted = re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", (FOLDER / "Containerfile").read_text())
    for word in " ".join(wanted).split():
        top = word.split("/")[0]
        assert any(fnmatch(f"!{top}", rule) for rule in rules) or top in ("${LOCK}", "."), word


@pytest.mark.parametrize(
    "path", [FOLDER / "bootstrap-base", *FOLDER.glob("inside/*.sh")], ids=lambda p: p.name
)
def test_scripts_are_posix_and_can_be_run(path: Path) -> None:
    assert os.access(path, os.X_OK)
    assert subprocess.run(["sh", "-n", str(path)], check=False).returncode == 0
    assert path.read_text().startswith("#!/bin/sh\n")


@pytest.mark.parametrize(
    ("words", "said"), [(["11"], "the release must be 12 or 13"), (["$(id)"], "the release must be 12 or 13")]
)
def test_bootstrap_base_refuses_what_it_does_not_know(words: list[str], said: str) -> None:
    done = subprocess.run(
        ["sh", str(FOLDER / "bootstrap-base"), *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (2, True, 1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["osub-abcde-node-3.osub-abcde_cluster"], NodeName("osub-abcde-node-3", 3)),
        (["osub-abcde_node_12.dns.podman"], NodeName("osub-abcde_node_12", 12)),
        (["18f343d20680", "x-node-1"], NodeName("x-node-1", 1)),
        (["controller"], None),
        (["x-node-0"], None),
        (["x-node-1;reboot"], None),
        (["x-node-1\n"], None),
        (["-node-1"], None),
        ([], None),
    ],
)
def test_a_node_has_the_name_that_dns_gives_it(words: list[str], expected: NodeName | None) -> None:
    assert find_name(words) == expected


def test_slurm_forgets_who_had_the_address_before() -> None:
    known = {"c-node-1": "10.0.0.2", "c-node-2": "10.0.0.3", "c-node-3": "10.0.0.4"}
    assert outdated("c-node-4", "10.0.0.3", known, has_left=False) == ["c-node-2"]
    assert outdated("c-node-1", "10.0.0.3", known, has_left=False) == ["c-node-1", "c-node-2"]
    assert outdated("c-node-3", "10.0.0.4", known, has_left=False) == []
    assert outdated("c-node-3", "10.0.0.4", known, has_left=True) == ["c-node-3"]
    assert outdated("c-node-4", "10.0.0.5", known, has_left=True) == []


@pytest.mark.parametrize(
    ("state", "reason", "has_left"),
    [
        ("IDLE+DRAIN+DYNAMIC_NORM", "Reason=its container stops [root@2026-11-24T16:00:00]", True),
        ("DOWN+DRAIN+DYNAMIC_NORM", "Reason=its container stops", True),
        ("IDLE+DRAIN", "Reason=disk [root@2026-11-24T16:00:00]", False),
        ("IDLE+DRAIN", "Reason=its container stops, says he [root@2026-11-24T16:00:00]", False),
        ("DOWN", "Reason=its container stops [root@2026-11-24T16:00:00]", False),
        ("IDLE", "", False),
    ],
)
def test_a_node_that_left_is_distinguished_from_one_that_a_user_drained(
    state: str, reason: str, has_left: bool
) -> None:
    line = f"NodeName=c-node-1 Arch=x86_64 NodeAddr=10.0.0.2 State={state} ThreadsPerCore=1 {reason}\n"
    assert drained_for(line, "its container stops") is has_left
    assert not drained_for("", "its container stops")


def test_a_node_that_has_come_back_meanwhile_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [{"c-node-1": "10.0.0.2"}, {"c-node-1": "10.0.0.9"}]
    seen: list[tuple[str, ...]] = []

    def scontrol(*words: str) -> bool:
        seen.append(words)
        return words[0] != "delete"

    monkeypatch.setattr("deploy.compose.inside.slurm_says.addresses", lambda: known.pop(0))
    monkeypatch.setattr("deploy.compose.inside.slurm_says.scontrol", scontrol)
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert forget("c-node-1", "10.0.0.2")
    assert [words[0] for words in seen] == ["update", "delete"], "once, while it had the old address"
    assert not known


def test_slurmd_of_a_node_that_slurm_does_not_know_is_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, answer = [0.0], [None, {}, {}, {}, {"c-node-1": "10.0.0.2"}]
    ended: list[str] = []
    supervisor = Supervisor.__new__(Supervisor)
    monkeypatch.setattr(Supervisor, "end_one", lambda _, name: ended.append(name))
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    monkeypatch.setattr("deploy.compose.inside.node.own_address", lambda: "10.0.0.2")
    monkeypatch.setattr("deploy.compose.inside.node.addresses", lambda: answer.pop(0))
    address = AddressReporter("c-node-1", supervisor)
    for at_s, expected in ((0.0, 0), (100.0, 0), (130.0, 0), (170.0, 1), (180.0, 1), (400.0, 1)):
        now_s[0] = at_s
        address.look()
        assert len(ended) == expected, at_s
    assert address.registered == "10.0.0.2"
    assert not answer


def test_addresses_are_read_from_what_slurm_prints() -> None:
    text = (
        "NodeName=c-node-1 Arch=x86_64 CPUTot=1 NodeAddr=10.0.0.2 NodeHostName=ab Comment=x NodeAddr=9.9 y\n"
        "No nodes in the system\nNodeName=c-node-2 State=DOWN\n"
    )
    assert read_addresses(text) == {"c-node-1": "10.0.0.2"}
