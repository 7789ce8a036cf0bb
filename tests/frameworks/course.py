"""The events of a session, one by one, without the cost of measuring."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leakscope.capture.phase_stack import Phase
from leakscope.capture.session import Session
from leakscope.model.boundary import BoundaryKind

_WORDS = {BoundaryKind.PHASE_BEGIN: "[", BoundaryKind.PHASE_END: "]", BoundaryKind.BATCH: "b"}


@dataclass
class Course:
    """Every boundary in short: ``train[``, ``b`` a batch, ``3`` the third step, ``train]``."""

    words: list[str] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    """The epoch of each training phase."""
    expected: dict[str, int | None] = field(default_factory=dict)

    def reach(self, session: Session, kind: BoundaryKind, phase: Phase | None, label: str) -> None:
        if kind in (BoundaryKind.PHASE_BEGIN, BoundaryKind.PHASE_END):
            assert phase is not None
            self.words.append(f"{phase.name}{_WORDS[kind]}")
            if kind is BoundaryKind.PHASE_BEGIN:
                self.expected[phase.name] = phase.expected
                self.epochs += [session.tracker.epoch] if phase.name == "train" else []
        elif kind is BoundaryKind.STEP:
            self.words.append(str(session.tracker.step))
        elif kind is BoundaryKind.EPOCH_END:
            self.words.append("epoch")
        elif kind is BoundaryKind.MARK:
            self.words.append(f"({label})")
        elif kind in _WORDS:
            self.words.append(_WORDS[kind])

    def __str__(self) -> str:
        return " ".join(self.words)


PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"


def run_snippet(heading: str, number: int = 1, **given: Any) -> dict[str, Any]:
    """Run a snippet under a heading of the page with these names; return all names after it."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1]
    code = section.split("```python\n")[number].split("```")[0]
    names = dict(given)
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def raiser(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("a bug of ours")
