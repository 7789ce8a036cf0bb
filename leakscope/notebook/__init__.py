"""Runs and culprits that show themselves, as text in a terminal and as tables in a notebook.

>>> %load_ext leakscope

``%%leakscope`` above a cell records it and shows what the report says; ``%leakscope`` says where
things stand, ``%leakscope RUN`` shows a run. In code, with or without a notebook:

>>> leakscope.notebook.run("leakscope-runs/20260101-120000-train")
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from leakscope.cli.report import JSON, conclude
from leakscope.model.layout import AnswerCell, AnswerPage, Column, Printed, Table
from leakscope.model.report import Culprit, Excerpt, Finding, Report, RunVerdict
from leakscope.report.words import further_evidence, rate_words, share_words, source_place

__all__ = ["CulpritAnswer", "RunAnswer", "run"]


_VERDICTS = {
    RunVerdict.LEAK: "✗ Leak",
    RunVerdict.CLEAN: "✓ No leak",
    RunVerdict.OUT_OF_MEMORY: "✗ Out of memory",
    RunVerdict.INCONCLUSIVE: "? Inconclusive",
}
_SHOWN = 5
_SUSPECTS = (
    Column("#"),
    Column("name", number=False, flexible=True),
    Column("rate", number=False),
    Column("share", number=False, optional=True),
    Column("place", number=False, flexible=True),
)
_SOURCE = (Column("line"), Column("source", number=False, flexible=True))
_FACTS = (Column("", number=False), Column("", number=False, flexible=True))


def run(path: str | os.PathLike[str]) -> RunAnswer:
    """Return what is concluded about a run: its report, or what its recording says by now.

    Raises:
        LeakscopeError: there is no run, or nothing in it can be read.

    """
    folder = Path(path)
    try:
        report = msgspec.json.decode((folder / JSON).read_bytes(), type=Report)
    except (OSError, msgspec.MsgspecError):
        report = conclude(folder)
    return RunAnswer(report, folder)


class RunAnswer(Printed):
    """What a run's report says: verdict, culprits, the lines that feed the first."""

    def __init__(self, report: Report, path: Path) -> None:
        self.report = report
        """Everything that was concluded."""
        self.path = path
        """The run directory."""

    @property
    def verdict(self) -> str:
        """``leak``, ``clean``, ``inconclusive`` or ``out_of_memory``."""
        return self.report.verdict.value

    @property
    def culprits(self) -> list[CulpritAnswer]:
        """Culprits, the greatest first; each shows itself."""
        return [CulpritAnswer(culprit) for culprit in self.report.culprits]

    def page(self) -> AnswerPage:
        """Return what is printed."""
        report = self.report
        sign = _VERDICTS[report.verdict]
        suspects: list[Culprit | Finding] = [*report.culprits, *report.findings]
        suspects.sort(key=lambda suspect: suspect.rank)
        tables = [_suspects(suspects[:_SHOWN])] if suspects else []
        if report.culprits:
            first = report.culprits[0]
            tables += [_source(excerpt) for excerpt in first.excerpts]
        notes = further_evidence(report)
        notes += [f"fault: {error.where}: {error.message}" for error in report.errors]
        if report.culprits:
            notes += [first.remedy.title, first.remedy.text]
        page = self.path / "report.html"
        notes.append(f"report: {page}" if page.exists() else f"run: {self.path}")
        return AnswerPage(f"{sign} · {report.headline}", tables=tables, notes=notes)


class CulpritAnswer(Printed):
    """One culprit: what it is, how fast it grows, which lines feed it, what to change."""

    def __init__(self, culprit: Culprit) -> None:
        self.culprit = culprit
        """All that is known of it."""

    def page(self) -> AnswerPage:
        """Return what is printed."""
        culprit = self.culprit
        facts = [
            ("rate", rate_words(culprit)),
            ("share", share_words(culprit.share, culprit.growth)),
            ("type", culprit.type),
            ("defined", _cell_place(culprit.defined_at or "")),
            ("fed", ", ".join(map(_cell_place, culprit.fed_at))),
        ]
        rows = [[AnswerCell(name), AnswerCell(text)] for name, text in facts if text]
        notes = [
            culprit.remedy.title,
            culprit.remedy.text,
            *(culprit.remedy.diff or "").splitlines(),
        ]
        return AnswerPage(
            f"{culprit.name} · {culprit.sentence}",
            tables=[Table(_FACTS, rows), *map(_source, culprit.excerpts)],
            notes=notes,
        )


def _suspects(suspects: Sequence[Culprit | Finding]) -> Table:
    rows = [
        [
            AnswerCell(str(suspect.rank)),
            AnswerCell(suspect.name if isinstance(suspect, Culprit) else suspect.title),
            AnswerCell(rate_words(suspect) if _grows(suspect) else ""),
            AnswerCell(share_words(suspect.share, suspect.growth) if _grows(suspect) else ""),
            AnswerCell(_cell_place(source_place(suspect))),
        ]
        for suspect in suspects
    ]
    return Table(_SUSPECTS, rows)


def _grows(suspect: Culprit | Finding) -> bool:
    """Return whether it has a rate: how a run ended has none."""
    return isinstance(suspect, Culprit) or bool(suspect.unit) or suspect.bytes_per_unit != 0


def _source(excerpt: Excerpt) -> Table:
    rows = [
        [
            AnswerCell(f"{'▶ ' if number in excerpt.marked else ''}{number}"),
            AnswerCell(_indented(line)),
        ]
        for number, line in enumerate(excerpt.lines, excerpt.first_line)
    ]
    return Table(_SOURCE, rows, excerpt.file)


def _indented(line: str) -> str:
    """Return a line whose indentation neither a terminal nor HTML folds."""
    text = line.expandtabs(4)
    return "\N{NO-BREAK SPACE}" * (len(text) - len(text.lstrip())) + text.lstrip()


def _cell_place(place: str) -> str:
    """Return ``In [5]: line 3`` for a line of a cell, others as they are."""
    cell, colon, line = place.rpartition(":")
    return f"{cell}: line {line}" if colon and cell.startswith("In [") else place
