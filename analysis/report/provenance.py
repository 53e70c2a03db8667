"""What ran where: the facts of ``run.json`` as rows of a table, one column a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foundation.records import Run, RunInfo

_LATENCIES = {
    "submission_s": "submission",
    "scheduling_s": "scheduling",
    "release_s": "release",
    "launch_serial_s": "launch of one core",
    "launch_parallel_s": "of several",
    "launch_interactive_s": "of an interactive job",
}
_GANG_NAMES = {"none": "none: the operating system shares the cores", "slurm": "Slurm's own", "osub": "gangd"}


def provenance_rows(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Return (fact, text for each run); a fact that no run knows is left out."""
    rows = [(name, [fact(run) for run in runs]) for name, fact in _FACTS]
    return [(name, texts) for name, texts in rows if any(texts)]


def _kind(run: Run) -> str:
    if run.info.kind == "simulated":
        return "simulated"
    return f"real cluster, Slurm {run.info.slurm_version}" if run.info.slurm_version else "real cluster"


def _system(run: Run) -> str:
    nodes, cores = run.info.system[1:].split("C")
    return f"{run.info.system}: {nodes} nodes of {cores} cores"


def _queues(run: Run) -> str:
    info = run.info
    if info.queues == "sq":
        return "one queue (SQ)"
    return f"two queues (MQ), {info.interactive_nodes} nodes for interactive jobs"


def _policy(run: Run) -> str:
    return run.info.policy + (f" ({run.info.scheduler})" if run.info.scheduler else "")


def _parameters(run: Run) -> str:
    told = (run.info.slurm_config or {}).get("SchedulerParameters", "")
    return "" if told == "(null)" else told.replace(",", ", ")


def _multiplicity(run: Run) -> str:
    info = run.info
    if info.multiplicity_interactive is None:
        return str(info.multiplicity)
    return f"{info.multiplicity} batch, {info.multiplicity_interactive} interactive"


def _gang(run: Run) -> str:
    gang = run.info.gang
    details = [
        f"{gang.quantum_ms:g} ms slices" if gang.quantum_ms else "",
        "held jobs yield" if gang.hold == "yield" else "",
        f"{gang.freezer} freezer" if gang.freezer else "",
    ]
    return ", ".join(part for part in (_GANG_NAMES[gang.kind], *details) if part)


def _trace(run: Run) -> str:
    digest = run.info.trace_sha256
    return run.info.trace_name + (f" (sha256 {digest[:12]}…)" if digest else "")


def _speedup(run: Run) -> str:
    return f"{run.info.speedup:g}" if run.info.speedup != 1 else ""


def _host(run: Run) -> str:
    host = run.info.host
    if host is None:
        return ""
    cpus = f"{host.cpus} x {host.cpu_model}" if host.cpus and host.cpu_model else host.cpu_model or ""
    memory = f"{host.memory_mib / 1024:.1f} GiB" if host.memory_mib else ""
    return ", ".join(part for part in (host.name, cpus, memory, host.os or "") if part)


def _when(run: Run) -> str:
    took = "" if run.info.wall_s is None else f", took {run.info.wall_s:,.1f} s"
    return run.info.started.replace("T", " ").partition(".")[0].removesuffix("Z") + " UTC" + took


def _cpu_time(run: Run) -> str:
    info = run.info
    whole = "" if info.cpu_s is None else f"{info.cpu_s:,.1f} s"
    engine = "" if info.engine_cpu_s is None else f"engine {info.engine_cpu_s:,.2f} s"
    return ", ".join(part for part in (whole, engine) if part)


def _pairs(pairs: dict[str, int] | dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in pairs.items())


def _options(info: RunInfo) -> dict[str, str]:
    return {
        name: str(value)
        for name, value in info.options.items()
        if value is not None and name not in _LATENCIES
    }


def _latencies(run: Run) -> str:
    return ", ".join(
        f"{told} {run.info.options[name]:g} s"
        for name, told in _LATENCIES.items()
        if name in run.info.options
    )


_FACTS: tuple[tuple[str, Callable[[Run], str]], ...] = (
    ("kind", _kind),
    ("system", _system),
    ("queues", _queues),
    ("policy", _policy),
    ("Slurm's parameters", _parameters),
    ("jobs a core, at most (M)", _multiplicity),
    ("gang scheduling", _gang),
    ("trace", _trace),
    ("speed-up", _speedup),
    ("seeds", lambda run: _pairs(run.info.seeds)),
    ("trial", lambda run: str(run.info.trial) if run.info.trial != 1 else ""),
    ("latencies", _latencies),
    ("other options", lambda run: _pairs(_options(run.info))),
    ("host", _host),
    ("started", _when),
    ("command's CPU time", _cpu_time),
    ("osub", lambda run: run.info.tool_version),
    ("folder", lambda run: str(run.path)),
)
