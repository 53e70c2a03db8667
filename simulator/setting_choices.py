"""From a specification to a setting: system, queues, policy, placement, sharing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from foundation.errors import InputError, UsageError
from foundation.units import seconds_to_us
from predictor.dataset import PairKind, harmful_loss
from predictor.memory import PeakHistory
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
from simulator.simulation_spec import INSTANTS, SimulationSpec

NOTHING: Mapping[str, object] = {}
"""No settings."""


def is_plugin(text: str) -> bool:
    """Whether a user's word means a plug-in, also one whose class is not named."""
    return ":" in text or text.endswith(".py")


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
        form = f"{text}:NAME, with the class's name" if text.endswith(".py") else "FILE.py:NAME"
        raise UsageError(f"{text!r} is not a plug-in: write {form}")
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
        raise UsageError.naming(
            "{name} in {path} is no class, so it takes no {settings}", name=name, path=path
        )
    if not callable(getattr(plugin, method, None)):
        raise UsageError(f"{name} in {path} is no plug-in: it lacks the method {method}")
    return plugin


_KIB_PER_MIB = 1024
_KIB_PER_GIB = 1024 * 1024
_MOST_GIB = 1 << 30

PAIRED_PLACEMENTS = ("lln-paired", "lln-apart")
PLACEMENTS = ("lln", "thesis", *PAIRED_PLACEMENTS)
PAIRWISE = "pairwise"
LAYOUTS = ("sq", "mq")
_NOT_ALONE = (
    *("multiplicity", "queues", "overhead", "sharing", "node_noise", "quantum_ms", "placement", "failures"),
    *("mtbf", "checkpoint_interval", "memory"),
)
"""Fields that go with the engine's nodes."""


def setting_of(spec: SimulationSpec) -> SimulationSetting:
    """Return the setting that a specification describes.

    Raises
    ------
    UsageError
        A value is not known, or two contradict each other.
    InputError
        A plug-in file cannot be used.
    """
    system = System.parse(spec.system)
    if spec.memory is not None:
        _check_memory(spec)
    if spec.memory_growth is not None and (spec.memory is None or spec.quantum_ms is None):
        raise UsageError.naming("{memory_growth} goes with {memory} and {quantum_ms}")
    if spec.memory_mib is not None and spec.memory_growth is None:
        raise UsageError.naming("{memory_mib} goes with {memory_growth}")
    outages, failing = _failures(spec, system)
    pairing = _pairing(spec)
    return SimulationSetting(
        system=system,
        queues=_queues(spec, system),
        rules=RunRules(
            policy=_policy(spec),
            policy_name=spec.policy,
            outages=outages,
            failing=failing,
            after_failure=spec.after_failure,
            placement=_placement(spec, pairing),
            sharing=_sharing(spec, system, pairing),
            node_memory_kib=_memory_kib(spec.memory_gib),
            together=_takes_together(spec),
        ),
        pairing=pairing,
    )


def settings_of(spec: SimulationSpec) -> tuple[str, ...]:
    """Return the policy's options as ``NAME=VALUE``."""
    given = spec.settings
    named = {"malleable_share": spec.malleable_share, "preemption": spec.preemption}
    pairs = [*(given.items() if isinstance(given, Mapping) else ()), *named.items()]
    texts = () if isinstance(given, Mapping) else map(str, given)
    return (*texts, *(f"{name}={value}" for name, value in pairs if value is not None))


def _queues(spec: SimulationSpec, system: System) -> PoolQueues:
    given = [word for word in (spec.interactive_share, spec.interactive_nodes) if word is not None]
    if spec.queues == "sq":
        if given:
            raise UsageError.naming("{interactive_share} and {interactive_nodes} go with {queues} mq")
        return single_queue(system, spec.multiplicity)
    if spec.queues != "mq":
        raise UsageError(f"unknown queues {spec.queues!r}: choose {' or '.join(LAYOUTS)}")
    if len(given) != 1:
        raise UsageError.naming(
            "{queues} mq needs either {interactive_share}, such as 5%, or {interactive_nodes}"
        )
    nodes = spec.interactive_nodes or nodes_of_share(system, spec.interactive_share or "")
    return multiple_queues(system, nodes, spec.multiplicity, spec.multiplicity_interactive)


def _policy(spec: SimulationSpec) -> QueuePolicy:
    if not is_plugin(spec.policy):
        family = family_of(spec.policy)
        policy = family.make(family.values(settings_of(spec)))
        if isinstance(policy, AlonePolicy):
            _check_alone(spec)
            return cast("QueuePolicy", policy.seeded(spec.seed))
        return policy
    settings = {name: _guessed(text) for name, text in split_settings(settings_of(spec)).items()}
    return cast("QueuePolicy", load_plugin(spec.policy, "schedule", settings))


