"""Reading and writing what is root's alone."""

from __future__ import annotations

from pathlib import Path

from foundation.files import live_folder
from tests.attacks.attack import Scene, attack


@attack("reading secrets")
def secrets(scene: Scene) -> None:
    """Reads keys, state, logs, records and root's job scripts of a cluster that he can reach."""
    layout = scene.cluster.state().layout
    folder = scene.cluster.folder
    places = [
        layout.munge_key,
        folder / ".osub-cluster",
        layout.gang / "keys" / "controller.key_secret",
        layout.gang / "gangd.toml",
        layout.gang / "record" / "slices.jsonl",
        layout.logs / "slurmctld.log",
        layout.controller_state / "job_state",
        folder / "scratch",
        *live_folder(layout.gang / "agents").glob("agent-*.state"),
        *(node / "cred_state" for node in Path(layout.spool).iterdir()),
    ]
    assert len(places) >= 11
    for path in places:
        assert scene.as_other("ls", str(folder)).returncode == 0, "the folder can be reached"
        for words in (("cat", str(path)), ("ls", str(path) + "/"), ("cp", "/etc/hostname", str(path))):
            assert scene.as_other(*words).returncode != 0, words


@attack("reading the status")
def status(scene: Scene) -> None:
    """Reads which jobs run where, although PrivateData hides them."""
    path = scene.cluster.state().layout.gang / "state" / "status.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert scene.cluster.client().config()["PrivateData"] == "jobs"
    assert scene.as_other("cat", str(path)).returncode != 0


@attack("writing into a cluster")
def writing(scene: Scene) -> None:
    """Makes, removes or exchanges files in the cluster's folders."""
    layout = scene.cluster.state().layout
    for place in (scene.cluster.folder, layout.run, layout.spool, layout.spool / layout.nodes[0].name):
        before = sorted(entry.name for entry in place.iterdir())
        for words in (
            ("touch", f"{place}/x"),
            ("ln", "-s", "/etc/passwd", f"{place}/x"),
            ("mv", f"{place}/{before[0]}", f"{place}/x"),
            ("rm", "-r", f"{place}/{before[0]}"),
            ("mv", str(place), f"{place}-x"),
        ):
            assert scene.as_other(*words).returncode != 0, words
        assert sorted(entry.name for entry in place.iterdir()) == before
