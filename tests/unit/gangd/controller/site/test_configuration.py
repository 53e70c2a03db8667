"""What a configuration may say, what Slurm's must not, and what of it reaches the agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from foundation.errors import ClusterError, UsageError
from foundation.slurm import Partition
from gangd.agent.node_agent import REPORT_NS
from gangd.controller.controller_config import Config, Saying, load_config
from gangd.controller.examine_slurm import check_slurm
from gangd.core import CoreSettings
from gangd.core.gang_settings import LEAST_LEASE_NS
from gangd.wire import ControllerIdentity, SlicePlan, decode_down, encode_down

SHORT = CoreSettings(freeze_cap_ns=5_000_000_000)


def partition(**more: Any) -> Partition:
    fields = {"name": "main", "nodes": ("n1",), "multiplicity": 2, "forced": True}
    rest = {"is_default": True, "is_up": True, "preempt_mode": "OFF"}
    return Partition(**{**fields, **rest, **more})


@pytest.mark.parametrize(
    ("config", "partitions"),
    [
        ({"PreemptMode": "GANG,SUSPEND"}, [partition()]),
        ({"PreemptMode": "REQUEUE,GANG"}, [partition()]),
        ({"PreemptMode": "OFF"}, [partition(), partition(name="low", preempt_mode="SUSPEND")]),
    ],
)
def test_slurms_own_gang_scheduler_is_not_borne(config: dict[str, str], partitions: list[Partition]) -> None:
    with pytest.raises(ClusterError, match="fight over freezes"):
        check_slurm(config, partitions, SHORT)


def test_a_freeze_that_slurm_would_not_bear_is_refused() -> None:
    with pytest.raises(ClusterError, match="half of Slurm's MessageTimeout of 8 s"):
        check_slurm({"MessageTimeout": "8 sec"}, [partition()], SHORT)
    with pytest.raises(ClusterError, match="make quantum_ms shorter"):
        check_slurm(
            {"MessageTimeout": "10 sec"},
            [partition(multiplicity=4)],
            CoreSettings(quantum_ns=2_000_000_000, freeze_cap_ns=5_000_000_000),
        )


def test_what_yields_is_never_frozen_for_too_long() -> None:
    slurm = {"MessageTimeout": "10 sec", "SelectTypeParameters": "CR_CORE_MEMORY"}
    partitions = [partition(multiplicity=4)]
    config = Config(hold="yield", quantum_ms=2000)
    assert check_slurm(slurm, partitions, config.settings(), config.may_freeze) == ()
    for other in (
        Config(hold="freeze", quantum_ms=2000),
        Config(hold="yield", quantum_ms=2000, job_holds=("freeze",)),
    ):
        with pytest.raises(ClusterError, match="make quantum_ms shorter"):
            check_slurm(slurm, partitions, other.settings(), other.may_freeze)


def test_newcomers_yield_where_any_job_does() -> None:
    assert Config().bounds().newcomers_yield
    assert not Config(hold="freeze").bounds().newcomers_yield
    assert Config(hold="freeze", partitions={"main": Saying(hold="yield")}).bounds().newcomers_yield


def test_an_unknown_way_of_holding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gangd.toml"
    for text in ('hold = "sleep"', 'job_holds = ["sleep"]', '[partitions.main]\nhold = "sleep"'):
        file.write_text(text + "\n")
        with pytest.raises(UsageError):
            load_config(file)
    file.write_text('hold = "yield"\njob_holds = ["freeze"]\n[partitions.big]\nhold = "freeze"\n')
    config = load_config(file)
    assert (config.hold, config.may_freeze("big"), config.may_freeze("other")) == ("yield", True, True)


def test_cores_shared_without_memory_as_a_resource_deserve_a_warning() -> None:
    config = {"MessageTimeout": "10 sec", "SelectTypeParameters": "CR_CORE,CR_LLN"}
    [warning] = check_slurm(config, [partition()], SHORT)
    assert "CR_Core_Memory" in warning
    config["SelectTypeParameters"] = "CR_CORE_MEMORY,CR_LLN"
    assert check_slurm(config, [partition()], SHORT) == ()
    [warning] = check_slurm(config, [partition(multiplicity=1)], SHORT)
    assert "nothing to do" in warning


def test_what_a_configuration_allows_the_wire_carries() -> None:
    """Settings that only the agents refuse would leave them without a plan, and nobody would know why."""
    nothing: dict[str, Any] = {"tracks": ()}
    for text in (
        "lease_ms = 1500\nfreeze_cap_ms = 250\nstep_grace_ms = 0",
        "lease_ms = 60000\nfreeze_cap_ms = 60000\nstep_grace_ms = 60000\nquantum_ms = 5000",
        "quantum_ms = 20\nlookahead = 64",
    ):
        config = msgspec.convert(msgspec.toml.decode(text.encode()), Config)
        settings = config.settings()
        plan = SlicePlan(
            controller=ControllerIdentity(b"c" * 16, 1),
            node="n1",
            epoch=1,
            seq=1,
            sent_ns=0,
            lease_ns=settings.lease_ns,
            first_slice=settings.lookahead,
            first_start_ns=0,
            quantum_ns=settings.quantum_ns,
            horizon=settings.lookahead,
            bounds=config.bounds(),
            **nothing,
        )
        assert decode_down(encode_down(plan), "n1") == plan


def test_an_agent_with_nothing_to_do_reports_well_within_the_shortest_lease() -> None:
    assert REPORT_NS * 1.5 <= LEAST_LEASE_NS


@pytest.mark.parametrize(
    ("nodes", "lease_s"), [(0, 2), (1_600, 2), (2_000, 2.5), (10_000, 12.5), (48_000, 60), (1_000_000, 60)]
)
def test_a_large_cluster_has_a_longer_lease_unless_one_is_set(nodes: int, lease_s: float) -> None:
    assert Config().settings(nodes).lease_ns == lease_s * 1e9
    assert Config(lease_ms=3000).settings(nodes).lease_ns == 3_000_000_000


def test_a_configuration_is_read_and_the_command_line_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "gangd.toml"
    path.write_text(
        'quantum_ms = 100\nkeys = "/k"\nopt_out_comments = ["x"]\n[partitions.fast]\nweight = 2\n'
    )
    config = load_config(path, quantum_ms=50.0, record=tmp_path, state=None)
    assert (config.quantum_ms, config.keys) == (50.0, Path("/k"))
    assert config.partitions == {"fast": Saying(weight=2.0)}
    assert config.settings().quantum_ns == 50_000_000
    assert config.settings().record


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quantum = 5", "unknown keys quantum; known keys are .*quantum_ms"),
        ("quantum_ms = 5", "20 ms to 5 s"),
        ("quantum_ms = 'long'", "quantum_ms"),
        ("lookahead = 0", "1 to 64"),
        ("[weights]\nfast = -1", "weights"),
        ("freeze_cap_ms = 100", "make the quantum shorter"),
        ("freeze_cap_ms = 60001", "above 60 s"),
        ("lease_ms = 100", "1500 ms to 60 s are possible"),
        ("lease_ms = 60001", "1500 ms to 60 s are possible"),
        ("step_grace_ms = 60001", "step_grace_ms"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "gangd.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        load_config(path)