def _check_alone(spec: SimulationSpec) -> None:
    """Refuse what a policy with a loop of its own would pass over."""
    plain = SimulationSpec(system=spec.system)
    for field in _NOT_ALONE:
        if str(getattr(spec, field)) != str(getattr(plain, field)):
            raise UsageError.naming(
                f"{{policy}} {{given}} has nodes and rates of its own and takes no {{{field}}}; its options "
                "are those of {settings} ({policies})",
                given=spec.policy,
            )


def _takes_together(spec: SimulationSpec) -> bool:
    """Return whether one pass follows all that happens at one instant."""
    family = None if is_plugin(spec.policy) else family_of(spec.policy)
    times_itself = family is not None and (family.times_passes or family.whole_nodes)
    if spec.instants is None:
        return not times_itself and (family is None or family.instants == INSTANTS[0])
    if spec.instants not in INSTANTS:
        raise UsageError.naming(
            "{instants} takes {known}, not {given!r}", known=" or ".join(INSTANTS), given=spec.instants
        )
    if spec.instants == "one-by-one":
        return False
    if times_itself:
        raise UsageError.naming(
            "{policy} {given} times its passes itself and takes no {instants} {passes}",
            given=spec.policy,
            passes=spec.instants,
        )
    return True


def takes_whole_nodes(spec: SimulationSpec) -> bool:
    """Return whether the jobs of the policy hold whole nodes."""
    return not is_plugin(spec.policy) and family_of(spec.policy).whole_nodes


def most_jobs_a_core(spec: SimulationSpec) -> int:
    """Return how many jobs a core has at most, but for interactive nodes."""
    guests = 0 if is_plugin(spec.policy) else family_of(spec.policy).guests
    return spec.multiplicity + guests


