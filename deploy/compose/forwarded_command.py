"""A command of ``osub`` that runs in a cluster's controller container, and its files (ADR 0050).

Each path of the host is the same path below ``HOST`` in the volume that all containers share. So relative
names mean the same on both sides, nodes see the RUN, and output names the host's paths without ``HOST``.
"""

from __future__ import annotations

import os
import pty
import secrets
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from deploy.compose.containers import list_containers, of_role
from deploy.compose.engine import Engine, find_engine, last_word
from deploy.compose.inside.controller import HOST, HOST_USER
from deploy.compose.plan import read_compose_state
from deploy.local.layout import state_option
from foundation.errors import ClusterError, OutputError
from foundation.files import unpack
from foundation.mpi_start import PREFIXES
from foundation.slurm.run_command import CommandOutput
from foundation.version import VERSION

_PYTHON, _OSUB = "/opt/osub/bin/python", "/opt/osub/bin/osub"
_LOOK = "import mpi4py, typer; from foundation.version import VERSION; print(VERSION)"
_PASSED = (*PREFIXES, "TERM", "NO_COLOR", "OSUB_MPI_START_S")
_CHUNK = 1 << 16
_COPY_S = 600.0


@dataclass(frozen=True, slots=True)
class ControllerContainer:
    """The controller's container of a cluster whose state folder is ``folder``.

    ``containers`` are the numbers of all its containers, ``cpus`` the CPUs that its nodes are pinned to.
    """

    folder: Path
    engine: Engine
    container: str
    has_gangd: bool
    containers: frozenset[str]
    cpus: frozenset[int]

    @classmethod
    def of(cls, folder: Path) -> ControllerContainer:
        """Return the controller, with the host's working folder and the cluster's slurm.conf made in it.

        Raises
        ------
        ClusterError
            There is no such cluster, its controller does not run, or its image cannot run this command.
        HostError
            The engine does not answer.
        """
        state = read_compose_state(folder)
        if state is None:
            raise ClusterError(f"no cluster in containers in {folder}")
        engine = find_engine(state.engine, with_compose=False)
        containers = list_containers(engine, state.home, state.cluster)
        found = of_role(containers, "controller")
        if not found or found[0].state != "running":
            what = found[0].state if found else "gone"
            raise ClusterError(f"the controller's container of {folder} is {what}: {_again(folder)}")
        pinned = 0 if state.shape.virtual else state.shape.nodes * state.shape.cores
        self = cls(
            folder,
            engine,
            found[0].id,
            state.shape.gang == "osub",
            frozenset(one.id for one in containers),
            frozenset(sorted(os.sched_getaffinity(0))[:pinned]),
        )
        self._check_image()
        inside = HOST / str(folder.absolute())[1:]
        self._ask(
            f"mkdir -p {shlex.quote(_inside(Path.cwd()))} {shlex.quote(str(inside))} && "
            f"cp /etc/slurm/slurm.conf {shlex.quote(str(inside))}",
            "prepare the controller's container",
        )
        return self

    def _check_image(self) -> None:
        answer = self.engine.run("exec", self.container, _PYTHON, "-P", "-c", _LOOK)
        version = answer.stdout.strip()
        if answer.returncode == 0 and version == VERSION:
            return
        what = f"of osub {version}, and this is {VERSION}" if version else "for daemons alone"
        raise ClusterError(
            f"the image of the cluster in {self.folder} is {what}: `osub cluster down "
            f"{state_option(self.folder)}`, then the same `osub cluster up` with --build"
        )

    def has(self, path: Path) -> bool:
        """Return whether a path of the host is in the container."""
        return self._shell(f"test -e {shlex.quote(_inside(path))}").returncode == 0

    def put(self, paths: Iterable[Path]) -> None:
        """Copy files or folders of the host to where they are in the container; raises ClusterError."""
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                for path in paths:
                    archive.dereference = path.is_file()  # in a RUN links are claims, and lead nowhere
                    archive.add(path, _inside(path.absolute())[1:], filter=_readable)
            packed.seek(0)
            words = self._words("tar", "-C", "/", "-x", "-f", "-", options=["-i"])
            done = subprocess.run(words, stdin=packed, capture_output=True, check=False, timeout=_COPY_S)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip()
            raise ClusterError(f"cannot copy into the controller's container: {why}")

    def fetch(self, path: Path) -> Path:
        """Copy a folder out of the container into a new folder next to ``path``; returns the new one.

        Raises
        ------
        OutputError
            It cannot be written; nothing of it is left.
        ClusterError
            It cannot be read.
        """
        path = path.absolute()
        words = self._words("tar", "-C", _inside(path), "-c", "-f", "-", ".")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}") from error
        try:
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as sender:
                assert sender.stdout is not None
                with tarfile.open(fileobj=sender.stdout, mode="r|") as archive:
                    unpack(archive, draft)
            if sender.returncode > 1:  # 1: a file changed meanwhile
                raise ClusterError(f"cannot copy {path} out of the controller's container")
            draft.chmod(0o755)
        except BaseException as error:
            shutil.rmtree(draft, ignore_errors=True)
            if isinstance(error, OSError):
                raise OutputError(f"cannot write {path}: {error.strerror}") from error
            if isinstance(error, tarfile.TarError):
                raise ClusterError(
                    f"cannot copy {path} out of the controller's container: {error}"
                ) from error
            raise
        return draft

    def read(self, path: Path) -> str | None:
        """Return the text of a file of the container; None where there is none."""
        answer = self._shell(f"cat {shlex.quote(_inside(path))}")
        return None if answer.returncode else answer.stdout

    def remove(self, path: Path) -> None:
        """Remove a folder from the container."""
        self._shell(f"rm -rf {shlex.quote(_inside(path))}")

    def start(self, words: Sequence[str], user: str = HOST_USER) -> RunningCommand:
        """Start ``osub`` with these words in the container, as this user of it."""
        note = f"/tmp/osub-{secrets.token_hex(4)}"  # noqa: S108 - in the container
        passed = [name for name in os.environ if name.startswith(_PASSED)]
        options = ["-w", _inside(Path.cwd()), *(f"-e{name}={os.environ[name]}" for name in passed)]
        size = shutil.get_terminal_size()
        options += [f"-eCOLUMNS={size.columns}", f"-eLINES={size.lines}"]
        on_terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
        options += ["-it"] if on_terminal else []
        shell = f'echo $$ >{note}; exec {_OSUB} "$@"'
        command = self._words("sh", "-c", shell, "osub", *words, options=options, user=user)

        def signal(number: int) -> None:
            once = f"[ -s {note} ] && kill -{number} $(cat {note}) && exit 0; sleep 0.2"
            self._shell(f"for try in $(seq 25); do {once}; done", user)

        return RunningCommand(self, signal, command, on_terminal=on_terminal)

    def check_is_running(self) -> None:
        """Raise ClusterError where the container has ended."""
        answer = self.engine.run("inspect", "-f", "{{.State.Running}}", self.container)
        if answer.stdout.strip() != "true":
            raise ClusterError(
                f"the controller's container of {self.folder} has ended meanwhile; the RUN is kept in the "
                f"cluster: {_again(self.folder)}, and `osub replay` with --resume goes on"
            )

    def _ask(self, text: str, what: str) -> None:
        answer = self._shell(text)
        if answer.returncode:
            raise ClusterError(f"cannot {what}: {last_word(answer)}")

    def _shell(self, text: str, user: str = HOST_USER) -> CommandOutput:
        return self.engine.run(*self._words("sh", "-c", text, user=user)[1:])

    def _words(self, *words: str, options: Sequence[str] = (), user: str = HOST_USER) -> list[str]:
        return [str(self.engine.name), "exec", "-u", user, *options, self.container, *words]


