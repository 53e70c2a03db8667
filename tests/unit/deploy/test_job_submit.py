"""The example of a job-submit plugin, in Slurm's Lua: what it does to a job's description."""

from __future__ import annotations

import ctypes
import json
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deploy
from predictor.memory import MemoryLog, PeakHistory, replayed, table_of

LUA = Path(deploy.__file__).parent / "slurm" / "job_submit.lua"
NO_VAL16, NO_VAL = 65534, 4294967294
DRIVER = """
local script = ...
slurm = { SUCCESS = 0, log_info = function() end }
%s
local job = %s
for _ = 1, %d do assert(slurm_job_submit(job, nil, 0) == 0) end
local said = {}
for key, value in pairs(job) do said[#said + 1] = key .. "=" .. tostring(value) end
return table.concat(said, ";")
"""


def library() -> Any:
    for name in ("lua5.1", "lua5.3", "lua5.4"):
        path = find_library(name)
        if path is not None:
            lua = ctypes.CDLL(path)
            lua.luaL_newstate.restype = ctypes.c_void_p
            lua.lua_tolstring.restype = ctypes.c_char_p
            return lua
    return None


LIBRARY = library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="there is no liblua: install slurm-wlm-basic-plugins")


def submit(job: dict[str, Any], table: Path | None = None, *, times: int = 1) -> dict[str, str]:
    """Submit a job; returns its description as it is then."""
    script = LUA.read_text(encoding="utf-8")
    assert script.count("local MEMORY = nil\n") == 1
    if table is not None:
        script = script.replace("local MEMORY = nil\n", f"local MEMORY = {json.dumps(str(table))}\n")
    script = script.removesuffix("return slurm.SUCCESS\n")
    fields = ", ".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in job.items())
    state = ctypes.c_void_p(LIBRARY.luaL_newstate())
    try:
        LIBRARY.luaL_openlibs(state)
        text = (DRIVER % (script, f"{{ {fields} }}", times)).encode()
        failed = LIBRARY.luaL_loadstring(state, text)
        pcall = getattr(LIBRARY, "lua_pcall", None)
        failed = failed or (pcall(state, 0, 1, 0) if pcall else LIBRARY.lua_pcallk(state, 0, 1, 0, 0, None))
        said = LIBRARY.lua_tolstring(state, -1, None).decode()
        assert not failed, said
    finally:
        LIBRARY.lua_close(state)
    return dict(one.split("=", 1) for one in said.split(";") if one)


def table_in(folder: Path, *rows: tuple[str, str | None, int | None, int]) -> Path:
    path = folder / "memory.json"
    names = ("user", "app", "requested_mib", "mib")
    listed = [dict(zip(names, row, strict=True)) | {"jobs": 20} for row in rows]
    path.write_text(
        json.dumps({"format": "osub-memory-1", "coverage": 0.95, "rows": listed}, indent=1) + "\n"
    )
    return path


def asked(**more: Any) -> dict[str, Any]:
    return {"user_name": "alice", "name": "lu", "min_mem_per_node": 1000, "num_tasks": 1, **more}


def test_a_job_gets_the_narrowest_prediction_of_its_user(tmp_path: Path) -> None:
    table = table_in(
        tmp_path,
        ("alice", "lu", 1000, 400),
        ("alice", None, 1000, 300),
        ("alice", None, None, 200),
        ("bob", "lu", 1000, 100),
    )
    assert submit(asked(), table)["min_mem_per_node"] == "400"
    assert submit(asked(name="mg"), table)["min_mem_per_node"] == "300"
    assert submit(asked(min_mem_per_node=5000), table)["min_mem_per_node"] == "200"
    assert submit(asked(user_name="bob"), table)["min_mem_per_node"] == "100"
    assert submit(asked(user_name="eve"), table)["min_mem_per_node"] == "1000"


def test_no_job_gets_more_than_it_asks_for(tmp_path: Path) -> None:
    table = table_in(tmp_path, ("alice", "lu", 1000, 1200), ("alice", None, None, 1500))
    assert submit(asked(), table)["min_mem_per_node"] == "1000"
    assert submit(asked(name="mg"), table)["min_mem_per_node"] == "1000"


