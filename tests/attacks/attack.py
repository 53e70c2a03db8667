"""An attack, and the scene on which it is carried out."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from click.exceptions import Exit

from deploy.local import LocalCluster
from osub.cli.main import run

OTHER_USER = 61_234  # a user id without an account, for nothing on the host has to be changed for it
ACCOUNT = 65_534  # the id of ``nobody``, who has one: Slurm starts his jobs
RUNTIME_S = 30.0


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack: its name, what is tried in a sentence, and the trying."""

    name: str
    tries: str
    carry_out: Callable[[Scene], None]


ATTACKS: dict[str, Attack] = {}


def attack(name: str) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Put a function into the list of attacks; its docstring's first line says what is tried."""

    def listed(function: Callable[[Scene], None]) -> Callable[[Scene], None]:
        assert name not in ATTACKS
        ATTACKS[name] = Attack(name, (function.__doc__ or "").partition("\n")[0], function)
        return function

    return listed


@dataclass(frozen=True, slots=True)
class Scene:
    """Where attacks are carried out.

    cluster: a living cluster of root's, under gangd, with ``PrivateData=jobs``. Everybody can reach its
        folder.
    shared: a folder like ``/tmp``: everybody may write, and it is sticky.
    precious: a folder of root's with a file that no other user may touch.
    """

    cluster: LocalCluster
    shared: Path
    precious: Path

    def osub(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of osub as root."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = run(list(words))
            except Exit as left:
                code = left.exit_code
        return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())

    def root(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run any command as root."""
        return subprocess.run(
            words, env=dict(os.environ) | environment, capture_output=True, text=True,
            timeout=2 * RUNTIME_S, check=False,
        )  # fmt: skip

    def as_other(
        self,
        *words: str,
        stdin: str = "",
        user: int = OTHER_USER,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the second user."""
        return subprocess.run(
            words, input=stdin, user=user, group=user, extra_groups=[], cwd="/",
            env={"PATH": "/usr/bin:/bin"} | dict(environment or {}), capture_output=True, text=True,
            timeout=RUNTIME_S, check=False,
        )  # fmt: skip

    def slurm(self, *words: str, stdin: str = "", user: int = OTHER_USER) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm as the second user, on root's cluster."""
        return self.as_other(
            *words, stdin=stdin, user=user, environment={"SLURM_CONF": str(self.cluster.conf)}
        )

    def give(self, path: Path, mode: int | None = None) -> Path:
        """Make a file or folder, with what is in it, the second user's."""
        for entry in (path, *(path.rglob("*") if path.is_dir() and not path.is_symlink() else ())):
            os.chown(entry, OTHER_USER, OTHER_USER, follow_symlinks=False)
        if mode is not None:
            path.chmod(mode)
        return path


@contextmanager
def concurrently(loop: Callable[[], None], user: int = OTHER_USER) -> Iterator[None]:
    """Let the second user do something over and over, in a process of his own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child does nothing that needs a thread
        child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            while True:
                try:
                    loop()
                except OSError:
                    time.sleep(0)
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def refused(done: subprocess.CompletedProcess[str], *reasons: str) -> None:
    """Assert that a command ended with one line that gives one of the reasons."""
    assert done.returncode in (1, 2), (done.stdout, done.stderr)
    said = done.stderr.strip()
    assert len(said.splitlines()) == 1, said
    assert any(reason in said for reason in reasons), said
