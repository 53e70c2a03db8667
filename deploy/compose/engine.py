"""The container engine: whether it answers, what it offers, and its compose.

Docker's compose is a plug-in (``docker compose``; Debian 13's docker-compose is it) or, older, a program of
its own (``docker-compose``, Debian 12's); podman's is ``podman-compose``, or what ``podman compose`` finds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from deploy.compose.inside.conf import Hierarchy
from foundation.errors import ClusterError, HostError
from foundation.one_line import one_line
from foundation.slurm.run_command import CommandOutput, run_command

_ANSWER_S, _COMPOSE_S = 30.0, 120.0
_START_INTERVAL_API = (1, 44)
_ERROR = re.compile(r"error\w*\W+\w", re.IGNORECASE)
"""What says more than that there was one: compose's ``Container x  Error`` does not."""
HELPERS = tuple(
    Path(one, "podman") for one in ("/usr/libexec", "/usr/lib", "/usr/local/libexec", "/usr/local/lib")
)
"""Folders in which podman looks for its helpers (containers.conf(5), ``helper_binaries_dir``)."""


class EngineName(StrEnum):
    """Which engine runs the containers."""

    DOCKER = "docker"
    PODMAN = "podman"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine says of itself and of its host.

    Attributes
    ----------
    hierarchy
        Of the cgroups that its containers live in.
    cpus, memory_mib
        Of its host.
    knows_start_interval
        Whether a starting container may be looked at more often than a healthy one.
    is_rootless
        Whether its containers have no more rights on the host than a plain user.
    """

    hierarchy: Hierarchy
    cpus: int
    memory_mib: int
    knows_start_interval: bool
    is_rootless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine that answers; ``compose`` is the command of its compose, empty where it is not needed."""

    name: EngineName
    facts: EngineFacts
    compose: tuple[str, ...]

    def run(
        self,
        *words: str,
        within_s: float = 120.0,
        extra: Mapping[str, str] | None = None,
        stdin: str | None = None,
        heard: Callable[[bytes], None] = lambda _: None,
    ) -> CommandOutput:
        """Run one of the engine's commands; ``heard`` gets its output as it comes."""
        environment = {**os.environ, **(extra or {})}
        return run_command([str(self.name), *words], stdin, environment, within_s, heard=heard)

    def ask(self, *words: str, within_s: float = 120.0, extra: Mapping[str, str] | None = None) -> str:
        """Return what a command prints; raises ClusterError where it fails."""
        return checked([str(self.name), *words], self.run(*words, within_s=within_s, extra=extra))


def find_engine(name: EngineName, *, with_compose: bool = True) -> Engine:
    """Return an engine that answers.

    Parameters
    ----------
    name
        Which one.
    with_compose
        Whether its compose is needed, too.

    Raises
    ------
    HostError
        It or its compose is not installed, or it does not answer; the message says what to do.
    """
    if shutil.which(str(name)) is None:
        package = "docker.io docker-cli" if name is EngineName.DOCKER else "podman"
        raise HostError(f"{name} is not installed here. As an administrator: apt-get install {package}")
    template = "{{json .}}" if name is EngineName.DOCKER else "json"
    answer = run_command([str(name), "info", "--format", template], None, os.environ, _ANSWER_S)
    if name is EngineName.PODMAN and with_compose:
        _refuse_without_helpers()
    facts = None
    if answer.returncode == 0:
        version = run_command([str(name), "version", "--format", "json"], None, os.environ, _ANSWER_S)
        facts = read_facts(name, answer.stdout, _api(name, version))
    if facts is None:
        said = last_word(answer)
        advice = "is its daemon running?"
        if "permission denied" in said.lower():
            advice = f"root may use it, and whom an administrator adds to the group {name}."
        raise HostError(f"{name} does not answer ({said}): {advice} `{name} info` says more")
    if with_compose and facts.is_rootless and facts.hierarchy == "v1":
        raise HostError(
            f"{name} is rootless here, and a cluster's nodes need the host's freezer (cgroup v1), which is "
            "root's: run the same command as root"
        )
    return Engine(name=name, facts=facts, compose=_find_compose(name) if with_compose else ())


