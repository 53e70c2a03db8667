"""A cluster in containers, from the host."""

from __future__ import annotations

import json
import os
import shutil
import socket
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploy.compose import image, plan
from deploy.compose.cluster import ComposeCluster, Options, StuckError, live_folders, wait_until_whole
from deploy.compose.containers import read_containers
from deploy.compose.engine import Engine, EngineFacts, EngineName, find_engine, last_word, read_facts
from deploy.compose.inside.slurm_says import Ready
from deploy.local import LocalCluster
from deploy.local.home import take_home
from deploy.local.layout import names_of
from deploy.shape import GangKind, Shape
from foundation.errors import ClusterError, HostError, InputError, OsubError, TrustError
from foundation.slurm.run_command import CommandOutput
from tests.fixtures.cli import Cli
from tests.fixtures.fake_engine import DOCKER_INFO, FakeEngine

FACTS = EngineFacts(hierarchy="v1", cpus=2, memory_mib=8192, knows_start_interval=False)
SHAPE = Shape(nodes=3, cores=1, virtual=True, multiplicity=2, gang=GangKind.OSUB)

WATCHED = plan.Monitoring(
    prometheus_image="osub-prometheus:1", prometheus_port=9091, grafana_image=None, grafana_port=3001
)


def state_in(home: Path, **changes: Any) -> plan.ComposeState:
    state = plan.ComposeState(
        home=str(home), engine=EngineName.DOCKER, debian=13, shape=SHAPE, most_nodes=64,
        memory_mib=65536, accounting=True,
    )  # fmt: skip
    return msgspec.structs.replace(state, **changes)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    (folder := tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return FakeEngine(folder)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder with a cluster of three nodes in it."""
    folder = tmp_path / "state"
    with take_home(folder, create=True) as made:
        assert made is not None
        made.furnish((), 0o700)
        plan.write_compose_state(made, state_in(folder))
    return folder


def populate(engine: FakeEngine, home: Path) -> str:
    cluster = names_of(home).cluster
    for role in ("controller", "accounting", "database", "node"):
        engine.add(f"{cluster}-{role}-1", role, str(home), cluster)
    labels = {"osub.home": str(home), "osub.cluster": cluster}
    engine.change(volumes={f"{cluster}_munge": labels}, networks={f"{cluster}_cluster": labels})
    return cluster


V2 = replace(FACTS, hierarchy="v2")
PODMAN_HOST = {"cgroupVersion": "v2", "cpus": 2, "memTotal": 8 << 30}
PODMAN_INFO = {"host": PODMAN_HOST}
ROOTLESS_DOCKER = DOCKER_INFO | {"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}
ROOTLESS_PODMAN = {"host": PODMAN_HOST | {"security": {"rootless": True}}}


@pytest.mark.parametrize(
    ("name", "info", "api", "expected"),
    [
        ("docker", DOCKER_INFO, (1, 41), FACTS),
        ("docker", DOCKER_INFO | {"CgroupVersion": "2"}, (1, 44), replace(V2, knows_start_interval=True)),
        ("podman", PODMAN_INFO, (0, 0), V2),
        ("docker", ROOTLESS_DOCKER, (1, 41), replace(FACTS, is_rootless=True)),
        ("podman", ROOTLESS_PODMAN, (0, 0), replace(V2, is_rootless=True)),
        ("podman", {"host": PODMAN_HOST | {"security": 1}}, (0, 0), None),
        ("docker", {"CgroupVersion": "1"}, (1, 44), None),
        ("docker", ["x"], (1, 44), None),
        ("podman", DOCKER_INFO, (1, 44), None),
    ],
)
def test_an_engine_says_what_it_offers(
    name: str, info: object, api: tuple[int, int], expected: EngineFacts | None
) -> None:
    assert read_facts(EngineName(name), json.dumps(info), api) == expected


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Cannot connect to the daemon", "is its daemon running"),
        ("permission denied while trying to connect to the Docker daemon socket", "group docker"),
    ],
)
def test_an_engine_that_does_not_answer_says_why(engine: FakeEngine, said: str, advice: str) -> None:
    engine.change(away=said)
    with pytest.raises(HostError, match=rf"docker does not answer \({said}\): .*{advice}"):
        find_engine(EngineName.DOCKER)


@pytest.mark.slow
def test_a_rootless_engine_is_refused_where_nodes_need_the_hosts_freezer(engine: FakeEngine) -> None:
    engine.change(info=ROOTLESS_DOCKER)
    with pytest.raises(HostError, match=r"docker is rootless here.*cgroup v1.*as root"):
        find_engine(EngineName.DOCKER)
    find_engine(EngineName.DOCKER, with_compose=False)  # to take a cluster down
    engine.change(info=ROOTLESS_DOCKER | {"CgroupVersion": "2"})
    assert find_engine(EngineName.DOCKER).facts.is_rootless


@pytest.mark.parametrize(
    "said",
    [
        "Error: container-init binary not found on the host\nError: no container with name or ID\n125\n",
        "ERROR: for keys  no container-init\nERROR: Encountered errors while bringing up the project.\n",
        " Container osub-a-keys-1  Error\nError response from daemon: no container-init\n",
    ],
)
def test_of_the_errors_of_a_compose_the_first_is_the_cause(said: str) -> None:
    assert "container-init" in last_word(CommandOutput(1, "", said), of_several=0)


def test_an_engine_that_is_missing_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="apt-get install podman"):
        find_engine(EngineName.PODMAN)


@pytest.mark.parametrize(
    ("there", "lacking"),
    [
        (("catatonit", "netavark"), "aardvark-dns"),
        (("netavark", "aardvark-dns"), "catatonit"),
        ((), "catatonit netavark aardvark-dns"),
    ],
)
def test_a_podman_without_a_helper_says_which_package_lacks(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], lacking: str
) -> None:
    engine.folder.joinpath("docker").rename(engine.folder / "podman")
    (engine.folder / "helpers").mkdir()
    for name in there:
        (engine.folder / "helpers" / name).touch()
    monkeypatch.setattr("deploy.compose.engine.HELPERS", (engine.folder / "helpers",))
    with pytest.raises(HostError, match=f"apt-get install {lacking}$"):
        find_engine(EngineName.PODMAN)
    engine.change(info=PODMAN_INFO)
    find_engine(EngineName.PODMAN, with_compose=False)  # to take a cluster down


def test_an_engine_without_compose_says_what_was_tried(engine: FakeEngine) -> None:
    engine.change(compose=False)
    with pytest.raises(HostError, match="neither `docker compose` nor `docker-compose` works"):
        find_engine(EngineName.DOCKER)
    assert find_engine(EngineName.DOCKER, with_compose=False).compose == ()


def test_compose_gets_the_files_that_fit_the_host(tmp_path: Path) -> None:
    def names(facts: EngineFacts) -> list[str]:
        return [path.name for path in plan.compose_files(state_in(tmp_path), facts)]

    assert names(FACTS) == ["compose.yaml", "compose.cgroup1.yaml"]
    new = replace(FACTS, hierarchy="v2", knows_start_interval=True)
    assert names(new) == ["compose.yaml", "compose.cgroup2.yaml", "compose.start-interval.yaml"]
    assert all(path.is_file() for path in plan.compose_files(state_in(tmp_path), new))


def test_compose_is_informed_how_many_nodes_and_no_service_is_made_anew_for_it(tmp_path: Path) -> None:
    few = state_in(tmp_path)
    many = state_in(tmp_path, shape=replace(SHAPE, nodes=5))
    words = plan.up_words(("docker", "compose"), many, FACTS)
    assert words[words.index("--scale") + 1] == "node=5"
    changed = {
        key
        for key, value in plan.compose_environment(few).items()
        if plan.compose_environment(many)[key] != value
    }
    assert changed == {"OSUB_NODES"}, "which no service has in its environment"
    assert plan.differs(few, many) is None


def test_what_compose_did_not_make_is_noticed(tmp_path: Path) -> None:
    state = state_in(tmp_path, monitoring=WATCHED)
    roles = [
        "keys", "controller", "node", "node", "node", "database", "accounting", "monitoring",
        "prometheus",
    ]  # fmt: skip
    assert plan.missing_roles(roles, state) == []
    assert plan.missing_roles(roles[:4] + roles[5:], state) == ["node"]
    assert plan.missing_roles(roles[1:], state) == ["keys"]
    assert (
        plan.missing_roles(["keys", "controller", *["node"] * 3], state_in(tmp_path, accounting=False)) == []
    )


def test_without_accounting_its_services_are_not_started(tmp_path: Path) -> None:
    words = plan.up_words(("docker", "compose"), state_in(tmp_path, accounting=False), FACTS)
    assert not {"database", "accounting"} & set(words)


def test_what_watches_is_started_with_its_ports_and_grafana_where_there_is_one(tmp_path: Path) -> None:
    state = state_in(tmp_path, monitoring=WATCHED)
    assert "compose.monitoring.yaml" in {path.name for path in plan.compose_files(state, FACTS)}
    assert all(path.is_file() for path in plan.compose_files(state, FACTS))
    words = plan.up_words(("docker", "compose"), state, FACTS)
    assert {"monitoring", "prometheus"} <= set(words)
    assert "grafana" not in words
    environment = plan.compose_environment(state)
    assert (environment["OSUB_MONITORING"], environment["OSUB_PROMETHEUS_PORT"]) == ("1", "9091")
    both = state_in(tmp_path, monitoring=msgspec.structs.replace(WATCHED, grafana_image="g"))
    assert "grafana" in plan.up_words(("docker", "compose"), both, FACTS)
    assert plan.decode_state(msgspec.json.encode(both), tmp_path) == both


def test_without_a_registry_prometheus_is_debians_and_there_is_no_grafana(engine: FakeEngine) -> None:
    engine.change(images=["osub-base:13"])
    said: list[str] = []
    watch = image.choose_watchers(find_engine(EngineName.DOCKER), 13, said.append)
    assert watch.grafana_image is None
    assert "no Grafana" in said[0]
    built = plan.images_to_build(13, accounting=True, monitoring=watch)
    assert list(built.values()) == ["cluster", "database", "prometheus"]
    assert list(built)[2] == watch.prometheus_image


@pytest.mark.slow
def test_with_a_registry_both_are_fetched_and_nothing_more_is_built(engine: FakeEngine) -> None:
    watch = image.choose_watchers(find_engine(EngineName.DOCKER), 13, lambda _: None)
    assert [call[-1] for call in engine.calls("pull")] == [watch.prometheus_image, watch.grafana_image]
    assert "prometheus" not in plan.images_to_build(13, accounting=True, monitoring=watch).values()


@pytest.mark.slow
def test_an_image_that_cannot_be_fetched_says_what_to_do(engine: FakeEngine) -> None:
    engine.change(registry=False)
    with pytest.raises(HostError, match=r"no such host; where no registry can be reached, .*bootstrap-base"):
        image.choose_watchers(find_engine(EngineName.DOCKER), 13, lambda _: None)


def test_a_port_in_use_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(HostError, match=r"no port of 127\.0\.0\.1 is free"):
            image.free_port([port])
        assert image.free_port([port, 0]) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": replace(SHAPE, multiplicity=3)},
        {"shape": replace(SHAPE, nodes=65)},
        {"engine": EngineName.PODMAN},
        {"debian": 12},
        {"accounting": False},
        {"monitoring": WATCHED},
    ],
)
def test_a_cluster_does_not_become_another_one(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert plan.differs(state_in(tmp_path), state_in(tmp_path, **changes)) is not None


def test_nodes_may_come_beyond_the_cores_of_the_host(tmp_path: Path) -> None:
    pinned = state_in(tmp_path, shape=replace(SHAPE, nodes=2, virtual=False))
    assert plan.differs(pinned, state_in(tmp_path, shape=replace(SHAPE, nodes=3, virtual=True))) is None


def test_a_second_up_keeps_the_cores_of_its_nodes(home: Path, tmp_path: Path) -> None:
    assert plan.cores_there(home) == SHAPE.cores
    assert plan.cores_there(tmp_path / "none") is None


def test_nodes_share_the_memory_unless_they_declare_it() -> None:
    assert Shape(nodes=2, cores=1).node_memory_mib(FACTS.memory_mib) == 3686
    assert SHAPE.node_memory_mib(FACTS.memory_mib) == 65_536


@pytest.mark.parametrize("text", ["{}", "[1]", '[{"Id": "x"}]', "not JSON", '[{"Config": {"Labels": 3}}]'])
def test_an_answer_that_cannot_be_read_is_an_error_in_words(text: str) -> None:
    if text == "{}":
        assert read_containers(text) == []
    else:
        with pytest.raises(ClusterError, match="cannot be read"):
            read_containers(text)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "was it edited"),
        (b"\xff", "was it edited"),
        (b'{"home": "/etc"}', "was it edited"),
        (msgspec.json.encode(state_in(Path("/somewhere/else"))), "made in /somewhere/else"),
        (msgspec.json.encode(state_in(Path("/h"))).replace(b'"nodes":3', b'"nodes":-3'), "was it edited"),
        (msgspec.json.encode(state_in(Path("/h"))).replace(b'"docker"', b'"rm"'), "was it edited"),
    ],
)
def test_a_forged_state_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan.decode_state(content, Path("/h"))


def test_a_compose_that_is_late_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = tmp_path / "docker"
    info = json.dumps(DOCKER_INFO)
    late.write_text(f"#!/bin/sh\ncase $1 in compose) exec sleep 60 ;; info) echo '{info}' ;; esac\n")
    late.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("deploy.compose.engine._COMPOSE_S", 0.1)
    with pytest.raises(HostError, match=r"`docker compose version` gave no answer within 0\.1 s"):
        find_engine(EngineName.DOCKER)


def test_the_projects_name_follows_from_the_folder_alone(tmp_path: Path) -> None:
    odd = tmp_path / "$(id) -f x;rm"
    assert state_in(odd).cluster == names_of(odd).cluster
    assert state_in(odd).cluster.removeprefix("osub-").isalpha()


@pytest.mark.slow
def test_down_ends_nodes_first_and_leaves_nothing(engine: FakeEngine, home: Path) -> None:
    cluster = populate(engine, home)
    ended = ComposeCluster(home).down()
    assert (ended.existed, ended.left) == (True, ())
    assert not home.exists()
    world = engine.read()
    assert not world["containers"]
    assert not world["volumes"]
    assert not world["networks"]
    assert engine.calls("exec")[0][1] == f"{cluster}-controller-1", "jobs are cancelled"
    assert engine.calls("stop")[0][3:] == [f"{cluster}-node-1"]


@pytest.mark.slow
def test_down_touches_nothing_without_both_of_its_labels(engine: FakeEngine, home: Path) -> None:
    cluster = populate(engine, home)
    engine.add("others", "node", "/another/home", cluster)
    engine.add("half", "node", str(home), "osub-other")
    engine.add(f"{cluster}-node-9", "node", "none", "none")
    mine = {"osub.home": str(home), "osub.cluster": cluster}
    named = {"osub.home": str(home)}
    engine.change(volumes={f"{cluster}_shared": named, f"{cluster}_munge": mine, "data": {}})
    ComposeCluster(home).down()
    world = engine.read()
    assert set(world["containers"]) == {"others", "half", f"{cluster}-node-9"}
    assert set(world["volumes"]) == {f"{cluster}_shared", "data"}


@pytest.mark.slow
def test_down_goes_by_the_folder_and_not_by_what_its_file_says(engine: FakeEngine, home: Path) -> None:
    populate(engine, home)
    engine.add("victim", "node", "/victim", names_of(Path("/victim")).cluster)
    (home / "compose.json").write_bytes(msgspec.json.encode(state_in(Path("/victim"))))
    assert ComposeCluster(home).down().existed
    assert set(engine.read()["containers"]) == {"victim"}


@pytest.mark.slow
def test_down_keeps_what_up_did_not_make(engine: FakeEngine, home: Path) -> None:
    populate(engine, home)
    (home / "thesis.txt").write_text("mine")
    assert ComposeCluster(home).down().left == ("thesis.txt",)
    assert (home / "thesis.txt").read_text() == "mine"


@pytest.mark.slow
def test_down_twice_is_no_error_and_the_second_finds_nothing(engine: FakeEngine, home: Path) -> None:
    populate(engine, home)
    assert ComposeCluster(home).down().existed
    assert not ComposeCluster(home).down().existed


@pytest.mark.slow
def test_down_removes_what_is_left_of_a_cluster_whose_folder_is_gone(
    engine: FakeEngine, home: Path, cli: Cli
) -> None:
    populate(engine, home)
    engine.add("victim", "node", "/victim", names_of(Path("/victim")).cluster)
    shutil.rmtree(home)
    assert "is gone" in "".join(cli("cluster", "down", "--state", home))
    assert set(engine.read()["containers"]) == {"victim"}
    assert "no cluster" in "".join(cli("cluster", "down", "--state", home))


@pytest.mark.slow
def test_down_says_what_it_could_not_remove_and_keeps_the_state(engine: FakeEngine, home: Path) -> None:
    cluster = populate(engine, home)
    engine.change(stubborn=[f"{cluster}-database-1"])
    with pytest.raises(ClusterError, match=f"container {cluster}-database-1"):
        ComposeCluster(home).down()
    assert (home / "compose.json").exists()


def test_down_without_its_engine_keeps_the_state(engine: FakeEngine, home: Path) -> None:
    engine.change(away="Cannot connect to the daemon")
    with pytest.raises(HostError):
        ComposeCluster(home).down()
    assert (home / "compose.json").exists()


def test_a_folder_that_another_can_write_is_not_believed(engine: FakeEngine, home: Path) -> None:
    home.chmod(0o777)
    with pytest.raises(TrustError):
        ComposeCluster(home).down()
    assert engine.calls("rm") == []


def test_up_refuses_a_folder_with_a_users_files(engine: FakeEngine, tmp_path: Path) -> None:
    (folder := tmp_path / "papers").mkdir()
    (folder / "draft.tex").write_text("x")
    with pytest.raises(ClusterError, match="not ours"):
        ComposeCluster(folder).up(EngineName.DOCKER, SHAPE, Options())
    assert (folder / "draft.tex").exists()


def test_up_refuses_another_shape_in_its_folder(engine: FakeEngine, home: Path) -> None:
    other = replace(SHAPE, multiplicity=4)
    with pytest.raises(ClusterError, match="holds a cluster of another shape"):
        ComposeCluster(home).up(EngineName.DOCKER, other, Options())
    assert (home / "compose.json").exists()


def test_one_in_containers_does_not_replace_an_embedded_cluster(
    engine: FakeEngine, home: Path, tmp_path: Path
) -> None:
    (home / "compose.json").rename(home / "cluster.json")
    with pytest.raises(ClusterError, match="holds an embedded cluster"):
        ComposeCluster(home).up(EngineName.DOCKER, SHAPE, Options())
    assert (home / "cluster.json").exists()
    assert not engine.calls("up")


def test_an_embedded_cluster_does_not_replace_one_in_containers(home: Path) -> None:
    for call in (
        lambda: LocalCluster(home).up(Shape(nodes=1, cores=1, virtual=True)),
        LocalCluster(home).down,
    ):
        with pytest.raises(OsubError, match=r"in containers|not installed here"):
            call()
    assert (home / "compose.json").exists()


@pytest.mark.slow
def test_status_reports_who_failed_and_what_it_said_last(engine: FakeEngine, home: Path, cli: Cli) -> None:
    cluster = populate(engine, home)
    engine.add(f"{cluster}-database-1", "database", str(home), cluster, Status="exited", ExitCode=1)
    engine.change(logs="starting\nmariadbd: No space left on device\n")
    said = "".join(cli("cluster", "status", "--state", home, code=1))
    assert "No space left on device" in said
    assert f"docker logs {cluster}-database-1" in said
    assert "the same `osub cluster up` starts what has ended" in said
    as_json = json.loads(cli("cluster", "status", "--state", home, "--json", code=1).out)
    assert as_json["daemons"][f"{cluster}-database-1"] is False
    assert as_json["daemons"][f"{cluster}-controller-1"] is True
    assert as_json["nodes"] is None
    assert as_json["whole"] is False


@pytest.mark.slow
def test_a_log_cannot_steer_the_terminal(engine: FakeEngine, home: Path, cli: Cli) -> None:
    cluster = populate(engine, home)
    engine.add(f"{cluster}-node-2", "node", str(home), cluster, Status="exited", ExitCode=1)
    engine.change(logs="\x1b]0;owned\x07[bold]x[/bold]\n")
    said = "".join(cli("cluster", "status", "--state", home, code=1))
    assert "\x1b]" not in said
    assert "[bold]x[/bold]" in said


@pytest.mark.slow
def test_list_shows_clusters_of_engines_and_survives_forged_labels(
    engine: FakeEngine, home: Path, cli: Cli
) -> None:
    populate(engine, home)
    engine.add("forged", "node", "/etc", "osub-x")
    engine.add("odd", "node", "relative\x1b", "osub-x")
    assert live_folders() == [Path("/etc"), home]
    result = cli.json("cluster", "list", "--json")
    mine = [one for one in result if one["engine"] == "docker"]
    assert [(one["state"], one["daemons"], one["daemons_wanted"]) for one in mine] == [(str(home), 4, 6)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "lxc"], "lxc"),
        (["--engine", "docker", "--nodes", "0"], "--nodes must be"),
        (["--engine", "docker", "--nodes", "100000"], "--nodes must be"),
        (["--engine", "docker", "--debian", "11"], "--debian must be 12 or 13"),
        (["--debian", "13"], "go with --engine"),
        (["--monitoring"], "go with --engine"),
        (["--engine", "docker", "--monitoring"], "goes with --gang osub"),
        (["--engine", "docker", "--set", "A"], "--set takes Key=Value"),
    ],
)
def test_wrong_usage_is_exit_code_two(
    engine: FakeEngine, tmp_path: Path, words: list[str], said: str, cli: Cli
) -> None:
    assert said in cli.said("cluster", "up", "--state", tmp_path / "s", *words, code=2)
    assert not (tmp_path / "s").exists()


def test_the_build_gets_sources_and_certificates_and_nothing_else(tmp_path: Path) -> None:
    (certificates := tmp_path / "ca.crt").write_text("PEM")
    with image.build_context(environment={"PIP_CERT": str(certificates)}) as context:
        assert (context / "deploy/compose/site/ca.pem").read_text() == "PEM"
        assert (context / "gangd/main.py").is_file()
        assert not {".git", ".venv", "tests"} & {path.name for path in context.iterdir()}
        assert not list(context.rglob("__pycache__"))
        assert not [path for path in context.rglob("*") if path.is_symlink()]
    assert not context.exists()


NO_NAMES = """\
Err:1 http://deb.debian.org/debian trixie InRelease
  Temporary failure resolving 'deb.debian.org'
W: Some index files failed to download. They have been ignored, or old ones used instead.
E: Unable to locate package gcc
Error: building at STEP "RUN apt-get update": while running runtime: exit status 100
"""
NO_REGISTRY = """\
Step 2/3 : FROM ${BASE} AS debian
DEPRECATED: The legacy builder is deprecated and will be removed in a future release.
            environment-variable.
Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io on 10.0.0.53:53: no such host
"""
NO_REGISTRY_OF_PODMAN = """\
STEP 1/2: FROM docker.io/library/debian:12-slim AS debian
Trying to pull docker.io/library/debian:12-slim...
Error: creating build container: initializing source: pinging container registry: no such host
"""
NO_INDEX = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)': /simple/msgspec/
ERROR: Could not find a version that satisfies the requirement msgspec==0.21.1
ERROR: No matching distribution found for msgspec==0.21.1
"""


@pytest.mark.parametrize(
    ("output", "base", "cause", "advice"),
    [
        (NO_NAMES, "osub-base:13", "Temporary failure resolving", "https_proxy"),
        (NO_INDEX, "osub-base:13", "NewConnectionError", "https_proxy"),
        ("error: pull access denied\n", "docker.io/library/debian:13-slim", "denied", "bootstrap-base 13"),
        (NO_REGISTRY, "docker.io/library/debian:13-slim", "no such host", "bootstrap-base 13"),
        (
            NO_REGISTRY_OF_PODMAN,
            "docker.io/library/debian:12-slim",
            "no such host",
            "ENGINE=podman deploy/compose/bootstrap-base 12",
        ),
        ("gcc: error: no space left on device\n", "osub-base:13", "no space left on device", ""),
        ("", "osub-base:13", "?", ""),
    ],
)
def test_a_build_that_fails_names_its_first_cause(output: str, base: str, cause: str, advice: str) -> None:
    name = EngineName.PODMAN if output == NO_REGISTRY_OF_PODMAN else EngineName.DOCKER
    fault = image.build_fault(output, base, name, {})
    assert cause in fault
    assert advice in fault
    assert "\n" not in fault
    assert bool(advice) == (";" in fault)


def test_a_proxy_that_does_not_answer_is_asked_for_and_not_shown() -> None:
    environment = {"http_proxy": "http://me:secret@127.0.0.1:9", "no_proxy": "localhost"}
    output = NO_NAMES.replace("Temporary", "\x1b[91mTemporary")
    fault = image.build_fault(output, "osub-base:13", EngineName.DOCKER, environment)
    assert fault.startswith("Temporary failure")
    assert fault.endswith("through http_proxy: does that proxy answer?")
    assert "secret" not in fault


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("Step 6/22 : RUN apt-get update     && true", "step 6 of 22: RUN apt-get update     && true"),
        ("[1/2] STEP 3/5: RUN apt-get update", "step 3 of 5: RUN apt-get update"),
        ("STEP 3/5: RUN apt-get update", "step 3 of 5: RUN apt-get update"),
        ("#8 [builder  2/14] RUN apt-get update", "step 2 of 14: RUN apt-get update"),
        ("Step 7/22 : COPY deploy /source/deploy", None),
        ("#8 1.342 Get:1 http://deb.example trixie InRelease", None),
        ("Setting up munge (0.5) ...", None),
    ],
)
def test_long_steps_of_a_build_are_told_from_its_other_output(line: str, step: str | None) -> None:
    assert image.build_step(line) == step