def _guessed(text: str) -> Value:
    """Return a number if the text is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def prepared(spec: SimulationSpec, setting: SimulationSetting, workload: Workload) -> Workload:
    """Return the jobs with what the policy's family and the setting give them: sizes, checkpoints, ...

    Raises
    ------
    UsageError
        An option is not known, or the jobs cannot have what it says.
    """
    if not is_plugin(spec.policy):
        family = family_of(spec.policy)
        if family.prepare is not None:
            workload = family.prepare(workload, setting.queues, family.values(settings_of(spec)), spec.seed)
    if setting.pairing is not None:
        workload = _with_applications(spec, setting.pairing, workload)
    elif spec.slowdowns is not None:
        several = workload.nodes * workload.cores > 1
        workload = replace(workload, app=several.astype(np.int64))
    if spec.checkpoint_interval is None:
        return workload
    every_us, cost_us = seconds_to_us(spec.checkpoint_interval), seconds_to_us(spec.checkpoint_cost)
    if every_us < 1 or cost_us < 0:
        raise UsageError.naming("{checkpoint_interval} is positive and {checkpoint_cost} not negative")
    lifecycles = JobLifecycles.of(workload.lifecycles, workload.count)
    return replace(
        workload,
        lifecycles=lifecycles.changed(
            lambda life: replace(life, checkpoint_every_us=every_us, checkpoint_us=cost_us)
        ),
    )


def _with_applications(spec: SimulationSpec, pairing: PairTable, workload: Workload) -> Workload:
    unknown = np.full(workload.count, -1, dtype=np.int64)
    names, app = applications_of(
        spec.apps,
        pairing.applications,
        workload.number,
        workload.user,
        unknown if workload.executable is None else workload.executable,
        spec.seed,
    )
    place = np.array([pairing.applications.index(name) for name in names], dtype=np.int64)
    return replace(workload, app=place[app], applications=pairing.applications)


def _failures(spec: SimulationSpec, system: System) -> tuple[tuple[Outage, ...], Failing | None]:
    """Return when nodes fail, or how that is drawn."""
    if spec.failures is not None and spec.mtbf is not None:
        raise UsageError.naming("{failures} and {mtbf} do not go together")
    if spec.after_failure not in AFTER_FAILURE:
        raise UsageError.naming(
            "{after_failure} takes {known}, not {given!r}",
            known=", ".join(AFTER_FAILURE),
            given=spec.after_failure,
        )
    if spec.quantum_ms is not None and (spec.failures is not None or spec.mtbf is not None):
        raise UsageError.naming("nodes do not fail in a run with {quantum_ms}")
    if spec.failures is not None:
        return read_outages(Path(spec.failures), system.nodes), None
    if spec.mtbf is None:
        return (), None
    failing = Failing(mtbf_h=spec.mtbf, repair_h=spec.repair, shape=spec.failure_shape, seed=spec.seed)
    return (), failing


def _pairing(spec: SimulationSpec) -> PairTable | None:
    """Return what applications lose to each other, if that is said and wanted."""
    wanted = spec.sharing == PAIRWISE or spec.placement in PAIRED_PLACEMENTS
    if spec.pairing_threshold is not None and spec.placement != "lln-apart":
        raise UsageError.naming("{pairing_threshold} goes with {placement} lln-apart")
    if spec.pairs is None:
        if wanted:
            raise UsageError.naming(
                "{sharing} pairwise and {placement} lln-paired or lln-apart need {pairs}: measured pairs, a "
                "model or a CSV"
            )
        if spec.apps is not None:
            raise UsageError.naming("{apps} goes with {pairs}")
        return None
    if not wanted:
        raise UsageError.naming("{pairs} goes with {sharing} pairwise or {placement} lln-paired or lln-apart")
    return read_pair_table(Path(spec.pairs))


def _placement(spec: SimulationSpec, pairing: PairTable | None) -> PlacementRule:
    word = spec.placement
    if word in PAIRED_PLACEMENTS:
        assert pairing is not None
        return PairedPlacement(pairing.loss, _most_loss(spec) if word == "lln-apart" else None)
    if word == "lln":
        return SlurmPlacement()
    if word == "thesis":
        return ThesisPlacement()
    if not is_plugin(word):
        raise UsageError(f"unknown placement {word!r}: choose {', '.join(PLACEMENTS)} or FILE.py:NAME")
    return cast("PlacementRule", load_plugin(word, "place"))


def _most_loss(spec: SimulationSpec) -> float:
    """Return the loss beyond which two do not share: as said, or a twentieth above the ideal 1 - 1/M."""
    if spec.pairing_threshold is None:
        return harmful_loss(PairKind.TIMESLICE, spec.multiplicity)
    if not 0 < spec.pairing_threshold < 1:
        raise UsageError.naming(
            "{pairing_threshold} is a share between 0 and 1, not {given:g}", given=spec.pairing_threshold
        )
    return spec.pairing_threshold


def _sharing(spec: SimulationSpec, system: System, pairing: PairTable | None) -> SharingModel:
    model = Proportional.of(spec.overhead)
    kinds = (spec.sharing is not None, bool(spec.node_noise), spec.quantum_ms is not None)
    if sum(kinds) > 1:
        raise UsageError.naming("{sharing}, {node_noise} and {quantum_ms} do not go together")
    if spec.quantum_ms is not None:
        slices = replace(ExactSlices.of(model, spec.quantum_ms, spec.hold), cost=spec.slice_cost)
        return slices if spec.memory_growth is None else _with_memory(spec, slices)
    if spec.sharing == PAIRWISE:
        assert pairing is not None
        return Pairwise(pairing.slowdown)
    if spec.sharing is not None:
        return cast("SharingModel", load_plugin(spec.sharing, "core_speed"))
    if spec.node_noise:
        return NoisyNodes.draw(model, system.nodes, spec.node_noise, spec.seed)
    return model if spec.slowdowns is None else Pairwise(np.array(spec.slowdowns))


def _with_memory(spec: SimulationSpec, slices: ExactSlices) -> ExactSlices:
    assert spec.memory_growth is not None
    if not 0 < spec.memory_growth <= 1:
        raise UsageError.naming(
            "{memory_growth} is a share above 0, up to 1, not {given:g}", given=spec.memory_growth
        )
    bound_kib = None if spec.memory_mib is None else round(spec.memory_mib * _KIB_PER_MIB)
    if bound_kib is not None and not 0 < bound_kib < (_memory_kib(spec.memory_gib) or 0):
        raise UsageError.naming("{memory_mib} is less than the memory of a node, {memory_gib}")
    return slices.with_memory(spec.memory_growth, bound_kib)


def _check_memory(spec: SimulationSpec) -> None:
    PeakHistory(spec.memory_coverage)
    if spec.memory_gib is None:
        raise UsageError.naming("{memory} needs the memory of a node, {memory_gib}")
    once = spec.failures is None and spec.mtbf is None and spec.checkpoint_interval is None
    if takes_whole_nodes(spec) or not once:
        raise UsageError.naming(
            "{memory} goes with policies that share nodes, without {failures}, {mtbf} and "
            "{checkpoint_interval}"
        )


def _memory_kib(gib: float | None) -> int | None:
    if gib is None:
        return None
    if not 0 < gib < _MOST_GIB:
        raise UsageError.naming("{memory_gib} must be positive, not {given:g}", given=gib)
    return int(gib * _KIB_PER_GIB)


def life_options(spec: SimulationSpec) -> dict[str, str | float | None]:
    """Return the words that only some runs have, for ``run.json``."""
    options: dict[str, str | float | None] = {}
    if settings := settings_of(spec):
        options["policy_options"] = " ".join(settings)
    if spec.failures is not None or spec.mtbf is not None:
        options |= {
            "failures": None if spec.failures is None else Path(spec.failures).name,
            "mtbf_h": spec.mtbf,
            "repair_h": None if spec.mtbf is None else spec.repair,
            "failure_shape": None if spec.mtbf is None else spec.failure_shape,
            "after_failure": spec.after_failure,
        }
    if spec.checkpoint_interval is not None:
        options |= {
            "checkpoint_interval_s": spec.checkpoint_interval,
            "checkpoint_cost_s": spec.checkpoint_cost,
        }
    if _takes_together(spec):
        options["instants"] = INSTANTS[0]
    return options
