"""From the configuration to the policy that the controller goes by."""

from __future__ import annotations

from gangd.controller.site.controller_config import MS, Config, Saying
from gangd.controller.site.job_policy import JobRule, JobRules, Policy
from gangd.controller.site.kept_apart import PairRule, read_pairs
from gangd.core import HoldMode


def policy_of(config: Config) -> Policy:
    """Return what a configuration says; raises ``OsubError`` where its table of losses cannot be read."""
    comments, features = frozenset(config.opt_out_comments), frozenset(config.opt_out_features)
    return Policy(
        rules=_rules(config),
        most_job_weight=config.most_job_weight,
        opt_out_comments=comments,
        opt_out_features=features,
        hold=HoldMode(config.hold),
        job_holds=frozenset(map(HoldMode, config.job_holds)),
        pairing=PairRule()
        if config.pairing is None
        else read_pairs(config.pairing, config.pairing_threshold, by_user=config.pairing_word == "comment"),
    )


def _rules(config: Config) -> JobRules:
    return JobRules(*({name: _rule(said) for name, said in sayings.items()} for sayings in config.sayings()))


def _rule(said: Saying) -> JobRule:
    quantum_ns = None if said.quantum_ms is None else round(said.quantum_ms * MS)
    hold = None if said.hold is None else HoldMode(said.hold)
    return JobRule(hold, said.weight, quantum_ns, said.opt_out, said.may_opt_out)
