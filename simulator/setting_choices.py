"""From words on the command line to a setting: system, queues, policy, placement, sharing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from foundation.errors import InputError, UsageError
from foundation.units import seconds_to_us
from simulator.engine.build_state import AFTER_FAILURE
from simulator.engine.gang_stepper import ExactSlices
from simulator.engine.run_rules import RunRules
from simulator.model.jobs import JobLifecycles
from simulator.model.system import (
    Failing,
    Outage,
    PoolQueues,
    System,
    multiple_queues,
    nodes_of_share,
    read_outages,
    single_queue,
)
from simulator.pairing import PairTable, applications_of, read_pair_table
from simulator.placement import PairedPlacement, PlacementRule, SlurmPlacement, ThesisPlacement
from simulator.policies.policy_family import Value, split_settings
from simulator.policy_interface import AlonePolicy, QueuePolicy
from simulator.policy_registry import family_of
from simulator.sharing import NoisyNodes, Pairwise, Proportional, SharingModel
from simulator.simulation import SimulationSetting, Workload

NOTHING: Mapping[str, object] = {}
"""No settings."""


def load_plugin(text: str, method: str, settings: Mapping[str, object] = NOTHING) -> object:
    """Return the object ``NAME`` of ``FILE.py:NAME``; a class is called with the settings.

    Parameters
    ----------
    text
        What the user wrote.
    method
        Name of a method that the plug-in must have.
    settings
        Arguments for the class, by name.

    Raises
    ------
    UsageError
        The text has another form, the file has no such name, or the object lacks the method.
    InputError
        The file cannot be read, or fails when it is run.
    """
    file, _, name = text.rpartition(":")
    if not file or not name.isidentifier():
        raise UsageError(f"{text!r} is not a plug-in: write FILE.py:NAME")
    path = Path(file)
    if not path.is_file():
        raise InputError(f"there is no plug-in file {path}")
    spec = importlib.util.spec_from_file_location(f"osub_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        found = getattr(module, name, None)
        plugin = found(**settings) if isinstance(found, type) else found
    except Exception as error:
        raise InputError(f"plug-in {path}: {type(error).__name__}: {error}") from error
    if found is None:
        known = [one for one, thing in vars(module).items() if callable(getattr(thing, method, None))]
        raise UsageError(
            f"{path} has no {name}: "
            + (f"it has {', '.join(known)}" if known else f"write a class {name} with the method {method}")
        )
    if settings and plugin is found:
        raise UsageError(f"{name} in {path} is no class, so it takes no --set")
    if not callable(getattr(plugin, method, None)):
        raise UsageError(f"{name} in {path} is no plug-in: it lacks the method {method}")
    return plugin


_KIB_PER_GIB = 1024 * 1024
_MOST_GIB = 1 << 30

PAIRED_PLACEMENTS = ("lln-paired", "lln-apart")
PLACEMENTS = ("lln", "thesis", *PAIRED_PLACEMENTS)
PAIRWISE = "pairwise"
LAYOUTS = ("sq", "mq")
INSTANTS = ("one-by-one", "together")
_NOT_ALONE = {
    "multiplicity": "multiplicity",
    "queues": "queues mq",
    "overhead": "overhead",
    "sharing": "sharing",
    "node_noise": "node-noise",
    "quantum_ms": "slices",
    "placement": "placement",
    "failures": "failures",
    "mtbf_h": "mtbf",
    "checkpoint_interval_s": "checkpoint-interval",
}
"""Words that go with the engine's nodes, and the options that set them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationWords:
    """A setting as it is written.

    ``policy``, ``placement`` and ``sharing`` may be ``FILE.py:NAME``; with ``quantum_ms`` jobs take turns in
    exact slices, and ``hold`` is the hold mode. ``settings`` are the policy's, ``NAME=VALUE``.
    ``slowdowns`` are those of jobs of one core and of several by each other, in the place of ``overhead``;
    ``instants`` says whether a pass follows each event of an instant, or all of them.
    """

    system: str
    policy: str = "easy"
    multiplicity: int = 1
    queues: str = "sq"
    interactive_share: str | None = None
    interactive_nodes: int | None = None
    multiplicity_interactive: int = 4
    overhead: str = "1.2"
    slowdowns: tuple[tuple[float, float], tuple[float, float]] | None = None
    slice_cost: float = 1.0
    sharing: str | None = None
    pairs: Path | None = None
    pairing_threshold: float | None = None
    apps: str | None = None
    node_noise: float = 0.0
    quantum_ms: float | None = None
    hold: str = "yield"
    placement: str = "lln"
    memory_gib: float | None = None
    seed: int = 1
    settings: tuple[str, ...] = ()
    failures: Path | None = None
    mtbf_h: float | None = None
    repair_h: float = 6.0
    failure_shape: float = 1.0
    after_failure: str = "checkpoint"
    checkpoint_interval_s: float | None = None
    checkpoint_cost_s: float = 0.0
    instants: str = INSTANTS[0]


