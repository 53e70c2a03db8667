"""The files for systemd: settings that are the defaults, units that say what the daemons need and no more."""

from __future__ import annotations

import configparser
import re
import shlex
import tomllib
from pathlib import Path

import msgspec
import pytest

import deploy
from gangd.agent.agent_options import parser, with_command
from gangd.controller.controller_config import Config, load_config

FOLDER = Path(deploy.__file__).parent / "systemd"
NEEDS_A_VALUE = {"lease_ms", "mark_jobs", "slurm_conf", "takeover_ms", "record", "status_mode", "pairing"}
NEEDS_A_VALUE |= {"metrics", "metrics_token"}
"""Keys whose default is that they are not set: the file shows an example."""


def unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(FOLDER / name)
    return found


def test_the_example_shows_every_key_with_its_default(tmp_path: Path) -> None:
    text = (FOLDER / "gangd.toml").read_text()
    shown = re.sub(r"(?m)^# (?=[a-z_]+ = )", "", text)
    table = tomllib.loads(shown)
    assert set(table) == set(Config.__struct_fields__)
    path = tmp_path / "gangd.toml"
    path.write_text(shown)
    read, plain = load_config(path), Config()
    for key in Config.__struct_fields__:
        if key in NEEDS_A_VALUE:
            assert getattr(plain, key) is None
        else:
            assert getattr(read, key) == getattr(plain, key), key
    path.write_text(text)
    assert load_config(path) == plain, "as it is it changes nothing"
    assert msgspec.structs.asdict(read)["keys"] == Path("/etc/gangd/keys")


@pytest.mark.parametrize("name", ["gangd.service", "gang-agent.service"])
def test_units_bound_what_the_daemons_may_do(name: str) -> None:
    service = unit(name)["Service"]
    assert service["Type"] == "notify"
    assert float(service["WatchdogSec"]) >= 10
    for key, value in {
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "RestrictNamespaces": "yes",
        "MemoryDenyWriteExecute": "yes",
        "Restart": "always",
    }.items():
        assert service[key] == value
    assert "@system-service" in (FOLDER / name).read_text()
    assert not (FOLDER / name).stat().st_mode & 0o111


def test_the_controller_has_no_privilege_and_the_agent_few() -> None:
    controller, agent = unit("gangd.service")["Service"], unit("gang-agent.service")["Service"]
    assert controller["User"] == "gangd"
    assert controller["CapabilityBoundingSet"] == ""
    assert "User" not in agent
    granted = set(agent["CapabilityBoundingSet"].split())
    assert granted <= {"CAP_KILL", "CAP_SYS_NICE", "CAP_SYS_PTRACE", "CAP_IPC_LOCK", "CAP_DAC_READ_SEARCH"}
    assert "ProtectControlGroups" not in agent
    assert "RestrictRealtime" not in agent
    assert agent["ExecStopPost"] == "gang-agent thaw --expired"


def test_commands_of_the_units_are_ones_that_the_daemons_take() -> None:
    default = (FOLDER / "gang-agent.default").read_text()
    options = shlex.split(re.search(r'(?m)^OPTIONS="(.*)"$', default)[1])  # type: ignore[index]
    parsed = parser().parse_args(with_command(["run", *options]))
    assert parsed.controller == ["controller"]
    parser().parse_args(["thaw", "--expired"])