@pytest.mark.parametrize(
    ("job", "after"),
    [
        ({"num_tasks": 4, "min_nodes": 1, "min_mem_per_node": 4000}, {"min_mem_per_node": "1600"}),
        ({"num_tasks": 3, "min_nodes": 2, "min_mem_per_node": 1500}, {"min_mem_per_node": "800"}),
        (
            {"num_tasks": 2, "cpus_per_task": 2, "min_nodes": 2, "min_mem_per_node": 2000},
            {"min_mem_per_node": "800"},
        ),
        ({"min_cpus": 2, "min_nodes": 1, "min_mem_per_node": 2000}, {"min_mem_per_node": "800"}),
        ({"num_tasks": NO_VAL, "cpus_per_task": NO_VAL16, "min_nodes": NO_VAL}, {"min_mem_per_node": "400"}),
        ({"num_tasks": 4, "min_mem_per_node": 4000}, {"min_mem_per_node": "4000"}),  # on how many nodes?
        ({"num_tasks": 1, "min_nodes": 2, "min_mem_per_node": 500}, {"min_mem_per_node": "500"}),
        ({"min_mem_per_node": 0}, {"min_mem_per_node": "0"}),  # all memory of its nodes
        ({"comment": "mine osub-memory=off"}, {"min_mem_per_node": "1000"}),
        ({"comment": "%osub"}, {"min_mem_per_node": "400"}),
    ],
)
def test_memory_of_a_node_is_that_of_the_processors_there(
    job: dict[str, Any], after: dict[str, str], tmp_path: Path
) -> None:
    said = submit(asked(**job), table_in(tmp_path, ("alice", "lu", 1000, 400)))
    assert {name: said[name] for name in after} == after


def test_memory_of_a_processor_stays_that_of_a_processor(tmp_path: Path) -> None:
    job = {"user_name": "alice", "name": "lu", "min_mem_per_cpu": 1000, "num_tasks": 64}
    said = submit(job, table_in(tmp_path, ("alice", "lu", 1000, 400)))
    assert said["min_mem_per_cpu"] == "400"
    assert "min_mem_per_node" not in said


def test_a_job_that_asks_for_no_memory_stays_as_it_is(tmp_path: Path) -> None:
    job = {"user_name": "alice", "name": "lu", "num_tasks": 1}
    said = submit(job, table_in(tmp_path, ("alice", None, None, 400)))
    assert not [name for name in said if name.startswith("min_mem")]


def test_without_a_table_nothing_is_lowered() -> None:
    assert submit(asked())["min_mem_per_node"] == "1000"
    assert submit(asked(name="lu_1"))["admin_comment"] == "gangd-app=lu.W"


@pytest.mark.parametrize(
    "name", ['x"y', "x\\", 'x", "mib": 1', "über", "x\ny", "x\n}", "\x01", "", "%s", "]", "{"]
)
def test_what_a_user_names_a_job_changes_no_other_job(name: str, tmp_path: Path) -> None:
    """A name that cannot be read lets the user's own jobs keep what they ask for."""
    table = table_in(
        tmp_path,
        ("eve", name, 1000, 1),
        ("eve", None, None, 400),
        ("alice", "lu", 1000, 300),
        ("alice", None, None, 200),
    )
    assert submit(asked(), table)["min_mem_per_node"] == "300"
    assert submit(asked(user_name="eve"), table)["min_mem_per_node"] in ("400", "1000")
    mine = submit(asked(user_name="eve", name=name.replace("\n", " ")), table)
    assert mine["min_mem_per_node"] in ("1", "400", "1000")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "nothing",
        "\x00\xff",
        '{\n "format": "osub-memory-2",\n "rows": []\n}',
        '{"format": "osub-memory-1"}',
    ],
)
def test_a_table_that_is_none_changes_nothing(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "memory.json").write_bytes(text.encode("latin-1"))
    assert submit(asked(), path, times=2)["min_mem_per_node"] == "1000"
    assert submit(asked(), tmp_path / "none")["min_mem_per_node"] == "1000"


@pytest.mark.parametrize("mib", [0, -5, None, "12", 1e999])
def test_a_row_without_a_sound_prediction_is_none(mib: Any, tmp_path: Path) -> None:
    table = table_in(tmp_path, ("alice", "lu", 1000, mib), ("alice", None, None, 200))
    assert submit(asked(), table)["min_mem_per_node"] == "1000"


def test_the_table_of_a_history_says_what_its_predictions_say(tmp_path: Path) -> None:
    """Written and read back: as the predictor itself predicts, of jobs with one processor."""
    random = np.random.default_rng(7)
    jobs = 400
    log = MemoryLog(
        user=[f"u{number % 3}" for number in range(jobs)],
        app=[f"app{number % 4}" for number in range(jobs)],
        submit_s=np.arange(jobs, dtype=np.float64),
        end_s=np.arange(jobs, dtype=np.float64) + 0.5,
        procs=np.ones(jobs),
        requested_kib=1024.0 * random.choice([1000, 2000], jobs),
        used_kib=np.asarray(1024 * random.integers(100, 900, jobs), dtype=np.float64),
    )
    history: PeakHistory = replayed(log)[1]
    (table := tmp_path / "memory.json").write_text(json.dumps(table_of(history), indent=1) + "\n")
    for user, app, mib in {
        (log.user[job], log.app[job], int(log.requested_kib[job] / 1024)) for job in range(24)
    }:
        kib = history.predict(((user, app, mib), (user, None, mib), (user, None, None)), 1024.0 * mib)
        assert kib is not None
        said = submit(asked(user_name=user, name=app, min_mem_per_node=mib), table)
        assert int(said["min_mem_per_node"]) == np.ceil(kib / 1024)
