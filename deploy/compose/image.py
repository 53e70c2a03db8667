"""Images: made from the project's sources, and those that watch a cluster.

Making the images from the project's sources: a folder with what goes into them, and the engine's build.

Which images watch a cluster, and at which ports of this host's loopback.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deploy.compose.engine import Engine, EngineName
from deploy.compose.plan import (
    GRAFANA_IMAGE,
    GRAFANA_PORT,
    PROMETHEUS_IMAGE,
    PROMETHEUS_PORT,
    Monitoring,
    images_to_build,
    prometheus_image_of,
)
from foundation.errors import ClusterError, HostError
from foundation.one_line import one_line

ROOT = Path(__file__).parents[2]
_FILES = ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py")
_LOCKS = (
    "requirements-controller.lock",
    "requirements-agent.lock",
    "requirements-metrics.lock",
    "requirements-replay.lock",
)
_FOLDERS = (
    "osub",
    "foundation",
    "analysis",
    "workloads",
    "submitter",
    "gangd",
    "simulator",
    "predictor",
    "deploy",
)
_CONTAINERFILE = Path("deploy/compose/Containerfile")
_SITE = Path("deploy/compose/site")
_IGNORED = shutil.ignore_patterns("__pycache__", "_switch.so*", "*.pem", "pip.conf")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_BUILD_S = 3600.0
_STEP = re.compile(r"(?:(?:\[\d+/\d+\] )?step |#\d+ \[.*?)(\d+)/(\d+)(?: ?:|\]) (RUN .+)", re.IGNORECASE)
"""Docker's older builder, podman's, BuildKit's."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_UNREACHABLE = re.compile(
    r"Temporary failure|could(?: not|n't) resolve|name resolution|Name or service not known"
    r"|(?:could not|unable to) connect|Network is unreachable|No route to host|NewConnectionError|ProxyError",
    re.IGNORECASE,
)


def own_base(debian: int) -> str:
    """Return the name of the base that ``bootstrap-base`` makes."""
    return f"osub-base:{debian}"


def base_of(engine: Engine, debian: int) -> str:
    """Return the base: what ``bootstrap-base`` made here, or Debian's own from a registry."""
    own = own_base(debian)
    return own if has_image(engine, own) else f"docker.io/library/debian:{debian}-slim"


def has_image(engine: Engine, name: str) -> bool:
    """Whether the engine has an image."""
    return engine.run("image", "inspect", name).returncode == 0


def ensure_images(
    engine: Engine,
    debian: int,
    *,
    accounting: bool,
    say: Callable[[str], None],
    monitoring: Monitoring | None = None,
    anew: bool = False,
) -> None:
    """Build the images of a cluster that are missing, or all.

    Parameters
    ----------
    engine, debian
        What builds them, and the release of Debian that they have.
    accounting, monitoring
        What the cluster has besides Slurm.
    anew
        Whether those that are there are built, too.
    say
        Called with each step.

    Raises
    ------
    HostError
        An image is missing and this installation has no sources to build it from.
    ClusterError
        The build failed; the message has its last line.
    """
    wanted = images_to_build(debian, accounting=accounting, monitoring=monitoring)
    missing = {name: target for name, target in wanted.items() if anew or not has_image(engine, name)}
    if not missing:
        return
    if not (ROOT / _CONTAINERFILE).is_file() or not all(
        (ROOT / name).is_file() for name in (*_FILES, *_LOCKS)
    ):
        raise HostError(
            f"{engine.name} has no image {next(iter(missing))}, and this osub was installed without its "
            "sources: run `osub cluster up` from a checkout of the project once"
        )
    with build_context() as context:
        for name, target in missing.items():
            say(f"building the image {name} (some minutes, once)")
            _build(engine, context, name, target, base_of(engine, debian), say)


