"""A command on a cluster in containers: what runs where, which files go in and out, and what is refused.

The engine is a fake one whose ``exec`` runs on this host, in a folder that is the container's root.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.compose.engine import EngineName
from deploy.compose.plan import ComposeState, write_compose_state
from deploy.local.home import take_home
from deploy.local.layout import names_of
from deploy.shape import GangKind, Shape
from foundation.version import VERSION
from osub.cli.main import run
from tests.fixtures.fake_engine import DOCKER_INFO, container

DOCKER = """#!{python}
import json, os, subprocess, sys
root, words = {root!r}, sys.argv[1:]
world = json.load(open({root!r} + "/world.json"))
if words[0] == "info":
    print(json.dumps(world["info"]))
elif words[0] == "version":
    print(json.dumps({{"Server": {{"ApiVersion": "1.41"}}}}))
elif words[0] == "ps":
    print("\\n".join(one["Id"] for one in world["containers"]))
elif words[0] == "inspect" and "-f" in words:
    print("true" if world["containers"] else "")
elif words[0] == "inspect":
    print(json.dumps(world["containers"]))
elif words[0] == "exec":
    with open({root!r} + "/users", "a") as users:
        print(words[words.index("-u") + 1] if "-u" in words else "", file=users)
    place = words.index("c1")
    if "-P" in words:
        print(world["version"])
        sys.exit(0)
    inner = [w.replace("/shared/host", root + "/shared/host").replace("/etc/slurm", root + "/etc/slurm")
             .replace("/opt/osub/bin/osub", root + "/osub").replace("/tmp/osub-", root + "/osub-")
             for w in words[place + 1:]]
    if inner[0] == "tar" and "/" in inner:  # into the container
        inner[inner.index("/")] = root
    folder = words[words.index("-w") + 1] if "-w" in words else "/"
    os.chdir(folder.replace("/shared/host", root + "/shared/host"))
    os.execvp(inner[0], inner)
else:
    sys.exit(125)
"""
OSUB = """#!{python}
import json, os, shutil, signal, sys, time
words = sys.argv[1:]
json.dump(words, open({root!r} + "/called.json", "w"))
print("/shared/host/data/x and", words[0])
print("osub: a warning", file=sys.stderr)
if "--out" in words:
    out = words[words.index("--out") + 1]
    if "--resume" not in words:
        open([w for w in words if "trace" in w][0]).read()
        if os.path.exists({root!r} + "/made"):
            sys.exit(shutil.copytree({root!r} + "/made", out) and 0)
        os.makedirs(out + "/jobs")
    json.dump({{"seed": 1}}, open(out + "/run.json", "w"))
    open(out + "/jobs/1.out", "w").write("done")
    if "--label" in words:  # is still at work
        def end(number, _):
            sys.exit(128 + number)
        signal.signal(signal.SIGTERM, end)
        open({root!r} + "/begun", "w")
        time.sleep(60)
    if "--seed" in words:  # the engine takes the container away
        world = json.load(open({root!r} + "/world.json"))
        world["containers"] = []
        json.dump(world, open({root!r} + "/world.json", "w"))
        sys.exit(137)