def setting_of(words: SimulationWords) -> SimulationSetting:
    """Return the setting that the words describe.

    Raises
    ------
    UsageError
        A word is not known, or two contradict each other.
    InputError
        A plug-in file cannot be used.
    """
    system = System.parse(words.system)
    outages, failing = _failures(words, system)
    pairing = _pairing(words)
    return SimulationSetting(
        system=system,
        queues=_queues(words, system),
        rules=RunRules(
            policy=_policy(words),
            policy_name=words.policy,
            outages=outages,
            failing=failing,
            after_failure=words.after_failure,
            placement=_placement(words, pairing),
            sharing=_sharing(words, system, pairing),
            node_memory_kib=_memory_kib(words.memory_gib),
            together=_takes_together(words),
        ),
        pairing=pairing,
    )


def _queues(words: SimulationWords, system: System) -> PoolQueues:
    given = [word for word in (words.interactive_share, words.interactive_nodes) if word is not None]
    if words.queues == "sq":
        if given:
            raise UsageError("--interactive-share and --interactive-nodes go with --queues mq")
        return single_queue(system, words.multiplicity)
    if words.queues != "mq":
        raise UsageError(f"unknown queues {words.queues!r}: choose {' or '.join(LAYOUTS)}")
    if len(given) != 1:
        raise UsageError("--queues mq needs either --interactive-share, such as 5%, or --interactive-nodes")
    nodes = words.interactive_nodes or nodes_of_share(system, words.interactive_share or "")
    return multiple_queues(system, nodes, words.multiplicity, words.multiplicity_interactive)


def _policy(words: SimulationWords) -> QueuePolicy:
    if ":" not in words.policy:
        family = family_of(words.policy)
        policy = family.make(family.values(words.settings))
        if isinstance(policy, AlonePolicy):
            _check_alone(words)
            return cast("QueuePolicy", policy.seeded(words.seed))
        return policy
    settings = {name: _guessed(text) for name, text in split_settings(words.settings).items()}
    return cast("QueuePolicy", load_plugin(words.policy, "schedule", settings))


def _check_alone(words: SimulationWords) -> None:
    """Refuse what a policy with a loop of its own would pass over."""
    plain = SimulationWords(system=words.system)
    for option in _NOT_ALONE:
        if getattr(words, option) != getattr(plain, option):
            raise UsageError(
                f"--policy {words.policy} has nodes and rates of its own and takes no "
                f"--{_NOT_ALONE[option]}; its options are those of --set (--policies)"
            )


def _takes_together(words: SimulationWords) -> bool:
    """Return whether one pass follows all that happens at one instant."""
    if words.instants not in INSTANTS:
        raise UsageError(f"--instants takes {' or '.join(INSTANTS)}, not {words.instants!r}")
    if words.instants == "one-by-one":
        return False
    family = None if ":" in words.policy else family_of(words.policy)
    if family is not None and (family.times_passes or family.whole_nodes):
        raise UsageError(
            f"--policy {words.policy} times its passes itself and takes no --instants {words.instants}"
        )
    return True


def takes_whole_nodes(words: SimulationWords) -> bool:
    """Return whether the jobs of the policy hold whole nodes."""
    return ":" not in words.policy and family_of(words.policy).whole_nodes


def most_jobs_a_core(words: SimulationWords) -> int:
    """Return how many jobs a core has at most, but for interactive nodes."""
    guests = 0 if ":" in words.policy else family_of(words.policy).guests
    return words.multiplicity + guests


