"""The verdict in a terminal: before every table."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from analysis.verdict.verdict import Finding, Verdict

_COLOURS = {"better": "bold green", "worse": "bold red", "unclear": "bold yellow"}


def verdict_lines(verdict: Verdict) -> Iterator[Text]:
    """Yield a paragraph for each finding, and the evidence."""
    for finding in verdict.findings:
        yield Text.assemble((heading(finding), _COLOURS[finding.answer]), " ", " ".join(finding.sentences))
    for sentence in verdict.evidence:
        yield Text(sentence)


def heading(finding: Finding) -> str:
    """Return what is held against what, and the answer in a word."""
    return f"{finding.other} against {finding.reference}: {finding.answer}."
