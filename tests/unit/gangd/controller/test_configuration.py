"""The controller's configuration and its rules for policies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foundation.errors import ClusterError, UsageError
from foundation.slurm import JobSnapshot, Partition, SlurmJob, SubmitRequest
from gangd.agent.node_agent import REPORT_NS
from gangd.controller.alarms import refused_opt_outs
from gangd.controller.controller_config import Config, JobRule, load_config
from gangd.controller.examine_slurm import check_slurm, enforces, examine, unknown_names
from gangd.controller.job_policy import JobRules, Policy, policy_of
from gangd.controller.slurm_view import ClusterView
from gangd.core.cores import CoreMap
from gangd.core.gang_settings import LEAST_LEASE_NS, CoreSettings
from gangd.core.scheduler_events import HoldMode
from gangd.wire.messages import ControllerIdentity, SlicePlan
from gangd.wire.wire_frames import decode_down, encode_down
from tests.fixtures.fake_slurm import FakeSlurm

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
        Config(hold="yield", quantum_ms=2000, quantum_max_ms=2000, tune=True, tune_holds=("freeze",)),
    ):
        with pytest.raises(ClusterError, match="make quantum_ms shorter"):
            check_slurm(slurm, partitions, other.settings(), other.may_freeze)


def test_newcomers_yield_where_any_job_does() -> None:
    assert Config().bounds().newcomers_yield
    assert not Config(hold="freeze").bounds().newcomers_yield
    assert Config(hold="freeze", partitions={"main": JobRule(hold=HoldMode.YIELD)}).bounds().newcomers_yield


def test_ways_of_holding_are_read(tmp_path: Path) -> None:
    (file := tmp_path / "gangd.toml").write_text(
        'hold = "yield"\njob_holds = ["freeze"]\n[partitions.big]\nhold = "freeze"\n'
    )
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
    """Settings that only the agents refuse would leave them without a plan, and no message would say why."""
    nothing: dict[str, Any] = {"tracks": ()}
    for text in (
        "lease_ms = 1500\nfreeze_cap_ms = 250\nstep_grace_ms = 0",
        "lease_ms = 60000\nfreeze_cap_ms = 60000\nstep_grace_ms = 60000\nquantum_ms = 5000",
        "quantum_ms = 20\nlookahead = 64",
    ):
        config = msgspec.convert(msgspec.toml.decode(text.encode()), Config)
        settings = config.settings()
        plan = SlicePlan(
            controller=ControllerIdentity(b"c" * 16, 1), node="n1", epoch=1, seq=1, sent_ns=0,
            lease_ns=settings.lease_ns, first_slice=settings.lookahead, first_start_ns=0,
            quantum_ns=settings.quantum_ns, horizon=settings.lookahead, bounds=config.bounds(),
            **nothing,
        )  # fmt: skip
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
    (path := tmp_path / "gangd.toml").write_text(
        'quantum_ms = 100\nkeys = "/k"\nopt_out_comments = ["x"]\n[partitions.fast]\nweight = 2\n'
    )
    config = load_config(path, quantum_ms=50.0, record=tmp_path, state=None)
    assert (config.quantum_ms, config.keys) == (50.0, Path("/k"))
    assert config.partitions == {"fast": JobRule(weight=2.0)}
    assert config.settings().quantum_ns == 50_000_000
    assert config.settings().record


def test_a_key_by_its_former_name_is_taken_with_a_warning_that_has_the_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (path := tmp_path / "gangd.toml").write_text("quantum_most_ms = 800\n")
    assert load_config(path).quantum_max_ms == 800
    assert [(one.levelname, "quantum_max_ms" in one.getMessage()) for one in caplog.records] == [
        ("WARNING", True)
    ]


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
        ("tune = true\nquantum_min_ms = 300", "quantum_min_ms is 300; from 20 ms to 250 ms"),
        ("tune = true\nquantum_min_ms = -1", "quantum_min_ms"),
        ("tune = true\nquantum_max_ms = 200", "quantum_max_ms is 200; from 250 ms to 5 s"),
        ("quantum_max_ms = 800\nquantum_most_ms = 900", "remove quantum_most_ms"),
        ("tune = true\nquantum_ms = 2000", "quantum_max_ms is 1000; from 2000 ms to 5 s"),
        ("tune = 'yes'", "tune"),
        ("[users.alice]\nwieght = 2", "unknown field `wieght`"),
        ("[users.alice]\nweight = 0", ">= 0.0009"),
        ("[users.alice]\nweight = nan", "weight"),
        ("[qos.long]\nquantum_ms = 20", "of QOS long: it is made of slices of 250 ms"),
        ("[accounts.a]\nquantum_ms = 6000", "of account a"),
        ("[accounts.'a;b']\nweight = 1", "matching regex"),
        ("[partition.x]\nweight = 1", "unknown keys partition; known keys are accounts"),
        ('hold = "sleep"', "hold"),
        ('job_holds = ["sleep"]', "job_holds"),
        ('tune_holds = ["yield"]', "tune_holds"),
        ('[partitions.main]\nhold = "sleep"', "hold"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (path := tmp_path / "gangd.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        load_config(path)


def job(**more: Any) -> SlurmJob:
    slurm = FakeSlurm()
    slurm.submit(SubmitRequest(script="#!/bin/sh\n", name="a"))
    fields: dict[str, Any] = {"account": "physics", "qos": "long", "user": "alice", **more}
    return replace(slurm.jobs().jobs[0], **fields)


def frozen(weight: float, quantum_ms: float, *, opt_out: bool = False) -> JobRule:
    return JobRule(hold=HoldMode.FREEZE, weight=weight, quantum_ms=quantum_ms, opt_out=opt_out)


EVERYWHERE = JobRules(
    partitions={"main": frozen(2.0, 1, opt_out=True)},
    qos={"long": JobRule(weight=3.0, quantum_ms=2)},
    accounts={"physics": JobRule(weight=4.0)},
    users={"alice": JobRule(opt_out=False)},
)


def test_each_thing_is_said_by_the_nearest_rule_that_says_it() -> None:
    assert EVERYWHERE.of(job()) == frozen(4.0, 2)
    assert EVERYWHERE.of(job(account=None)) == frozen(3.0, 2)
    assert EVERYWHERE.of(job(account="x", qos=None)) == frozen(2.0, 1)
    assert EVERYWHERE.of(job(account="x", qos="x", user="x")) == frozen(2.0, 1, opt_out=True)
    assert EVERYWHERE.of(job(account="x", qos="x", user="x", partition="x")) == JobRule()


def test_a_job_opts_out_by_its_comment_only_where_a_rule_lets_it() -> None:
    rules = JobRules(
        {"main": JobRule(may_opt_out=True)}, users={"eve": JobRule(may_opt_out=False), "alice": JobRule()}
    )
    policy = Policy(rules, opt_out_comments=frozenset({"gangd=off"}))
    asks = job(comment="gangd=off")
    assert policy.opts_out(asks)
    assert not policy.refuses(asks)
    assert not policy.opts_out(job())
    for refused in (replace(asks, user="eve"), replace(asks, partition="debug")):
        assert not policy.opts_out(refused)
        assert policy.refuses(refused)
        assert not policy.refuses(replace(refused, comment="gangd=offline"))


def test_a_refused_opt_out_is_an_alarm_of_its_user() -> None:
    view = ClusterView(CoreMap({"n1": 1}), Policy(opt_out_comments=frozenset({"gangd=off"})))
    (seen,) = view.views(JobSnapshot((job(comment="gangd=off"),)))
    assert not seen.opt_out
    (alarm,) = refused_opt_outs(view.refused)
    assert (alarm.kind, alarm.subject, alarm.job) == ("opt_out", "alice", seen.job)


def test_what_a_job_asks_for_is_a_factor_on_what_the_rules_say() -> None:
    policy = Policy(EVERYWHERE, most_job_weight=1.0)
    assert policy.weight(job(comment="gangd-weight=0.25")) == 1.0
    assert policy.weight(job(comment="gangd-weight=9")) == 4.0


def test_what_may_be_frozen_by_measurement_is_what_neither_rule_nor_job_decides(tmp_path: Path) -> None:
    (path := tmp_path / "gangd.toml").write_text(
        'tune = true\ntune_holds = ["freeze"]\njob_holds = ["yield"]\n[users.alice]\nweight = 2\n'
        '[partitions.debug]\nhold = "yield"\n'
    )
    policy = policy_of(load_config(path))
    asks, ruled = job(comment="gangd-hold=yield"), job(partition="debug")
    assert [policy.tunes(one) for one in (job(), asks, ruled)] == [True, False, False]
    view = ClusterView(CoreMap({"n1": 1}), policy)
    assert [(one.hold, one.may_freeze) for one in view.views(JobSnapshot((job(),)))] == [
        (HoldMode.YIELD, True)
    ]
    assert not policy_of(load_config(path, tune=False)).tunes(job())
    assert not policy_of(Config(tune=True)).tunes(job())


def test_the_quantum_reaches_the_core() -> None:
    view = ClusterView(CoreMap({"n1": 1}), Policy(EVERYWHERE))
    assert [one.quantum_ns for one in view.views(JobSnapshot((job(),)))] == [2_000_000]


def test_rules_are_read_from_the_configuration(tmp_path: Path) -> None:
    (path := tmp_path / "gangd.toml").write_text(
        "[partitions.debug]\nhold = 'freeze'\n[qos.long]\nquantum_ms = 1000\n"
        "[accounts.physics]\nweight = 2\n[users.alice]\nopt_out = true\n"
    )
    rules = policy_of(load_config(path)).rules
    assert rules.partitions == {"debug": JobRule(hold=HoldMode.FREEZE)}
    assert rules.qos == {"long": JobRule(quantum_ms=1000)}
    assert rules.accounts == {"physics": JobRule(weight=2.0)}
    assert rules.users == {"alice": JobRule(opt_out=True)}


def test_names_that_nothing_knows_are_warnings() -> None:
    config = Config(
        partitions={"main": JobRule(weight=2), "mian": JobRule(weight=2)},
        qos={"normal": JobRule(weight=2), "high": JobRule(weight=2)},
        accounts={"root": JobRule(weight=2), "physics": JobRule(weight=2)},
        users={"root": JobRule(weight=2), "no-such-user-here": JobRule(opt_out=True)},
    )
    warnings = "\n".join(examine(FakeSlurm(multiplicity=2), config).warnings)
    for word in ("no partition mian", "no QOS high", "no account physics", "no user no-such-user-here"):
        assert word in warnings
    assert "does not enforce accounts" in warnings
    assert warnings.count("has a rule") == 4


def test_where_slurm_has_no_accounting_names_cannot_be_checked() -> None:
    slurm = FakeSlurm(multiplicity=2)

    def away() -> object:
        raise ClusterError("no slurmdbd")

    slurm.accounting_names = away  # type: ignore[method-assign,assignment]
    warnings = examine(slurm, Config(qos={"high": JobRule(weight=2)})).warnings
    assert warnings == ("QOS high: Slurm does not tell which there are",)
    assert unknown_names(({}, {}, {}, {}), (frozenset(), None, None), lambda _: True) == ()


@pytest.mark.parametrize(
    ("said", "does"),
    [("associations", True), ("limits,qos", True), ("all", True), ("none", False), ("", False)],
)
def test_accounts_are_enforced_as_slurm_conf_says(said: str, does: bool) -> None:
    assert enforces({"AccountingStorageEnforce": said}, "associations") is does


def test_a_quantum_may_not_freeze_a_job_longer_than_slurm_bears() -> None:
    partitions = [partition(multiplicity=3)]
    slow = Config(hold="freeze", partitions={"main": JobRule(quantum_ms=3000)})
    slurm = {"SelectTypeParameters": "CR_CORE_MEMORY"}
    with pytest.raises(ClusterError, match="partition main: 3 jobs a core at slices of 3000 ms"):
        check_slurm(slurm, partitions, slow.settings(), slow.may_freeze, slow.longest_quantum_ms)
    slow = Config(hold="yield", partitions={"main": JobRule(quantum_ms=3000)})
    assert check_slurm(slurm, partitions, slow.settings(), slow.may_freeze, slow.longest_quantum_ms) == ()
