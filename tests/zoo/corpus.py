"""The programs of the zoo: our own, code of others, and those of the end-to-end tests."""

from __future__ import annotations

import ast
import importlib.util
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from eleventh_truth import ELEVENTH
from fifteenth_truth import FIFTEENTH
from fourteenth_truth import FOURTEENTH
from kinds_truth import KINDS
from native_truth import NATIVE
from ninth_truth import NINTH
from real_truth import REAL
from sixteenth_truth import SIXTEENTH
from tenth_truth import TENTH
from thirteenth_truth import THIRTEENTH
from truth import TRAINERS, TRUTHS, UNSEEN, Leak, Truth
from twelfth_truth import TWELFTH

HERE = Path(__file__).parent
END_TO_END = HERE.parent / "end_to_end"
PAIRS = END_TO_END / "torch_leaks"
LATER_SETS = NINTH | TENTH | ELEVENTH | TWELFTH | THIRTEENTH | FOURTEENTH | FIFTEENTH | SIXTEENTH
"""Programs of the sets that were written without knowing how verdicts are made, from the ninth."""


@dataclass(frozen=True)
class Case:
    """A program and what is true of it."""

    name: str
    program: Path
    truth: Truth

    @property
    def leaks(self) -> tuple[Leak, ...]:
        return self.truth.leaks

    @property
    def is_own(self) -> bool:
        """Whether the program was written for the zoo."""
        return self.program.parent == HERE / "cases"

    @property
    def was_unseen(self) -> bool:
        """Whether it was written without knowing how verdicts are made."""
        return self.name in UNSEEN or self.name in LATER_SETS

    @property
    def is_real(self) -> bool:
        """Whether it runs training code of others."""
        return self.program.parent == HERE / "real"

    def is_runnable(self) -> bool:
        return all(is_installed(name) for name in self.truth.needs)

    def about(self) -> str:
        """Return the first line of what the program says of itself."""
        output = ast.get_docstring(ast.parse(self.program.read_text())) or self.name
        return output.split("\n\n")[0].replace("\n", " ")


def is_installed(name: str) -> bool:
    """Return whether there is a library, or a command, of this name."""
    try:
        return importlib.util.find_spec(name) is not None or shutil.which(name) is not None
    except ModuleNotFoundError:  # the package that it would be a part of
        return False


def cases() -> list[Case]:
    """Return all programs, the leaking ones first."""
    own = [
        Case(name, HERE / "cases" / f"{name}.py", truth)
        for name, truth in (TRUTHS | KINDS | NATIVE | LATER_SETS).items()
    ]
    trainers = [
        Case(name, END_TO_END / "programs" / f"{name}.py", truth)
        for name, truth in TRAINERS.items()
    ]
    real = [Case(name, HERE / "real" / f"{name}.py", truth) for name, truth in REAL.items()]
    return sorted([*own, *real, *trainers, *pairs()], key=lambda case: (not case.leaks, case.name))


def pairs() -> list[Case]:
    """Return the pairs of leaking programs and look-alikes of torch's own patterns."""
    table = PAIRS / "table.py"
    if not table.exists():
        return []
    spec = importlib.util.spec_from_file_location("torch_leaks_table", table)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found = []
    for name, leak in module.LEAKS.items():
        truth = Truth((Leak(leak.names, line=leak.line),))
        found.append(Case(f"{name}_leaks", PAIRS / f"{name}_leaks.py", truth))
        alike = Case(
            f"{name}_lookalike", PAIRS / f"{name}_lookalike.py", Truth(verdicts=("clean",))
        )
        found.append(alike)
    return found


def feeding_lines(program: Path, leak: Leak) -> set[int]:
    """Return the numbers of the lines that feed a leak: of whole statements."""
    text = program.read_text()
    marks = {number for number, line in enumerate(text.splitlines(), 1) if is_marked(line, leak)}
    statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    lines: set[int] = set()
    for mark in marks:
        around = [range(s.lineno, (s.end_lineno or s.lineno) + 1) for s in statements]
        smallest = min((r for r in around if mark in r), key=len)
        # A loop or a branch is more than its head.
        head = range(smallest[0], first_of_body(statements, smallest))
        lines |= {mark} | (set(head) if mark in head else set())
    return lines


def is_marked(line: str, leak: Leak) -> bool:
    if leak.line:
        return leak.line in line
    _, mark, rest = line.partition("# feeds")
    return bool(mark) and (not leak.key or rest.strip() == f": {leak.key}")


def first_of_body(statements: list[ast.stmt], lines: range) -> int:
    """Return the first line of what a statement holds, of a simple one the line after it."""
    same = [s for s in statements if (s.lineno, s.end_lineno) == (lines[0], lines[-1])]
    bodies = [body[0].lineno for s in same if (body := getattr(s, "body", None))]
    return lines[-1] + 1 if len(bodies) < len(same) else min(bodies)
