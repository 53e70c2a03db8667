"""Folders and files of the second user's, forged for root to believe."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foundation.errors import PeerError, TrustError
from foundation.records import RunWriter
from gangd.controller.controller_config import load_config
from gangd.controller.slicelog import SliceLog
from gangd.curve_keys import make_keys
from gangd.guardian.statefile import StateFile
from tests.attacks.attack import OTHER_USER, Scene, attack, refused
from tests.fixtures.records import make_info, make_trace
from workloads.eiba.inbox import Inbox
from workloads.eiba.node_barrier import join_hub

WHOSE = f"user id {OTHER_USER}"
GANGD = (sys.executable, "-P", "-m", "gangd.main")
AGENT = (sys.executable, "-P", "-m", "gangd.agent.main")


@attack("cluster.json")
def cluster_state(scene: Scene) -> None:
    """Forges a cluster whose files are root's and whose daemon is a process of root's."""
    (home := scene.shared / "forged").mkdir()
    victim = subprocess.Popen(["sleep", "600"])
    try:
        folder = scene.cluster.folder
        state = json.loads((folder / "cluster.json").read_text())
        state["layout"] |= {"state": str(scene.precious), "short": str(scene.precious)}
        state["daemons"] = [{"role": "slurmctld", "pid": victim.pid, "start_ticks": _ticks(victim.pid)}]
        mark = json.loads((folder / ".osub-cluster").read_text()) | {"path": str(home)}
        (home / "cluster.json").write_text(json.dumps(state))
        (home / ".osub-cluster").write_text(json.dumps(mark))
        (home / "slurm.conf").write_bytes((folder / "slurm.conf").read_bytes())
        (home / "log").symlink_to(scene.precious)
        scene.give(home)
        for words in (("down",), ("status",), ("up", "--nodes", "1", "--cores", "1", "--virtual")):
            refused(scene.osub("cluster", words[0], "--state", str(home), *words[1:]), WHOSE)
        refused(scene.osub("top", "--state", str(home), "--once"), WHOSE)
        assert victim.poll() is None
        assert (home / "log").is_symlink()
    finally:
        victim.kill()
        victim.wait()


@attack("slurm.conf")
def slurm_conf(scene: Scene) -> None:
    """Has root replay on a slurm.conf that names plugins of the second user's."""
    (home := scene.shared / "plugins").mkdir()
    (home / "slurm.conf").write_text(f"ClusterName=x\nSlurmctldHost=localhost\nPluginDir={home}\n")
    trace = make_trace(scene.shared)
    scene.give(home, 0o755)
    refused(
        scene.osub("replay", str(trace), "--cluster", str(home), "--out", str(scene.precious / "RUN")), WHOSE
    )
    os.chown(home, 0, 0)
    refused(
        scene.osub("replay", str(trace), "--cluster", str(home), "--out", str(scene.precious / "RUN")), WHOSE
    )
    assert not (scene.precious / "RUN").exists()


@attack("RUN")
def run_folder(scene: Scene) -> None:
    """Has root go on with a RUN whose table of applications names a command of the second user's."""
    run = scene.shared / "RUN"
    evil = scene.precious / "evil"
    trace = make_trace(scene.shared)
    RunWriter.create(run, make_info(), trace).close()
    (run / "apps.csv").write_text(f"trace_job,app,args\n1,touch,{evil}\n")
    (run / "jobs").mkdir()
    scene.give(run)
    refused(
        scene.osub(
            "replay", str(trace), "--cluster", str(scene.cluster.folder), "--out", str(run), "--resume"
        ),
        WHOSE,
    )
    assert not evil.exists()


@attack("folder for a RUN")
def run_place(scene: Scene) -> None:
    """Owns the folder into which root replays, to exchange the RUN under way."""
    (place := scene.shared / "results").mkdir()
    scene.give(place)
    trace = make_trace(scene.shared)
    done = scene.osub(
        "replay", str(trace), "--cluster", str(scene.cluster.folder), "--out", str(place / "RUN")
    )
    refused(done, WHOSE)
    assert not any(place.iterdir())


@attack("agent's state file")
def ledger(scene: Scene) -> None:
    """Forges the record of a held process, for root to resume one that was stopped."""
    (state := scene.shared / "agents").mkdir()
    victim = subprocess.Popen(["sleep", "600"])
    try:
        victim.send_signal(signal.SIGSTOP)
        file = StateFile.create(state / "agent-n1.state", "n1", "/")
        slot = file.claim_process(victim.pid, _ticks(victim.pid), 1)
        assert slot is not None
        file.hold(slot)
        file.close()
        scene.give(state)
        done = scene.root(*AGENT, "thaw", "--all", "--pause", "0", "--state", str(state))
        assert WHOSE in done.stderr
        assert _is_stopped(victim.pid)
        # In a folder of root's own, too, the file itself is looked at.
        os.chown(state, 0, 0)
        done = scene.root(*AGENT, "thaw", "--all", "--pause", "0", "--state", str(state))
        assert done.returncode == 1
        assert _is_stopped(victim.pid)
    finally:
        victim.kill()
        victim.wait()


@attack("controller's folders")
def controller(scene: Scene) -> None:
    """Owns the folders that root names for gangd's state, keys, record or configuration."""
    place = scene.shared / "gangd"
    make_keys(place / "keys", ["n1"])
    for name in ("state", "record"):
        (place / name).mkdir()
        (place / name / "controller.lock").symlink_to(scene.precious / "file")
        (place / name / "slices.jsonl").symlink_to(scene.precious / "file")
    (place / "gangd.toml").write_text("quantum_ms = 100\n")
    keys = scene.precious / "keys"
    make_keys(keys, ["n1"])
    scene.give(place)
    here = "tcp://127.0.0.1:*"
    conf = ("--slurm-conf", str(scene.cluster.conf), "--publish", here, "--reports", here, "--dry-run")
    state = scene.precious / "state"
    for words in (
        ("--keys", f"{place}/keys", "--state", str(state)),
        ("--keys", str(keys), "--state", f"{place}/state"),
    ):
        done = scene.root(*GANGD, "run", *conf, *words)
        assert done.returncode in (1, 2), done.stderr
        assert WHOSE in done.stderr
    with pytest.raises(TrustError, match=WHOSE):
        make_keys(place / "keys", ["n2"])
    with pytest.raises(TrustError, match=WHOSE):
        load_config(place / "gangd.toml")
    with pytest.raises(TrustError, match=WHOSE):
        SliceLog(place / "record", 0.0, 0)
    done = scene.root(*AGENT, "run", "--node", "n1", "--state", f"{place}/state", "--controller", "127.0.0.1")
    assert WHOSE in done.stderr
    for folder in (keys, state):
        shutil.rmtree(folder, ignore_errors=True)


@attack("rendezvous of ranks")
def rendezvous(scene: Scene) -> None:
    """Puts a rendezvous file with an address of his own where a job's nodes look for it."""
    path = scene.shared / ".eiba-1.0.0.rendezvous"
    notice = {"identity": "1.0.0", "host": "h", "addresses": ["127.0.0.1"], "port": 9, "key": "00"}
    path.write_text(json.dumps(notice))
    scene.give(path, 0o600)
    with Inbox() as inbox, pytest.raises(PeerError, match=WHOSE):
        join_hub(inbox, path, "1.0.0", 1, time.monotonic() + 0.3)


def _ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
