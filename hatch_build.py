"""Compiles the C part of the switch when the package is built or installed; if it can't, it goes without."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-O2", "-Wall", "-Wextra", "-shared", "-fPIC"]
FOLDER = Path("gangd", "agent")


def compile_switch(root: Path, to: Path) -> str | None:
    """Compile the library into the file ``to``; returns why not, if it could not be."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    fresh = to.with_name(f"{to.name}.{os.getpid()}")
    try:
        done = subprocess.run(
            [*compiler, *FLAGS, "-o", str(fresh), str(root / FOLDER / "switch.c")],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return f"no compiler ({shlex.join(compiler)}: {error.strerror})"
    if done.returncode != 0:
        return f"{shlex.join(compiler)} failed: {done.stderr.strip()[:500]}"
    fresh.replace(to)
    return None


class SwitchHook(BuildHookInterface[Any]):
    """The hook; ``gangd.agent.native`` finds what it makes, and does without what it could not."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile before the wheel is put together."""
        library = Path(self.root) / FOLDER / "_switch.so"
        why_not = compile_switch(Path(self.root), library)
        if why_not is not None:
            library.unlink(missing_ok=True)
            self.app.display_warning(f"the switch stays Python alone: {why_not}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["artifacts"].append(str(FOLDER / "_switch.so"))
