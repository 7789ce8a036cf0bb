"""The same program once more: with another seed, shorter or longer, under another budget."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

SEEDERS = {"manual_seed", "seed", "default_rng", "seed_everything", "set_seed"}
BUDGET = "2%"


@dataclass(frozen=True)
class Variant:
    """How a run differs from the program as it stands."""

    seed: int = 0
    """What is added to each number that a generator of random numbers is seeded with."""
    length: float = 1.0
    budget: str = BUDGET

    @property
    def name(self) -> str:
        messages = []
        if self.seed:
            messages.append(f"seed {self.seed}")
        if self.length != 1:
            messages.append(f"length × {self.length:g}")
        if self.budget != BUDGET:
            messages.append(f"budget {self.budget}")
        return ", ".join(messages) or "as it stands"


AS_IT_STANDS = Variant()
VARIANTS = (
    AS_IT_STANDS,
    *(Variant(seed=number) for number in range(1, 10)),
    Variant(length=0.5),
    Variant(length=2),
    Variant(length=2, budget="0.5%"),
    Variant(length=2, budget="10%"),
)


def rewritten(text: str, variant: Variant, length: str) -> str:
    """Return a program's text with its seeds and its length changed, line for line the same.

    Args:
        text: The program.
        variant: What to change.
        length: A part of the text that stands there once, whose numbers say how long it runs.

    Raises:
        ValueError: If the part doesn't stand there once.

    """
    if text.count(length) != 1:
        raise ValueError(f"{length!r} doesn't stand there once")
    return reseeded(text, variant.seed).replace(length, scaled(length, variant.length))


def scaled_constants(text: str, variant: Variant, lengths: list[ast.Constant]) -> str:
    """Return a program's text with its seeds and given numbers of it changed.

    Args:
        text: The program.
        variant: What to change.
        lengths: The numbers in it that say how long it runs.

    """
    longer = {node: max(1, round(node.value * variant.length)) for node in lengths}
    shifted = {node: node.value + variant.seed for node in seeds(text)} if variant.seed else {}
    return with_numbers(text, longer | shifted)


def scaled(text: str, factor: float) -> str:
    """Return a text with its whole numbers multiplied, at least 1 each."""
    return re.sub(r"\b\d+\b", lambda found: str(max(1, round(int(found[0]) * factor))), text)


def reseeded(text: str, more: int) -> str:
    """Return a program with a number added to the constants that seed its random numbers."""
    return with_numbers(text, {node: node.value + more for node in seeds(text)})


def with_numbers(text: str, numbers: Mapping[ast.Constant, int]) -> str:
    """Return a program with other numbers in place of constants of it."""
    lines = text.splitlines(keepends=True)
    for node in sorted(numbers, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        line = lines[node.lineno - 1].encode()
        before, after = line[: node.col_offset], line[node.end_col_offset :]
        lines[node.lineno - 1] = f"{before.decode()}{numbers[node]}{after.decode()}"
    return "".join(lines)


def seeds(text: str) -> list[ast.Constant]:
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return [
        call.args[0]
        for call in calls
        if isinstance(call.func, (ast.Attribute, ast.Name))
        and (call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id) in SEEDERS
        and len(call.args) == 1
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, int)
    ]
