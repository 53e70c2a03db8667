"""The controller's configuration: one TOML file, every key optional, none unknown."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from foundation.errors import UsageError
from foundation.slurm.slurm_client import MarkField
from foundation.toml_file import load_toml
from foundation.trust import read_trusted
from gangd.controller.slicefiles import HOUR_NS, MIB, Retention
from gangd.core.cores import InvalidSettings
from gangd.core.gang_settings import GREATEST_LEASE_NS, CoreSettings
from gangd.core.scheduler_events import HoldMode
from gangd.monitor.address import ListenAddress, read_address
from gangd.wire.messages import Bounds, MemoryTerms

MS = 1_000_000
LONGEST_QUANTUM_MS = 5_000
KIB_PER_MIB = 1024
SMALL_CLUSTER, LEASE_A_NODE_NS = 1_600, 1_250_000
"""Nodes of which each may say every second what it sees, and what a lease is longer by for each beyond: so
there are never many more messages a second than of a small cluster."""

FORMER_KEYS = {"quantum_most_ms": "quantum_max_ms"}

Milliseconds = Annotated[float, msgspec.Meta(gt=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Samples = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Weight = Annotated[float, msgspec.Meta(ge=1 / 1024, le=1024)]
HoldKind = Literal["freeze", "yield"]
PairingWord = Literal["admin_comment", "comment", "name"]


SlurmName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.+$@\\-][A-Za-z0-9_.+$@\\ -]{0,254}\Z")]


class JobRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is said of the jobs of a partition, a QOS, an account or a user; None where nothing is.

    Parameters
    ----------
    hold
        How they are held.
    weight
        Share relative to others; 2 gets twice the slices of 1.
    quantum_ms
        For how long each runs at a stretch, in whole slices; not below ``quantum_ms`` of all.
    opt_out
        Whether they are never frozen, and never take slices.
    may_opt_out
        Whether they may ask for that (``opt_out_comments``, ``opt_out_features``).
    """

    hold: HoldMode | None = None
    weight: Weight | None = None
    quantum_ms: Milliseconds | None = None
    opt_out: bool | None = None
    may_opt_out: bool | None = None

    @property
    def quantum_ns(self) -> int | None:
        """For how long each runs at a stretch, in nanoseconds."""
        return None if self.quantum_ms is None else round(self.quantum_ms * MS)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What ``gangd.toml`` may say; ``docs/gangd.md`` has the same list in prose.

    Parameters
    ----------
    publish, reports
        ZeroMQ endpoints to listen on.
    keys
        Key folder, see ``gangd keys``.
    state
        Folder for state that outlives the controller, its lock, and ``status.json``.
    takeover_ms
        Controllers share the state folder, and one of them takes over when the one that leads has said
        nothing for this long; 200 to 60,000. None: there is one controller.
    slurm_conf
        ``slurm.conf`` of the cluster; None for the environment's.
    record
        Folder into which ``slices.jsonl`` is written; None for no record.
    record_mib, record_hours, record_parts
        Size and age at which a new file of the record is begun, and how many older ones are kept.
    hold
        How a gang whose turn it isn't is held: ``freeze`` (it does not run) or ``yield`` (it runs on CPU time
        that the owner of the slice leaves idle).
    job_holds
        What a job may ask for itself, by ``gangd-hold=yield`` or ``gangd-hold=freeze`` in its comment.
    quantum_ms
        Length of a slice, 20 to 5000.
    lookahead
        Slices that are final at any moment.
    adapt
        Whether slices and lookahead grow while switches are late.
    quantum_max_ms
        Length that slices grow to at most.
    tune, quantum_min_ms, tune_holds
        Whether each group of jobs gets slices between ``quantum_min_ms`` (None: ``quantum_ms``) and
        ``quantum_max_ms`` by what is measured of it; and hold modes that it may get in the place of ``hold``.
    lease_ms
        How long agents hold jobs without a word from the controller, 1500 to 60,000. None: two seconds, and
        more where there are more than ``SMALL_CLUSTER`` nodes (``lease_ns``).
    grace_ms
        How long a new job is not held.
    step_grace_ms
        How long a step is not held that begins in a job that is; 0 to 60,000.
    freeze_cap_ms
        Longest continuous freeze of a job; at most 60,000.
    busy_share, idle_share
        Demand in cores above which a sample is busy, below which it is idle.
    confirm_samples, idle_samples, idle_samples_multi
        Samples that change a demand class, see ``gangd.core.Settings``.
    snapshot_s
        How often Slurm is asked for its jobs.
    jobs_from
        How: ``any`` (``pyslurm`` where one fits, else Slurm's commands), ``pyslurm`` or ``commands``.
    move_ends
        Whether ends of jobs are moved by their frozen time.
    mark_jobs
        Field in which a job that begins to share cores is marked, once and only if the field is empty:
        ``admin_comment`` or ``extra``; None: nowhere.
    metrics
        Where metrics and health are handed out over HTTP: ``PORT`` of the loopback, or ``ADDRESS:PORT``; None
        for nowhere.
    metrics_token
        File with the token that a request for metrics must carry; None: any client that can connect may ask.
    status_mode
        Mode of ``status.json`` and of the record, such as ``0640``; None for 0644, or 0600 where Slurm's
        ``PrivateData`` hides jobs or nodes.
    partitions, qos, accounts, users
        What is said of the jobs of a partition, a QOS, an account, a user; precedence:
        ``gangd.controller.job_policy``.
    most_job_weight
        Factor on its weight that a job may ask for at most, by ``gangd-weight=F`` in its comment.
    pairing
        Table of degradations (CSV ``victim,opponent,e_v``) of applications co-located on a node: jobs of
        which one would lose more than ``pairing_threshold`` never run at the same time there. None: all may.
    pairing_threshold
        See ``pairing``.
    pairing_word
        Whose ``gangd-app=NAME`` says what a job runs: ``admin_comment`` or the job's own ``comment``; or that
        its ``name`` is the application.
    pairing_learn
        Whether losses are learnt from CPU times of jobs, and decide; ``pairing`` is expected at first.
    pairing_explore
        Largest share of the pairs of jobs for which the opposite is tried while it is not clear what is
        right.
    memory_mib
        A node with less memory available is short of it: the youngest gang there is suspended, and those that
        use more than they asked for before it. None: memory counts for nothing, and is not measured.
    memory_stall
        Where some task of a node waited for memory for a larger share of 10 s it is short of it, too.
    memory_freeze_ms
        After so long a gang that is suspended for memory runs for a slice; None: ``freeze_cap_ms``.
    memory_reclaim
        Whether agents page out frozen jobs of a node that is short of memory, and in before they run.
    opt_out_comments, opt_out_features
        Words in a job's comment, and node features that it asks for, by which it opts out where a rule of its
        partition, QOS, account or user has ``may_opt_out``.
    """

    publish: str = "tcp://*:7321"
    reports: str = "tcp://*:7322"
    keys: Path = Path("/etc/gangd/keys")
    state: Path = Path("/var/lib/gangd")
    takeover_ms: Annotated[float, msgspec.Meta(ge=200, le=60_000)] | None = None
    slurm_conf: Path | None = None
    record: Path | None = None
    record_mib: Annotated[float, msgspec.Meta(gt=0, le=1 << 20)] = 256
    record_hours: Annotated[float, msgspec.Meta(gt=0, le=24 * 366)] = 24
    record_parts: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 8
    hold: HoldKind = "yield"
    job_holds: tuple[HoldKind, ...] = ()
    quantum_ms: Milliseconds = 250
    lookahead: int = 2
    adapt: bool = True
    quantum_max_ms: Milliseconds = 1000
    tune: bool = False
    quantum_min_ms: Milliseconds | None = None
    tune_holds: tuple[Literal["freeze"], ...] = ()
    lease_ms: Milliseconds | None = None
    grace_ms: Annotated[float, msgspec.Meta(ge=0)] = 1000
    step_grace_ms: Annotated[float, msgspec.Meta(ge=0, le=60_000)] = 200
    freeze_cap_ms: Milliseconds = 5000
    busy_share: Share = 0.20
    idle_share: Share = 0.10
    confirm_samples: Samples = 2
    idle_samples: Samples = 3
    idle_samples_multi: Samples = 6
    snapshot_s: Seconds = 1.0
    jobs_from: Literal["any", "pyslurm", "commands"] = "any"
    move_ends: bool = True
    mark_jobs: Literal["admin_comment", "extra"] | None = None
    metrics: str | int | None = None
    metrics_token: Path | None = None
    status_mode: Annotated[str, msgspec.Meta(pattern="^0[0-7]{3}$")] | None = None
    partitions: dict[SlurmName, JobRule] = {}
    qos: dict[SlurmName, JobRule] = {}
    accounts: dict[SlurmName, JobRule] = {}
    users: dict[SlurmName, JobRule] = {}
    most_job_weight: Weight = 1.0
    pairing: Path | None = None
    pairing_threshold: Share = 0.05
    pairing_word: PairingWord = "admin_comment"
    pairing_learn: bool = False
    pairing_explore: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.1
    memory_mib: Annotated[float, msgspec.Meta(gt=0, le=1 << 30)] | None = None
    memory_stall: Share | None = None
    memory_freeze_ms: Annotated[float, msgspec.Meta(gt=0, le=60_000)] | None = None
    memory_reclaim: bool = False
    opt_out_comments: tuple[str, ...] = ("gangd=off",)
    opt_out_features: tuple[str, ...] = ()

    def retention(self) -> Retention:
        """Return when a new file of the record is begun, and how many are kept."""
        return Retention(round(self.record_mib * MIB), round(self.record_hours * HOUR_NS), self.record_parts)

    def mark_field(self) -> MarkField | None:
        """Return the field in which jobs that share cores are marked."""
        fields = {"admin_comment": MarkField.ADMIN_COMMENT, "extra": MarkField.EXTRA}
        return None if self.mark_jobs is None else fields[self.mark_jobs]

    def metrics_address(self) -> ListenAddress | None:
        """Return where metrics are handed out; raises ``UsageError`` for what is no address."""
        return None if self.metrics is None else read_address(str(self.metrics))

    def lease_ns(self, nodes: int = 0) -> int:
        """Return for how long agents of so many nodes hold jobs without a word.

        A lease is renewed four times in its length and, without news, acknowledged twice: a long lease
        lets one controller have many nodes.
        """
        if self.lease_ms is not None:
            return round(self.lease_ms * MS)
        return min(max(SMALL_CLUSTER, nodes) * LEASE_A_NODE_NS, GREATEST_LEASE_NS)

    def settings(self, nodes: int = 0) -> CoreSettings:
        """Return the core's settings for so many nodes; raises ``UsageError`` if they cannot be obeyed."""
        try:
            return CoreSettings(
                quantum_ns=round(self.quantum_ms * MS),
                lookahead=self.lookahead,
                adapt=self.adapt,
                quantum_max_ns=round(self.quantum_max_ms * MS),
                tune=self.tune,
                quantum_min_ns=None if self.quantum_min_ms is None else round(self.quantum_min_ms * MS),
                lease_ns=self.lease_ns(nodes),
                grace_ns=round(self.grace_ms * MS),
                freeze_cap_ns=round(self.freeze_cap_ms * MS),
                busy_share=self.busy_share,
                idle_share=self.idle_share,
                confirm_samples=self.confirm_samples,
                idle_samples=self.idle_samples,
                idle_samples_multi=self.idle_samples_multi,
                record=self.record is not None,
                memory_kib=None if self.memory_mib is None else round(self.memory_mib * KIB_PER_MIB),
                memory_stall=self.memory_stall,
                memory_freeze_ns=round((self.memory_freeze_ms or self.freeze_cap_ms) * MS),
            )
        except InvalidSettings as error:
            raise UsageError(f"configuration of gangd: {error}") from error

    def mode_of_status(self, *, hides_jobs: bool) -> int:
        """Return the mode of ``status.json`` and of the record, where Slurm hides jobs of others or not."""
        if self.status_mode is not None:
            return int(self.status_mode, 8)
        return 0o600 if hides_jobs else 0o644

    def rules(self) -> tuple[dict[str, JobRule], ...]:
        """Return what is said of partitions, QOS, accounts and users, in this order."""
        return self.partitions, self.qos, self.accounts, self.users

    def bounds(self) -> Bounds:
        """Return the terms sent to every agent: how long it may freeze, and how jobs and steps begin."""
        said = {one.hold for rules in self.rules() for one in rules.values()}
        newcomers_yield = "yield" in (self.hold, *said)
        longest_ms = self.freeze_cap_ms
        if self.memory_mib is not None:
            longest_ms = max(longest_ms, self.memory_freeze_ms or 0)
        return Bounds(round(longest_ms * MS), round(self.step_grace_ms * MS), newcomers_yield)

    def memory_terms(self) -> MemoryTerms | msgspec.UnsetType:
        """Return what agents are to do about memory."""
        if self.memory_mib is None:
            return msgspec.UNSET
        return MemoryTerms(round(self.memory_mib * KIB_PER_MIB), self.memory_reclaim)

    def may_freeze(self, partition: str) -> bool:
        """Whether jobs of a partition may be frozen."""
        said = self.partitions.get(partition, JobRule())
        others = {one.hold for rules in self.rules()[1:] for one in rules.values()}
        tuned = self.tune_holds if self.tune else ()
        possible = (said.hold or self.hold, *others, *self.job_holds, *tuned)
        suspends = self.pairing is not None or self.pairing_learn or self.memory_mib is not None
        return suspends or "freeze" in possible

    def longest_quantum_ms(self, partition: str) -> float:
        """Return for how long a job of a partition may run at a stretch."""
        said = [self.partitions.get(partition, JobRule())]
        said += [one for rules in self.rules()[1:] for one in rules.values()]
        return max([self.quantum_ms, *(one.quantum_ms for one in said if one.quantum_ms is not None)])

    def check_quanta(self) -> None:
        """Raise ``UsageError`` if a quantum is no whole slice, or longer than is possible."""
        words = ("partition", "QOS", "account", "user")
        for word, rules in zip(words, self.rules(), strict=True):
            for name, said in rules.items():
                quantum_ms = said.quantum_ms
                if quantum_ms is not None and not self.quantum_ms <= quantum_ms <= LONGEST_QUANTUM_MS:
                    raise UsageError(
                        f"configuration of gangd: quantum_ms = {quantum_ms:g} of {word} {name}: it is made "
                        f"of slices of {self.quantum_ms:g} ms (quantum_ms), and 5000 ms long at most"
                    )


def load_config(path: Path | None, **overrides: object) -> Config:
    """Read a configuration.

    Parameters
    ----------
    path
        TOML file; None for the defaults.
    overrides
        Values from the command line that take precedence; None leaves the file's.

    Raises
    ------
    InputError
        The file cannot be read.
    TrustError
        Another user could have put the file there, or may write to it.
    UsageError
        A key is unknown, or a value is not possible.
    """
    known = frozenset(Config.__struct_fields__)
    if path is not None:
        with suppress(OSError):  # what cannot be read is reported below
            read_trusted(path)
    table = {} if path is None else load_toml(path, known, FORMER_KEYS)
    table |= {name: value for name, value in overrides.items() if value is not None}
    try:
        config = msgspec.convert(table, Config, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise UsageError(f"configuration {path or 'of gangd'}: {error}") from error
    config.settings()
    config.check_quanta()
    config.metrics_address()
    return config


def _path(kind: type, value: object) -> Path:
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    raise NotImplementedError(f"no {kind.__name__} from {value!r}")