@pytest.mark.slow
def test_a_build_names_each_step_as_it_begins(engine: FakeEngine) -> None:
    engine.change(
        build=["Step 1/2 : FROM debian\nStep 2/2 : RUN apt", "-get update\n ---> Running\n", "end\n"]
    )
    said: list[str] = []
    image.ensure_images(find_engine(EngineName.DOCKER), 13, accounting=False, say=said.append)
    assert "--force-rm" in engine.calls("build")[0]
    assert len(said) == 2
    assert said[0].startswith("building the image osub:")
    assert said[1].endswith("step 2 of 2: RUN apt-get update")


@pytest.mark.slow
def test_a_name_in_the_environment_does_not_reach_the_state(engine: FakeEngine, home: Path) -> None:
    os.environ["OSUB_CLUSTER"] = "osub-victim"
    try:
        populate(engine, home)
        ComposeCluster(home).down()
    finally:
        del os.environ["OSUB_CLUSTER"]
    assert not engine.read()["containers"]


HOME = "/somewhere"

STATE = plan.ComposeState(
    home=HOME, engine=EngineName.DOCKER, debian=13,
    shape=Shape(nodes=2, cores=1, virtual=True, gang=GangKind.OSUB), most_nodes=64,
    memory_mib=65536, accounting=False,
)  # fmt: skip