def _guessed(text: str) -> Value:
    """Return a number if the text is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def prepared(words: SimulationWords, setting: SimulationSetting, workload: Workload) -> Workload:
    """Return the jobs with what the policy's family and the setting give them: sizes, checkpoints, ...

    Raises
    ------
    UsageError
        An option is not known, or the jobs cannot have what it says.
    """
    if ":" not in words.policy:
        family = family_of(words.policy)
        if family.prepare is not None:
            workload = family.prepare(workload, setting.queues, family.values(words.settings), words.seed)
    if setting.pairing is not None:
        workload = _with_applications(words, setting.pairing, workload)
    elif words.slowdowns is not None:
        several = workload.nodes * workload.cores > 1
        workload = replace(workload, app=several.astype(np.int64))
    if words.checkpoint_interval_s is None:
        return workload
    every_us, cost_us = seconds_to_us(words.checkpoint_interval_s), seconds_to_us(words.checkpoint_cost_s)
    if every_us < 1 or cost_us < 0:
        raise UsageError("--checkpoint-interval is positive and --checkpoint-cost not negative")
    lifecycles = JobLifecycles.of(workload.lifecycles, workload.count)
    return replace(
        workload,
        lifecycles=lifecycles.changed(
            lambda life: replace(life, checkpoint_every_us=every_us, checkpoint_us=cost_us)
        ),
    )


def _with_applications(words: SimulationWords, pairing: PairTable, workload: Workload) -> Workload:
    unknown = np.full(workload.count, -1, dtype=np.int64)
    names, app = applications_of(
        words.apps,
        pairing.applications,
        workload.number,
        workload.user,
        unknown if workload.executable is None else workload.executable,
        words.seed,
    )
    place = np.array([pairing.applications.index(name) for name in names], dtype=np.int64)
    return replace(workload, app=place[app], applications=pairing.applications)


def _failures(words: SimulationWords, system: System) -> tuple[tuple[Outage, ...], Failing | None]:
    """Return when nodes fail, or how that is drawn."""
    if words.failures is not None and words.mtbf_h is not None:
        raise UsageError("--failures and --mtbf do not go together")
    if words.after_failure not in AFTER_FAILURE:
        raise UsageError(f"--after-failure takes {', '.join(AFTER_FAILURE)}, not {words.after_failure!r}")
    if words.quantum_ms is not None and (words.failures is not None or words.mtbf_h is not None):
        raise UsageError("nodes do not fail in a run with --slices")
    if words.failures is not None:
        return read_outages(words.failures, system.nodes), None
    if words.mtbf_h is None:
        return (), None
    failing = Failing(
        mtbf_h=words.mtbf_h, repair_h=words.repair_h, shape=words.failure_shape, seed=words.seed
    )
    return (), failing


def _pairing(words: SimulationWords) -> PairTable | None:
    """Return what applications lose to each other, if that is said and wanted."""
    wanted = words.sharing == PAIRWISE or words.placement in PAIRED_PLACEMENTS
    if words.pairing_threshold is not None and words.placement != "lln-apart":
        raise UsageError("--pairing-threshold goes with --placement lln-apart")
    if words.pairs is None:
        if wanted:
            raise UsageError(
                "--sharing pairwise and --placement lln-paired or lln-apart need --pairs: measured pairs, a "
                "model or a CSV"
            )
        if words.apps is not None:
            raise UsageError("--apps goes with --pairs")
        return None
    if not wanted:
        raise UsageError("--pairs goes with --sharing pairwise or --placement lln-paired or lln-apart")
    return read_pair_table(words.pairs)


def _placement(words: SimulationWords, pairing: PairTable | None) -> PlacementRule:
    word = words.placement
    if word in PAIRED_PLACEMENTS:
        assert pairing is not None
        return PairedPlacement(pairing.loss, _most_loss(words) if word == "lln-apart" else None)
    if word == "lln":
        return SlurmPlacement()
    if word == "thesis":
        return ThesisPlacement()
    if ":" not in word:
        raise UsageError(f"unknown placement {word!r}: choose {', '.join(PLACEMENTS)} or FILE.py:NAME")
    return cast("PlacementRule", load_plugin(word, "place"))


def _most_loss(words: SimulationWords) -> float:
    """Return the loss beyond which two do not share: as said, or a twentieth above the ideal 1 - 1/M."""
    if words.pairing_threshold is None:
        return 1.0 - 1.0 / words.multiplicity + 0.05
    if not 0 < words.pairing_threshold < 1:
        raise UsageError(f"--pairing-threshold is a share between 0 and 1, not {words.pairing_threshold:g}")
    return words.pairing_threshold


def _sharing(words: SimulationWords, system: System, pairing: PairTable | None) -> SharingModel:
    model = Proportional.of(words.overhead)
    kinds = (words.sharing is not None, bool(words.node_noise), words.quantum_ms is not None)
    if sum(kinds) > 1:
        raise UsageError("--sharing, --node-noise and --slices do not go together")
    if words.quantum_ms is not None:
        return replace(ExactSlices.of(model, words.quantum_ms, words.hold), cost=words.slice_cost)
    if words.sharing == PAIRWISE:
        assert pairing is not None
        return Pairwise(pairing.slowdown)
    if words.sharing is not None:
        return cast("SharingModel", load_plugin(words.sharing, "core_speed"))
    if words.node_noise:
        return NoisyNodes.draw(model, system.nodes, words.node_noise, words.seed)
    return model if words.slowdowns is None else Pairwise(np.array(words.slowdowns))


def _memory_kib(gib: float | None) -> int | None:
    if gib is None:
        return None
    if not 0 < gib < _MOST_GIB:
        raise UsageError(f"--memory-gib must be positive, not {gib:g}")
    return int(gib * _KIB_PER_GIB)


def life_options(words: SimulationWords) -> dict[str, str | float | None]:
    """Return the words that only some runs have, for ``run.json``."""
    options: dict[str, str | float | None] = {}
    if words.settings:
        options["policy_options"] = " ".join(words.settings)
    if words.failures is not None or words.mtbf_h is not None:
        options |= {
            "failures": None if words.failures is None else words.failures.name,
            "mtbf_h": words.mtbf_h,
            "repair_h": None if words.mtbf_h is None else words.repair_h,
            "failure_shape": None if words.mtbf_h is None else words.failure_shape,
            "after_failure": words.after_failure,
        }
    if words.checkpoint_interval_s is not None:
        options |= {
            "checkpoint_interval_s": words.checkpoint_interval_s,
            "checkpoint_cost_s": words.checkpoint_cost_s,
        }
    if words.instants != INSTANTS[0]:
        options["instants"] = words.instants
    return options
