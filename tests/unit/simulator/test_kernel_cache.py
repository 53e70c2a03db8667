"""What is compiled is kept for every copy of the same sources, and whether it is there is known exactly."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import simulator
from simulator.engine.pool_run import compiled_loop, run_pool
from simulator.engine.run_rules import RunRules
from simulator.jit import compilation as compiling
from simulator.jit.compilation import Compiled, cache_folder, is_anything_kept, kernel, source_digest
from simulator.jit.field_records import StateAllocator
from simulator.model.jobs import PoolJobs
from simulator.model.system import NodePool
from simulator.placement import SlurmPlacement
from simulator.policies.easy.plain_policies import Easy
from simulator.sharing import Proportional
from simulator.state.engine_state import EngineClockRecord

SOURCES = Path(simulator.__file__).parent


@kernel
def twice(number: int) -> int:
    return number + number


@kernel
def fourfold(number: int) -> int:
    return twice(twice(number))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder; nothing that this process has compiled is known."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("OSUB_JIT", raising=False)
    compiling._dispatcher.cache_clear()
    return cache_folder()


def test_what_was_never_compiled_is_not_ready_whatever_lies_in_the_folder(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "test_kernel_cache.fourfold-kernel.py311.1.nbc").write_bytes(b"of something else")
    assert is_anything_kept()
    assert not Compiled(fourfold, (1,)).is_ready


def test_what_was_compiled_is_ready_for_the_next_process_and_for_its_types_only(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Compiled(fourfold, (1,))
    first.prepare()
    assert first(21) == 84
    assert capsys.readouterr().err.count("\n") == 1
    compiling._dispatcher.cache_clear()
    assert Compiled(fourfold, (1,)).is_ready
    assert not Compiled(fourfold, (1.5,)).is_ready
    Compiled(fourfold, (1,)).prepare()
    assert capsys.readouterr().err == ""


def test_a_lost_file_is_compiled_again(cache: Path) -> None:
    Compiled(fourfold, (1,)).prepare()
    for path in cache.glob("*.nbc"):
        path.unlink()
    compiling._dispatcher.cache_clear()
    again = Compiled(fourfold, (1,))
    assert not again.is_ready
    again.prepare()
    assert again(3) == 12


def test_a_copy_of_the_sources_has_the_same_cache_and_a_change_of_them_another(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "simulator"
    shutil.copytree(SOURCES, copy)
    assert source_digest(copy) == source_digest()
    for matters in ("lifecycle/job_progress.py", "state/lifecycle_state.py", "jit/field_records.py"):
        before = source_digest(copy)
        with (copy / matters).open("a") as stream:
            stream.write("\n")
        source_digest.cache_clear()
        assert source_digest(copy) != before, matters
    before = source_digest(copy)
    with (copy / "experiment_page.py").open("a") as stream:
        stream.write("\n")
    source_digest.cache_clear()
    assert source_digest(copy) == before, "no kernel imports a page"


def some_jobs(count: int, memory_kib: int = 0) -> PoolJobs:
    ones = np.ones(count, dtype=np.int64)
    return PoolJobs(
        submit_us=np.arange(count, dtype=np.int64), requested_us=ones * 9, nodes=ones, cores=ones,
        memory_kib=ones * memory_kib, app=ones * 0,
        phase_at=np.arange(0, 2 * count + 1, 2, dtype=np.int64),
        phase_us=np.tile(np.array([0, 7]), count),
    )  # fmt: skip


def test_memory_and_more_jobs_a_core_need_no_loop_of_their_own() -> None:
    def types(multiplicity: int, nodes: int, memory_kib: int | None, overhead: str) -> object:
        pool = NodePool(name="main", first=0, nodes=nodes, cores=2, multiplicity=multiplicity)
        sharing = Proportional.of(overhead)
        rules = RunRules(
            policy=Easy(), placement=SlurmPlacement(), sharing=sharing, node_memory_kib=memory_kib
        )
        return compiled_loop(some_jobs(5, memory_kib or 0), pool, rules)._types

    assert types(2, 2, None, "1") == types(4, 100, None, "1.2") == types(8, 3, 4, "1.2")
    assert types(1, 2, None, "1") == types(1, 70, 4, "1.2") != types(2, 2, None, "1")


def test_a_short_run_compiles_nothing(cache: Path) -> None:
    count = 60
    jobs = some_jobs(count)
    pool = NodePool(name="main", first=0, nodes=2, cores=2, multiplicity=2)
    rules = RunRules(policy=Easy(), placement=SlurmPlacement(), sharing=Proportional.of("1.2"))
    assert run_pool(jobs, np.arange(count), pool, rules).events == 2 * count
    assert not cache.exists()


def test_a_record_has_no_field_of_another() -> None:
    for compiled in (True, False):
        with pytest.raises((AttributeError, TypeError)):
            StateAllocator(compiled=compiled).table(EngineClockRecord, 2, agenda_at=1)