NODES = tuple(f"{STATE.cluster}-node-{number}" for number in (1, 2))
WHOLE = Ready(2, 2, 2, NODES)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("deploy.compose.cluster._POLL_S", 0.0)
    made = FakeEngine(tmp_path)
    for name, role in [(f"{STATE.cluster}-controller-1", "controller"), *((one, "node") for one in NODES)]:
        made.add(name, role, HOME, STATE.cluster)
    return made


def starting_engine() -> Engine:
    return find_engine(EngineName.DOCKER, with_compose=False)


def answers_of(*looks: Ready) -> list[str]:
    return [json.dumps(asdict(one)) for one in looks]


def known(*names: str) -> str:
    """Return what Slurm says of its nodes."""
    rest = "CPUAlloc=0 CPUTot=1 Sockets=1 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=1 State=IDLE"
    return "".join(f"NodeName={name} {rest} NodeAddr=10.0.0.2\n" for name in names)


@pytest.mark.slow
def test_it_waits_until_every_node_is_idle_with_an_agent(fake: FakeEngine) -> None:
    looks = (Ready(0, 0, 0), Ready(1, 2, 0), Ready(2, 2, 1, NODES[:1]), WHOLE)
    fake.change(answers={"ready": answers_of(*looks), "scontrol": [known(*NODES)]})
    said: list[str] = []
    wait_until_whole(starting_engine(), STATE, said.append)
    assert said == ["0 of 2 nodes are idle", "1 of 2 nodes is idle", "1 of 2 agents has joined"]


