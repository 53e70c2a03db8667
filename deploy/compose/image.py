"""Making the images from the project's sources: a folder with what goes into them, and the engine's build."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from deploy.compose.engine import Engine, EngineName
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
    engine: Engine, wanted: Mapping[str, str], base: str, *, anew: bool, say: Callable[[str], None]
) -> None:
    """Build the images that are missing, or all.

    Parameters
    ----------
    engine
        Builds them.
    wanted
        The target of the Containerfile that makes each.
    base
        What they are built on.
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
            _build(engine, context, name, target, base)


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


def _build(engine: Engine, context: Path, name: str, target: str, base: str) -> None:
    words = [
        "build",
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
    answer = engine.run(*words, str(context), within_s=_BUILD_S, extra=extra)
    if answer.returncode == 0:
        return
    lines = [line.strip() for line in (answer.stdout + "\n" + answer.stderr).splitlines() if line.strip()]
    faults = [line for line in lines if "error" in line.lower() or line.startswith("E: ")]
    # Of podman the last one repeats the step, and the one before has what went wrong.
    telling = (
        [line for line in faults if not line.startswith("Error: building at STEP")]
        or faults
        or lines
        or ["?"]
    )
    advice = ""
    if base.startswith("docker.io/") and any("pull" in line or base in line for line in telling[-3:]):
        advice = "; where no registry can be reached, deploy/compose/bootstrap-base makes the base"
    raise ClusterError(f"the image {name} cannot be built: {one_line(telling[-1], 400)}{advice}")
