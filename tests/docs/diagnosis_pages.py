"""The pages under docs/diagnoses: their snippets, and what leakscope says of them.

``python tests/docs/diagnosis_pages.py [NAME …]`` records the leaking snippets and writes what the
reports say into their pages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from snippet_recorder import SnippetRecorder

from leakscope.analysis import analyse
from leakscope.model.report import Culprit, Finding, Report, RunVerdict, Severity
from leakscope.model.text import human_bytes
from leakscope.recording import open_run

DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "diagnoses"
OVERVIEW = DOCS / "diagnoses.md"

_MARKS = {
    RunVerdict.LEAK: "✗ Leak",
    RunVerdict.CLEAN: "✓ No leak",
    RunVerdict.INCONCLUSIVE: "? Inconclusive",
    RunVerdict.OUT_OF_MEMORY: "✗ Out of memory",
}
_WIDTH = 96


@dataclass(frozen=True)
class Page:
    """One page: a diagnosis with a snippet that shows it and one that doesn't."""

    path: Path
    kinds: tuple[str, ...]
    shows: str
    """What the report says of the leaking snippet, where the page shows it."""
    leaks: str
    fixed: str

    @property
    def is_executed(self) -> bool:
        """Whether its snippets run here: those for a GPU or of a library are only shown."""
        return "Not executed by" not in self.path.read_text()

    @property
    def is_watched(self) -> bool:
        """Whether its snippets are watched from outside, and not recorded."""
        return "Watched by `leakscope monitor" in self.path.read_text()


def read_page(path: Path) -> Page:
    """Return a page's parts by its headings."""
    text = path.read_text()
    kinds = re.search(r"^Kind: (.+)$", text, re.M)
    assert kinds is not None, path
    return Page(
        path,
        tuple(re.findall(r"`([\w-]+)`", kinds[1])),
        _block(text, "How it shows", "text"),
        _block(text, "Leaks", "python"),
        _block(text, "Fixed", "python"),
    )


def all_pages() -> list[Page]:
    """Return every page, by name."""
    return [read_page(path) for path in sorted(PAGES.glob("*.md"))]


def prelude() -> str:
    """Return the lines that every snippet begins with, from the overview."""
    return _block(OVERVIEW.read_text(), "The snippets", "python")


def write_program(folder: Path, snippet: str) -> None:
    """Write a snippet as ``train.py``, as a reader would put it together."""
    (folder / "train.py").write_text(f"{prelude()}\n\n{snippet}\n")


def report_of(recorder: SnippetRecorder, folder: Path, page: Page, snippet: str) -> Report:
    """Return what leakscope concludes about a page's snippet that it has recorded or watched."""
    write_program(folder, snippet)
    return analyse(open_run(_watch(folder) if page.is_watched else recorder.record(folder)))


def reported(report: Report) -> list[Culprit | Finding]:
    """Return culprits and findings, the accusations before the notes."""
    ranked: list[Culprit | Finding] = [*report.culprits, *report.findings]
    return sorted(ranked, key=lambda item: item.severity is Severity.NOTE)


def excerpt(report: Report) -> str:
    """Return the parts of the report that a page shows: verdict, what comes first, its remedy."""
    lines = _wrapped(f"{_MARKS[report.verdict]} · {report.headline}")
    for item in reported(report)[:1]:
        name = item.name if isinstance(item, Culprit) else item.title
        lines += ["", *_wrapped(f"1. {name}  {item.severity.value}")]
        if item.bytes_per_unit:
            lines.append(f"   {human_bytes(item.bytes_per_unit)} per {item.unit}")
        if item.fed_at:
            lines.append(f"   fed at {item.fed_at[0]}")
        lines += ["", *_wrapped(f"→ {item.remedy.title}")]
        lines += [f"    {line}" for line in (item.remedy.diff or "").splitlines() if _changed(line)]
    return "\n".join(lines)


def without_figures(text: str) -> str:
    """Return an excerpt without what differs from machine to machine."""
    text = re.sub(r"(?<![\w:.\[])\d[\d,.]*( (B|[KMGT]iB)\b)?", "#", text)
    text = re.sub("[▁▂▃▄▅▆▇█]+", "▁", text)
    text = re.sub(r"\.cpython-\S+?\.so", ".so", text)  # of this interpreter and platform
    return " ".join(text.split())


def _watch(folder: Path) -> Path:
    watching = [sys.executable, "-m", "leakscope", "monitor", "--quiet", "--interval", "0.2"]
    program = [sys.executable, "train.py"]
    paths = os.pathsep.join(filter(None, [str(DOCS.parent), os.environ.get("PYTHONPATH")]))
    subprocess.run(
        [*watching, "--no-report", "--out", "run", "--", *program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        timeout=120,
        check=True,
    )
    return folder / "run"


def _changed(line: str) -> bool:
    return line[:1] in "+-" and line[:3] not in ("+++", "---")


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _block(text: str, heading: str, language: str) -> str:
    found = re.search(rf"^## {heading}\n.*?^```{language}\n(.*?)^```$", text, re.M | re.S)
    if found is None or "\n## " in found[0]:
        return ""
    return found[1].strip("\n")


def _write_excerpts(names: list[str]) -> None:
    with SnippetRecorder() as recorder:
        for page in all_pages():
            if not page.is_executed or (names and page.path.stem not in names):
                continue
            with tempfile.TemporaryDirectory() as folder:
                report = report_of(recorder, Path(folder), page, page.leaks)
            text = page.path.read_text()
            new = f"## How it shows\n\n```text\n{excerpt(report)}\n```"
            pattern = r"## How it shows\n\n```text\n.*?\n?```"
            page.path.write_text(re.sub(pattern, lambda _, new=new: new, text, flags=re.S))


if __name__ == "__main__":
    _write_excerpts(sys.argv[1:])