@pytest.mark.slow
def test_a_node_whose_container_is_gone_is_forgotten_before_it_counts(fake: FakeEngine) -> None:
    gone = f"{STATE.cluster}-node-3"
    fake.change(
        answers={
            "ready": answers_of(WHOLE),
            "scontrol": [known(NODES[0], gone), known(*NODES)],
            "sh": ["done"],
            "clear": ["done"],
        }
    )
    wait_until_whole(starting_engine(), STATE, lambda _: None)
    [forget] = [call for call in fake.calls("exec") if "sh" in call]
    assert f"for node in {gone}; do" in forget[-1]
    assert [call[-1] for call in fake.calls("exec") if "clear" in call] == [gone]


@pytest.mark.slow
def test_it_is_not_whole_while_slurm_does_not_say_whom_it_knows(fake: FakeEngine) -> None:
    fake.change(answers={"ready": answers_of(WHOLE)})
    with pytest.raises(StuckError, match="nothing has moved for 0 s"):
        wait_until_whole(starting_engine(), STATE, lambda _: None, stuck_s=0.0)


@pytest.mark.slow
def test_who_is_waited_for_is_named_with_its_last_words_and_its_log(fake: FakeEngine) -> None:
    fake.change(
        answers={"ready": answers_of(Ready(2, 2, 1, NODES[:1])), "scontrol": [known(*NODES)]},
        logs="osub: still waiting\nosub: the agent is\tlate\n",
    )
    said: list[str] = []
    with pytest.raises(StuckError) as error:
        wait_until_whole(starting_engine(), STATE, said.append, stuck_s=0.0)
    assert said[-1].startswith(f"1 of 2 agents has joined; {NODES[1]} said last: osub: the agent is")
    assert f"`docker logs {NODES[1]}` has the rest" in str(error.value)
    assert f"`osub cluster status --state {HOME}`" in str(error.value)
    assert set(fake.read()["containers"]) == {f"{STATE.cluster}-controller-1", *NODES}, "left as they are"


