"""A second local user tries everything of ``tests.attacks`` on a cluster of root's; nothing is gained."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import GangKind, HoldSetting, LocalCluster, Shape
from tests.attacks import ATTACKS, Attack
from tests.attacks.attack import OTHER_USER, Scene
from tests.integration.conftest import end_cluster, quick_to_kill

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.parallel,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be attacked and to become another user"),
]


@pytest.fixture(scope="module")
def attacked() -> Iterator[LocalCluster]:
    """A cluster of root's that everybody can reach; everything is still there after all attacks."""
    place = Path(tempfile.mkdtemp(prefix="osub-attacked-"))
    place.chmod(0o755)
    cluster = LocalCluster(place / "c")
    shape = Shape(
        nodes=2, cores=1, virtual=True, multiplicity=2, gang=GangKind.OSUB, hold=HoldSetting.FREEZE,
        settings=("PrivateData=jobs",),
    )  # fmt: skip
    cluster.up(quick_to_kill(shape))
    try:
        yield cluster
        assert cluster.status().is_whole
    finally:
        end_cluster(cluster)
    place.rmdir()


@pytest.fixture
def scene(attacked: LocalCluster) -> Iterator[Scene]:
    """A sticky folder for all, and one of root's in which nothing may have changed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="osub-scene-"))
    folder.chmod(0o755)
    shared, precious = folder / "shared", folder / "precious"
    for path, mode in ((shared, 0o1777), (precious, 0o755)):
        path.mkdir()
        path.chmod(mode)
    (precious / "file").write_text("precious")
    before = digest(precious)
    yield Scene(attacked, shared, precious)
    assert digest(precious) == before, sorted(str(path) for path in precious.rglob("*"))
    shutil.rmtree(folder)


def digest(folder: Path) -> str:
    """Return what tells whether anything in a folder was changed, added or removed."""
    digest_now = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found = path.lstat()
        digest_now.update(f"{path} {found.st_uid} {found.st_mode} {found.st_size}".encode())
        if path.is_file():
            digest_now.update(path.read_bytes())
    return digest_now.hexdigest()


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_nothing_is_gained(attack: Attack, scene: Scene) -> None:
    attack.carry_out(scene)
    assert os.geteuid() != OTHER_USER