sys.exit(2 if "--keep" in words else 0)
"""


class Place:
    """A cluster in containers of the fake engine, and the folder in which commands are called."""

    def __init__(self, folder: Path) -> None:
        self.root, self.here, self.state = folder / "root", folder / "here", folder / "state"
        for path in (self.root / "etc/slurm", self.root / "shared/host", self.here, folder / "bin"):
            path.mkdir(parents=True)
        (self.root / "etc/slurm/slurm.conf").write_text("ClusterName=c\n")
        for name, text in (("bin/docker", DOCKER), ("root/osub", OSUB)):
            program = folder / name
            program.write_text(text.format(python=sys.executable, root=str(self.root)))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self.keep(Shape(nodes=2, cores=1, virtual=True, multiplicity=2, gang=GangKind.OSUB))
        self.world: dict[str, object] = {
            "info": DOCKER_INFO,
            "version": VERSION,
            "containers": [
                container("c1", "controller", str(self.state.resolve()), names_of(self.state).cluster)
            ],
        }
        self.change()
        (self.here / "trace.swf").write_text("; a trace\n")

    def keep(self, shape: Shape) -> None:
        """Write the state of a cluster of this shape."""
        with take_home(self.state, create=True) as home:
            assert home is not None
            home.furnish((), 0o700)
            state = ComposeState(
                home=str(home.path), engine=EngineName.DOCKER, debian=13, shape=shape,
                most_nodes=64, memory_mib=1024, accounting=False,
            )  # fmt: skip
            write_compose_state(home, state)

    def change(self, **changes: object) -> None:
        self.world |= changes
        (self.root / "world.json").write_text(json.dumps(self.world))

    @property
    def called(self) -> list[str]:
        found: list[str] = json.loads((self.root / "called.json").read_text())
        return found

    def inside(self, path: Path) -> Path:
        return Path(f"{self.root}/shared/host{path}")

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "osub.command", *words], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.here,
            env=os.environ | {"PATH": self.path},
        )  # fmt: skip

    def osub(self, *words: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            patch.setattr(sys, "argv", ["osub", *words])
            patch.setenv("PATH", self.path)
            patch.chdir(self.here)
            return run(list(words)), out.getvalue(), err.getvalue()

    def replay(self, *words: str) -> tuple[int, str, str]:
        return self.osub("replay", "trace.swf", "--cluster", str(self.state), "--out", "runs/one", *words)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr("osub.cli.replay.busy_warning", lambda: None)  # whatever else runs here
    return Place(tmp_path)


@pytest.mark.slow
def test_a_replay_runs_in_the_controller_and_its_run_comes_out(place: Place) -> None:
    code, out, err = place.replay()
    assert (code, out, err) == (0, "/data/x and replay\n", "osub: a warning\n")
    assert place.called == [
        *("replay", "trace.swf", "--cluster", f"{place.root}/shared/host{place.state}"),
        *("--out", "runs/one", "--gangd", "/var/lib/gangd/state"),
    ]
    assert (place.here / "runs/one/jobs/1.out").read_text() == "done"
    assert sorted(path.name for path in (place.here / "runs").iterdir()) == ["one"], "no draft is left"
    assert (place.inside(place.state) / "slurm.conf").read_text() == "ClusterName=c\n"
    assert (place.inside(place.here) / "trace.swf").read_text() == "; a trace\n"


@pytest.mark.slow
@pytest.mark.parametrize("option", [["--set", "jobs={}"], ["--set=jobs={}"]])
def test_a_replay_with_on_demand_jobs_takes_their_kinds_with_it(place: Place, option: list[str]) -> None:
    (kinds := place.here / "kinds.csv").write_text("trace_job,kind\n")
    code, _, err = place.replay("--on-demand", "cua-paa", *(word.format(kinds) for word in option))
    assert (code, err) == (0, "osub: a warning\n")
    there = place.inside(kinds)
    assert there.read_text() == "trace_job,kind\n"
    assert [word for word in place.called if "jobs=" in word] == [option[-1].format(there)]


def test_a_run_that_exists_is_replaced_only_by_force(place: Place) -> None:
    (kept := place.here / "runs/one").mkdir(parents=True)
    (kept / "notes.txt").write_text("mine")
    code, _, err = place.replay()
    assert (code, "holds what no run made" in err) == (1, True)
    assert (kept / "notes.txt").read_text() == "mine"
    assert not (place.root / "called.json").exists()


@pytest.mark.slow
def test_a_signal_reaches_the_replay_and_what_is_there_comes_out(place: Place) -> None:
    process = place.start(
        *("replay", "trace.swf", "--cluster", str(place.state), "--out", "runs/one", "--label", "x")
    )
    deadline_s = time.monotonic() + 60
    while not (place.root / "begun").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert (place.here / "runs/one/run.json").exists()
    assert place.inside(place.here / "runs/one/run.json").exists(), "--resume goes on with it there"


@pytest.mark.slow
def test_resume_goes_on_in_the_cluster_or_takes_the_run_there(place: Place) -> None:
    (kept := place.here / "runs/one").mkdir(parents=True)
    (kept / "run.json").write_text("{}")
    (kept / "jobs").mkdir()
    (kept / "jobs/1.claim").symlink_to("7")
    code, _, err = place.replay("--resume")
    assert (code, err) == (0, "osub: a warning\n")
    assert (kept / "jobs/1.out").read_text() == "done"
    assert (kept / "jobs/1.claim").readlink() == Path("7")
    place.inside(kept / "jobs/1.out").unlink()
    (kept / "log.jsonl").write_text("")
    place.replay("--resume")
    assert not (kept / "log.jsonl").exists(), "the cluster's copy holds"


@pytest.mark.slow
def test_a_run_that_was_finished_in_the_cluster_is_copied_by_resume(place: Place) -> None:
    (there := place.inside(place.here / "runs/one")).mkdir(parents=True)
    for name in ("run.json", "jobs.parquet"):
        (there / name).write_text("{}")
    code, _, err = place.replay("--resume")
    assert (code, "was finished in the cluster" in err) == (0, True)
    assert (place.here / "runs/one/jobs.parquet").exists()
    assert not there.exists()
    assert not (place.root / "called.json").exists()


@pytest.mark.slow
def test_a_controller_that_ends_during_the_replay_says_how_to_go_on(place: Place) -> None:
    code, _, err = place.replay("--seed", "2")
    assert code == 1
    assert "has ended meanwhile" in err.splitlines()[-1]
    assert "--resume" in err.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": "0.1.0"}, "of osub 0.1.0"),
        ({"version": ""}, "for daemons alone"),
        ({"containers": []}, "is gone"),
        ({"info": ""}, "does not answer"),
    ],
)
def test_what_cannot_run_the_command_is_one_line(place: Place, changes: dict[str, object], said: str) -> None:
    place.change(**changes)
    code, out, err = place.replay()
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert said in err


@pytest.mark.slow
def test_top_and_doctor_run_there_too(place: Place) -> None:
    assert place.osub("top", "--cluster", str(place.state), "--once")[0] == 0
    assert place.called == ["top", "--gangd", "/var/lib/gangd/state", "--once"]
    assert place.osub("doctor", "--cluster", str(place.state), "--json")[0] == 0
    assert place.called == ["doctor", "--cluster", f"{place.root}/shared/host{place.state}", "--json"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["status"], ["pause", "--all"], ["weight", "2", "--job", "7"], ["accounts"]]
)
def test_orders_for_gangd_are_given_there_by_root(place: Place, words: list[str]) -> None:
    assert place.osub("gang", *words, "--state", str(place.state))[0] == 0
    assert place.called == ["gang", *words, "--gangd", "/var/lib/gangd/state"]
    assert (place.root / "users").read_text().splitlines()[-1] == "root"


@pytest.mark.slow
@pytest.mark.parametrize("words", [["top", "--once", "--cluster"], ["gang", "status", "--state"]])
def test_a_cluster_in_containers_without_gangd_says_so(place: Place, words: list[str]) -> None:
    place.keep(Shape(nodes=2, cores=1, virtual=True, multiplicity=2))
    code, _, err = place.osub(*words, str(place.state))
    assert (code, err.count("\n")) == (1, 1)
    assert "runs without gangd" in err
    assert not (place.root / "called.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("named", ["--cluster", "--cluster="])
def test_evict_runs_there_as_root_for_jobs_are_of_others(place: Place, named: str) -> None:
    option = [named + str(place.state)] if named.endswith("=") else [named, str(place.state)]
    code, _, err = place.osub("evict", "--free-nodes", "1", *option, "--deadline", "5")
    assert (code, "`osub cluster status` names it" in err) == (0, True)
    assert place.called == ["evict", "--free-nodes", "1", "--live", "--deadline", "5"]
    assert (place.root / "users").read_text().splitlines()[-1] == "root"
    code, _, err = place.osub("evict", "--free-nodes", "1", *option, "--deadline", "5", "--keep", "7")
    assert (code, err) == (2, "osub: a warning\n"), "there is no command to be run there"


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--dry-run"], ["--resume"]])
def test_a_replay_in_containers_of_a_busy_host_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr("osub.cli.replay.busy_warning", lambda: "this host is busy")
    if words == ["--resume"]:
        place.replay()
    _, _, err = place.replay(*words)
    assert err.splitlines() == [*(["osub: this host is busy"] if not words else []), "osub: a warning"]


@pytest.mark.slow
def test_resume_of_what_nowhere_is_says_so_and_starts_nothing(place: Place) -> None:
    code, _, err = place.replay("--resume")
    assert (code, err.count("\n")) == (2, 1)
    assert "there is no RUN in" in err
    assert not (place.root / "called.json").exists()
