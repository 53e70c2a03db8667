"""The rules in the order in which they are told."""

from __future__ import annotations

from deploy.checks import accounting_rules, freeze_rules, node_rules, sharing_rules
from deploy.checks.configuration import Advice, Configuration


def judge(found: Configuration) -> tuple[Advice, ...]:
    """Return what there is to say of each setting that matters, the good ones included."""
    return (
        *sharing_rules.judge(found),
        *freeze_rules.judge(found),
        *node_rules.judge(found),
        *accounting_rules.judge(found),
    )
