"""The verdict in a terminal: before every table."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from analysis.verdict.verdict import SettingFinding, Verdict

_COLOURS = {
    "better": "bold green",
    "worse": "bold red",
    "mixed": "bold yellow",
    "unclear": "bold yellow",
}


def verdict_lines(verdict: Verdict) -> Iterator[Text]:
    """Yield the answer, a paragraph for each finding, and the evidence; runs that are unfit come first."""
    first = opening(verdict)
    if first is not None:
        yield Text.assemble((first[0], _COLOURS["unclear"]), " ", first[1])
    if verdict.best is not None:
        yield Text(verdict.answer, _COLOURS[verdict.best.answer])
    for finding in verdict.findings:
        yield Text.assemble((heading(finding), _COLOURS[finding.answer]), " ", " ".join(finding.sentences))
    for sentence in verdict.evidence[1 if first else 0 :]:
        yield Text(sentence)


def opening(verdict: Verdict) -> tuple[str, str] | None:
    """Return what a reader must know before any figure, and why: that runs are unfit to judge by.

    It is the first sentence of the evidence, under a heading. None where all are fit.
    """
    if not verdict.unfit:
        return None
    if not verdict.findings:
        return "Unfit as a reference.", verdict.evidence[0]
    nothing = all(finding.answer == "unclear" for finding in verdict.findings)
    return f"{'Nothing' if nothing else 'Not everything'} here can be concluded.", verdict.evidence[0]


def heading(finding: SettingFinding) -> str:
    """Return what is held against what, and the answer in a word."""
    return f"{finding.other} against {finding.reference}: {finding.answer}."