class RunningCommand:
    """A command in the container, its output on this one's, without ``HOST`` before the paths in it.

    ``signal`` sends a signal to it, once its process id is known.
    """

    def __init__(
        self,
        controller: ControllerContainer,
        signal: Callable[[int], None],
        words: Sequence[str],
        *,
        on_terminal: bool,
    ) -> None:
        self._controller = controller
        self.signal = signal
        self._words = words
        self._on_terminal = on_terminal

    def wait(self) -> int:
        """Carry its output until it ends; returns its exit code.

        Raises
        ------
        ClusterError
            The container ended first.
        """
        if self._on_terminal:
            code = os.waitstatus_to_exitcode(
                pty.spawn(self._words, lambda master: _outside(os.read(master, _CHUNK)))
            )
        else:
            # The engine's client would end by Ctrl-C itself.
            with subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            ) as client:
                pairs = ((client.stdout, sys.stdout), (client.stderr, sys.stderr))
                threads = [threading.Thread(target=_carry, args=pair, daemon=True) for pair in pairs]
                for thread in threads:
                    thread.start()
                code = client.wait()
                for thread in threads:
                    thread.join()
        if code:
            self._controller.check_is_running()
        return code


def _carry(source: IO[bytes], target: IO[str]) -> None:
    with suppress(BrokenPipeError):
        for line in source:
            target.write(_outside(line).decode(errors="replace"))
            target.flush()
    for _ in source:  # the pipe is closed; the command goes on
        pass


def _outside(output: bytes) -> bytes:
    return output.replace(os.fsencode(HOST), b"")


def _inside(path: Path) -> str:
    return f"{HOST}{path.absolute()}"


def _readable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mode |= 0o700 if entry.isdir() else 0o600
    return entry


def _again(folder: Path) -> str:
    return f"the `osub cluster up` that made it, with {state_option(folder)}, starts it again"