@contextmanager
def build_context(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Give a folder with exactly what the images are built from, and what this network needs meanwhile."""
    with tempfile.TemporaryDirectory(prefix="osub-image-") as name:
        context = Path(name)
        for file in (*_FILES, *_LOCKS):
            shutil.copyfile(root / file, context / file)
        for folder in _FOLDERS:
            shutil.copytree(root / folder, context / folder, ignore=_IGNORED)
        certificates = _certificates(environment)
        if certificates is not None:
            shutil.copyfile(certificates, context / _SITE / "ca.pem")
        given = root / _SITE / "pip.conf"
        if given.is_file():
            shutil.copyfile(given, context / _SITE / "pip.conf")
        yield context


def _certificates(environment: Mapping[str, str]) -> Path | None:
    for name in _CERTIFICATES:
        path = environment.get(name, "")
        if path and Path(path).is_file():
            return Path(path)
    found_path = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.cert"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return Path(found_path) if found_path and Path(found_path).is_file() else None


def _build(
    engine: Engine, context: Path, name: str, target: str, base: str, say: Callable[[str], None]
) -> None:
    words = [
        "build",
        "--force-rm",  # Docker's older builder leaves the container of a step that fails
        *("--network", "host"),  # an engine whose containers have no way out can still build
        *("--build-arg", f"BASE={base}"),
        *("--target", target),
        *("-f", str(context / _CONTAINERFILE)),
        *("-t", name),
    ]
    for proxy in _PROXIES:
        if os.environ.get(proxy):
            words += ["--build-arg", proxy]
    extra = {}
    if engine.name is EngineName.DOCKER and engine.run("buildx", "version").returncode != 0:
        extra["DOCKER_BUILDKIT"] = "0"
    unread = b""

    def heard(part: bytes) -> None:
        nonlocal unread
        *lines, unread = (unread + part).split(b"\n")
        for line in lines:
            if (step := build_step(line.decode(errors="replace"))) is not None:
                say(f"{name}, {step}")

    answer = engine.run(*words, str(context), within_s=_BUILD_S, extra=extra, heard=heard)
    if answer.returncode == 0:
        return
    fault = build_fault(f"{answer.stdout}\n{answer.stderr}", base, engine.name)
    raise ClusterError(f"the image {name} cannot be built: {fault}")


def build_step(line: str) -> str | None:
    """Return which step of a build begins with a line of its output; None for one that takes no time."""
    found = _STEP.match(line)
    return one_line(f"step {found[1]} of {found[2]}: {found[3]}", 100) if found else None


def build_fault(
    output: str, base: str, engine: EngineName, environment: Mapping[str, str] = os.environ
) -> str:
    """Return the line of a build's output with the first cause of its failure, and what to do about it."""
    lines = [line.strip() for line in _COLOUR.sub("", output).splitlines() if line.strip()]
    faults = [line for line in lines if "error" in line.lower() or line.startswith("E: ")]
    # Of podman the last one repeats the step, and the one before has what went wrong.
    telling = (
        [line for line in faults if not line.startswith("Error: building at STEP")]
        or faults
        or lines
        or ["?"]
    )
    if base.startswith("docker.io/") and any(re.search("pull|registry", line) for line in telling[-3:]):
        words = f"ENGINE={engine} deploy/compose/bootstrap-base {''.join(re.findall(r':([0-9]+)', base))}"
        return f"{one_line(telling[-1], 400)}; where no registry can be reached, `{words}` makes the base"
    # What was not fetched is missed by later steps, whose errors say nothing of the network.
    for line in lines:
        if _UNREACHABLE.search(line):
            proxies = [name for name in _PROXIES if environment.get(name) and name.lower() != "no_proxy"]
            how = (
                f" through {' and '.join(proxies)}: does that proxy answer?"
                if proxies
                else ": does this host resolve their names, or need http_proxy and https_proxy?"
            )
            return f"{one_line(line, 400)}; the build fetches packages of Debian and PyPI{how}"
    return one_line(telling[-1], 400)


_PULL_S = 900.0
_PORTS = 100
_LOOPBACK = "127.0.0.1"


def choose_watchers(engine: Engine, debian: int, say: Callable[[str], None]) -> Monitoring:
    """Choose images of a registry, or, on a base that was made without one, Debian's Prometheus alone.

    Raises
    ------
    HostError
        No image can be had, or no port is free.
    """
    alone = has_image(engine, own_base(debian))
    grafana: str | None = GRAFANA_IMAGE
    if not alone:
        for image in (PROMETHEUS_IMAGE, GRAFANA_IMAGE):
            _pull(engine, image, say)
    elif not has_image(engine, GRAFANA_IMAGE):
        grafana = None
        say(f"no Grafana: it is not in Debian, and {engine.name} has no image {GRAFANA_IMAGE}")
    prometheus_port = free_port(range(PROMETHEUS_PORT, PROMETHEUS_PORT + _PORTS))
    return Monitoring(
        prometheus_image=prometheus_image_of(debian) if alone else PROMETHEUS_IMAGE,
        prometheus_port=prometheus_port,
        grafana_image=grafana,
        grafana_port=free_port(range(GRAFANA_PORT, GRAFANA_PORT + _PORTS)),
    )


def free_port(ports: Iterable[int]) -> int:
    """Return the first of the ports that is free on the loopback; raises HostError."""
    tried = []
    for port in ports:
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((_LOOPBACK, port))
            except OSError:
                tried.append(port)
                continue
            return port
    raise HostError(f"no port of {_LOOPBACK} is free from {tried[0]} to {tried[-1]}")


def _pull(engine: Engine, image: str, say: Callable[[str], None]) -> None:
    if has_image(engine, image):
        return
    say(f"fetching the image {image}")
    answer = engine.run("pull", "-q", image, within_s=_PULL_S)
    if answer.returncode != 0:
        said = one_line((answer.stderr or answer.stdout).strip() or f"exit code {answer.returncode}", 300)
        raise HostError(
            f"{engine.name} cannot fetch {image}: {said}; where no registry can be reached, "
            "deploy/compose/bootstrap-base makes a base with which Debian's Prometheus is used"
        )