def _refuse_without_helpers() -> None:
    """Refuse a podman without its helpers: containers would not start, or not find each other by name."""
    lacking = [
        name
        for name in ("catatonit", "netavark", "aardvark-dns")
        if shutil.which(name) is None and not any((folder / name).exists() for folder in HELPERS)
    ]
    if lacking:
        raise HostError(
            f"podman lacks {' and '.join(lacking)}, without which containers do not start or find each "
            f"other. As an administrator: apt-get install {' '.join(lacking)}"
        )


def read_facts(name: EngineName, info: str, api: tuple[int, int]) -> EngineFacts | None:
    """Return what ``info`` says as JSON; None where it is no engine's answer."""
    try:
        info_json: Any = json.loads(info)
        if name is EngineName.DOCKER:
            version, cpus, memory = info_json["CgroupVersion"], info_json["NCPU"], info_json["MemTotal"]
            is_rootless = "name=rootless" in (info_json.get("SecurityOptions") or ())
        else:
            host = info_json["host"]
            version, cpus, memory = host["cgroupVersion"], host["cpus"], host["memTotal"]
            is_rootless = bool(host.get("security", {}).get("rootless"))
        hierarchy: Hierarchy = "v2" if str(version).endswith("2") else "v1"
        return EngineFacts(
            hierarchy=hierarchy,
            cpus=max(1, int(cpus)),
            memory_mib=max(1, int(memory) >> 20),
            knows_start_interval=name is EngineName.DOCKER and api >= _START_INTERVAL_API,
            is_rootless=is_rootless,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _api(name: EngineName, version: CommandOutput) -> tuple[int, int]:
    """Return the API's version of Docker's daemon; (0, 0) where it is unknown."""
    if name is not EngineName.DOCKER or version.returncode != 0:
        return (0, 0)
    try:
        major, minor = str(json.loads(version.stdout)["Server"]["ApiVersion"]).split(".")[:2]
        return (int(major), int(minor))
    except (ValueError, KeyError, TypeError):
        return (0, 0)


def _find_compose(name: EngineName) -> tuple[str, ...]:
    candidates: tuple[tuple[str, ...], ...]
    if name is EngineName.DOCKER:
        candidates, package = (("docker", "compose"), ("docker-compose",)), "docker-compose"
    else:
        candidates, package = (("podman-compose",), ("podman", "compose")), "podman-compose"
    for words in candidates:
        if shutil.which(words[0]) is None:
            continue
        answer = run_command([*words, "version"], None, os.environ, _COMPOSE_S)
        if answer.returncode == 0:
            return words
        if answer.returncode is None:
            raise HostError(
                f"`{' '.join(words)} version` gave no answer within {_COMPOSE_S:g} s: is this host busy?"
            )
    tried = " nor ".join(f"`{' '.join(words)}`" for words in candidates)
    raise HostError(
        f"{name} has no compose here: neither {tried} works. As an administrator: apt-get install {package}"
    )


def checked(words: Sequence[str], answer: CommandOutput) -> str:
    """Return what a command printed; raises ClusterError with its last line where it failed."""
    if answer.returncode == 0:
        return answer.stdout
    raise ClusterError(f"`{one_line(' '.join(words[:6]))}` failed: {last_word(answer)}")


def last_word(answer: CommandOutput, *, of_several: int = -1) -> str:
    """Return the telling line of what went wrong: of several the last, or with 0 the first."""
    lines = [line.strip() for line in (answer.stderr or answer.stdout).splitlines() if line.strip()]
    telling = [line for line in lines if _ERROR.search(line)] or lines
    return one_line(telling[of_several]) if telling else f"exit code {answer.returncode}, nothing printed"