@pytest.mark.slow
@pytest.mark.parametrize("answers", [{}, {"ready": answers_of(Ready(0, 0, 0))}, {"ready": ["Traceback"]}])
def test_while_slurm_knows_no_node_its_controller_is_asked_for(
    fake: FakeEngine, answers: dict[str, list[str]]
) -> None:
    fake.change(answers=answers)
    with pytest.raises(StuckError, match=f"`docker logs {STATE.cluster}-controller-1` has the rest"):
        wait_until_whole(starting_engine(), STATE, lambda _: None, stuck_s=0.0)


@pytest.mark.parametrize(
    ("said", "is_foreign"),
    [
        ("[FATAL tini (7)] exec /opt/osub/bin/python failed: No such file or directory", True),
        ("/opt/osub/bin/python: No module named deploy.compose.inside", True),
        ("osub: no freezer", False),
    ],
)
def test_an_image_of_something_else_is_built_anew_by_an_option(
    fake: FakeEngine, said: str, is_foreign: bool
) -> None:
    fake.add(NODES[0], "node", HOME, STATE.cluster, Status="exited", ExitCode=127)
    fake.change(logs=f"{said}\n")
    with pytest.raises(ClusterError) as error:
        wait_until_whole(starting_engine(), STATE, lambda _: None)
    assert ("with --build" in str(error.value)) is is_foreign


def test_a_container_that_does_not_live_ends_the_waiting(fake: FakeEngine) -> None:
    fake.add(NODES[0], "node", HOME, STATE.cluster, Status="exited", ExitCode=1)
    fake.change(logs="osub: no freezer\n")
    with pytest.raises(ClusterError, match=f"{NODES[0]} does not live: osub: no freezer") as error:
        wait_until_whole(starting_engine(), STATE, lambda _: None)
    assert not isinstance(error.value, StuckError)
