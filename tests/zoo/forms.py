"""The forms in which a program of the zoo is recorded: as it stands, and for minutes.

Programs of a few seconds are measured at the floor that a short run gets; whether a verdict is
right at the budget shows in a form that runs long enough for it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from corpus import Case
from lengths import FURTHER_LENGTHS, LENGTHS
from variants import Variant, rewritten, scaled_constants

LONG = 20
"""How many times as long the long form runs: minutes instead of seconds."""
LENGTH_NAMES = (
    ("epochs", "n_epochs", "num_epochs", "max_epochs", "num_train_epochs"),
    ("rounds", "episodes", "updates", "iterations", "trials", "generations", "tasks"),
    ("steps", "num_steps", "max_steps", "n_steps", "batches"),
)
"""Names of what says how long a program runs, those first that leave epochs alike."""
LOOP_NAMES = {
    "epoch",
    "round",
    "round_",
    "episode",
    "update",
    "trial",
    "generation",
    "iteration",
    "step",
}


@dataclass(frozen=True)
class Form:
    """How a program is recorded."""

    name: str
    length: float = 1.0
    """How many times as long as it stands."""
    seed: int = 0
    budget: str = "2%"
    timeout_s: float = 300
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        return self.length != 1 or self.seed != 0

    def of(self, case: Case) -> str:
        """Return the text of a program in this form, line for line the same."""
        text = case.program.read_text()
        if not self.changes:
            return text
        variant = Variant(self.seed, self.length, self.budget)
        if part := (FURTHER_LENGTHS | LENGTHS).get(case.name):
            return rewritten(text, variant, part)
        return scaled_constants(text, variant, length_constants(text))

    def suits(self, case: Case) -> bool:
        """Return whether a program can run in this form."""
        if self.length == 1:
            return True
        return case.name in FURTHER_LENGTHS | LENGTHS or bool(
            length_constants(case.program.read_text())
        )


FORMS = {
    form.name: form
    for form in (Form("short"), Form("long", length=LONG, timeout_s=1800), Form("seed", seed=1))
}


def length_constants(text: str) -> list[ast.Constant]:
    """Return the numbers that say how long a program runs: of the first kind of name it has."""
    named = list(named_numbers(ast.parse(text)))
    for names in LENGTH_NAMES:
        found = [number for name, number in named if name.lower() in names]
        if found:
            return found
    return list(loop_counts(ast.parse(text)))


def loop_counts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the number in each loop over ``range(NUMBER)`` that counts epochs or steps."""
    for node in ast.walk(tree):
        match node:
            case ast.For(
                target=ast.Name(id=name),
                iter=ast.Call(func=ast.Name(id="range"), args=[ast.Constant() as number]),
            ) if name in LOOP_NAMES and is_count(number.value):
                yield number
                return


def named_numbers(tree: ast.Module) -> list[tuple[str, ast.Constant]]:
    """Return the whole numbers given to a variable, a field, a parameter or an argument."""
    found: list[tuple[str, ast.AST | None]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found += zip_targets(target, node.value)
        elif isinstance(node, ast.AnnAssign):
            found += zip_targets(node.target, node.value)
        elif isinstance(node, ast.keyword) and node.arg:
            found.append((node.arg, node.value))
        elif isinstance(node, ast.arguments):
            positional = [*node.posonlyargs, *node.args]
            with_default = positional[len(positional) - len(node.defaults) :]
            found += [(a.arg, d) for a, d in zip(with_default, node.defaults, strict=True)]
            found += [(a.arg, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
    return [(name, it) for name, it in found if isinstance(it, ast.Constant) and is_count(it.value)]


def zip_targets(target: ast.expr, value: ast.expr | None) -> list[tuple[str, ast.AST | None]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=False)
        return [pair for t, v in pairs for pair in zip_targets(t, v)]
    name = getattr(target, "id", None) or getattr(target, "attr", None)
    return [(name, value)] if name else []


def is_count(value: object) -> bool:
    """Return whether a value may be a number of rounds: what begins at 0 or 1 is a counter."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 1
