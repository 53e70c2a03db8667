"""The dashboard against Grafana's own types: a compiler refuses what Grafana's schema package does not know.

Grafana itself cannot be had from the package sources that the tests may use; its schema, in TypeScript, can.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PINNED = ROOT / "tests/fixtures/grafana"
RAW = "@grafana/schema/dist/types/raw"

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the schema and a compiler, as they are pinned."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    folder = tmp_path_factory.mktemp("schema")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PINNED / name, folder)
    words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        pytest.skip(f"no npm registry here: {done.stderr.strip().splitlines()[-1][:200]}")
    return folder


def refusals(schema: Path, dashboard: dict[str, object]) -> str:
    """Return what the compiler says of a dashboard; nothing if it is one of Grafana's."""
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]  # type: ignore[attr-defined]
    kinds = {kind: [one for one in panels if one["type"] == kind] for kind in ("timeseries", "stat")}
    assert sum(map(len, kinds.values())) == len(panels), "a kind of panel that is not checked"
    options = {kind: json.dumps([one["options"] for one in found]) for kind, found in kinds.items()}
    custom = json.dumps([one["fieldConfig"]["defaults"]["custom"] for one in kinds["timeseries"]])
    series, stat = (f"./node_modules/{RAW}/composable/{kind}/panelcfg/x/types.gen" for kind in kinds)
    (schema / "check.ts").write_text(
        f"""\
import type {{ Dashboard }} from './node_modules/{RAW}/dashboard/x/types.gen';
import type {{ Options as Series, FieldConfig as Custom }} from '{series}';
import type {{ Options as Stat }} from '{stat}';
// An enumeration of texts is the union of its texts, as in JSON.
type Plain<T> = T extends string ? (string extends T ? string : `${{T}}`)
  : T extends (infer U)[] ? Plain<U>[] : T extends object ? {{ [K in keyof T]: Plain<T[K]> }} : T;
const dashboard: Plain<Dashboard> = {json.dumps(dashboard)};
const series: Plain<Series>[] = {options["timeseries"]};
const custom: Plain<Custom>[] = {custom};
const stat: Plain<Stat>[] = {options["stat"]};
void [dashboard, series, custom, stat];
"""
    )
    words = ["node_modules/.bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "--target", "es2022"]
    words += ["--module", "esnext", "--moduleResolution", "bundler", "check.ts"]
    done = subprocess.run(
        words, cwd=schema, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    return done.stdout + done.stderr


def test_grafanas_schema_takes_the_dashboard(schema: Path) -> None:
    dashboard = json.loads((ROOT / "deploy/monitoring/dashboard.json").read_text())
    assert refusals(schema, dashboard) == ""


def test_grafanas_schema_refuses_what_it_does_not_know(schema: Path) -> None:
    dashboard = json.loads((ROOT / "deploy/monitoring/dashboard.json").read_text())
    dashboard["schemaVersions"] = 39
    assert "schemaVersions" in refusals(schema, dashboard)
    del dashboard["schemaVersions"]
    dashboard["panels"][1]["options"]["colorMode"] = "loud"
    assert "loud" in refusals(schema, dashboard)
