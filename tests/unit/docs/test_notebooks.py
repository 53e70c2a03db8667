"""The notebooks run unchanged, from the first cell to the last, and are kept without outputs."""

from __future__ import annotations

import ast
import gc
import json
import re
from pathlib import Path
from typing import Any

import pytest

from analysis.verdict.verdict import jobs_a_core

FOLDER = Path(__file__).parents[3] / "docs" / "notebooks"
WRITTEN = {"from-a-log-to-a-verdict": "verdict.html", "which-m-for-my-machine": "which-m.html"}


def cells(name: str) -> list[dict[str, Any]]:
    """Return the cells of a notebook."""
    return list(json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"])


def run(source: str, names: dict[str, object]) -> object:
    """Run a cell as a notebook does: the value of a last line that is an expression is what it shows."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None  # type: ignore[attr-defined]


def test_every_notebook_is_run_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(WRITTEN)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_a_notebook_runs_unchanged(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OSUB_JIT", "0")
    monkeypatch.chdir(tmp_path)
    # The shape of the notebook is what is tried, so some of the jobs do.
    log = (FOLDER / "log.swf").read_text(encoding="utf-8").splitlines()
    head = [line for line in log if line.startswith(";")]
    (tmp_path / "log.swf").write_text("\n".join(head + log[len(head) :][:60]) + "\n", encoding="utf-8")
    names: dict[str, object] = {}
    shown = [run("".join(cell["source"]), names) for cell in cells(name) if cell["cell_type"] == "code"]
    assert any(hasattr(one, "_repr_html_") for one in shown)
    if "chosen" in names:
        chosen = capsys.readouterr().out.split()[-1]
        verdict = str(names["comparison"])
        better = re.findall(r"^(\S+) against M=1: better", verdict, re.MULTILINE)
        assert better
        assert chosen in better
        assert verdict.startswith(jobs_a_core(int(chosen.removeprefix("M="))))
    # Runs go with their last names; those of a cell's function and its globals are a ring.
    shown.clear()
    names.clear()
    gc.collect()
    assert (tmp_path / WRITTEN[name]).stat().st_size > 1e6


@pytest.mark.parametrize("name", WRITTEN)
def test_a_notebook_is_kept_without_outputs_and_begins_with_words(name: str) -> None:
    found = cells(name)
    assert found[0]["cell_type"] == "markdown"
    assert found[0]["source"][0].startswith("# ")
    assert all(not cell["outputs"] for cell in found if cell["cell_type"] == "code")
