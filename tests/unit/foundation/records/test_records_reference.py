from __future__ import annotations

import sys
from pathlib import Path
from subprocess import run

from foundation.records.columns import TABLES, columns_of
from foundation.records.reference import GROUPS, reference
from foundation.records.row_types import GangSettings, HostInfo, RunInfo

DOCUMENT = Path(__file__).parents[4] / "docs" / "records.md"


def test_the_record_reference_says_what_the_code_says() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == reference(), (
        "python -m foundation.records.reference > docs/records.md"
    )


def test_every_column_and_field_has_a_meaning() -> None:
    described = [column for table in TABLES for column in table.columns]
    described += [column for struct in (RunInfo, GangSettings, HostInfo) for column in columns_of(struct)]
    assert [column.name for column in described if not column.meaning] == []


def test_reading_records_does_not_load_the_charts() -> None:
    program = "import sys, foundation.records; sys.exit('plotly' in sys.modules or 'jinja2' in sys.modules)"
    assert run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_heading_of_the_long_table_begins_with_its_column() -> None:
    text = reference()
    for column, title in GROUPS.items():
        _, _, rows = text.partition(f"### {title}\n\n| column |")
        assert rows.splitlines()[2].startswith(f"| `{column}` |")
