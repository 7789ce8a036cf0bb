"""Holds accusations against the truth of a pair, in each way in which a tool may be right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from readings import Accusation

WITHIN = 3
WAYS = ("container", "type", "line")


@dataclass(frozen=True)
class Known:
    """What is true of a program, as far as a tool may say it."""

    leaking: bool
    containers: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    lines: frozenset[str] = frozenset()
    """The user's lines that feed the leak, ``file:line`` with the file's last name."""

    def ways(self, accusation: Accusation) -> list[str]:
        """Return the ways in which an accusation is right: container, type, line."""
        if accusation.is_container and accusation.name not in self.containers:
            return []
        places = {place.rpartition("/")[2] for place in accusation.lines}
        right = (
            accusation.name in self.containers,
            accusation.name in self.types,
            bool(places & self.lines),
        )
        return [way for way, is_right in zip(WAYS, right, strict=True) if is_right]


@dataclass(frozen=True)
class Marks:
    """How well a tool did on one run of one program."""

    leaking: bool
    accuses: bool
    first: tuple[str, ...] = ()
    """The ways in which its first accusation is right."""
    within: bool = False
    """Whether one of its first three is right in any way."""
    verdict: str = ""
    """What the tool says by itself, where it does."""
    fault: str = ""


def mark(known: Known, found: list[Accusation], verdict: str = "", fault: str = "") -> Marks:
    """Return how well accusations tell what is true."""
    first = tuple(known.ways(found[0])) if found and known.leaking else ()
    within = known.leaking and any(known.ways(item) for item in found[:WITHIN])
    return Marks(known.leaking, bool(found), first, within, verdict, fault)


@dataclass(frozen=True)
class Sum:
    """A tool's row in the table."""

    leaking: int
    first: int
    container: int
    line: int
    within: int
    silent: int
    """Leaking programs on which it accuses nothing."""
    called_clean: int
    inconclusive: int
    repaired: int
    accused: int
    faults: int


def add_up(marks: Iterable[Marks]) -> Sum:
    """Return the counts over the programs that a tool was run on; faults count against it."""
    every = list(marks)
    leaking = [item for item in every if item.leaking]
    repaired = [item for item in every if not item.leaking]
    return Sum(
        leaking=len(leaking),
        first=sum(bool(item.first) for item in leaking),
        container=sum("container" in item.first for item in leaking),
        line=sum("line" in item.first for item in leaking),
        within=sum(item.within for item in leaking),
        silent=sum(not item.accuses for item in leaking),
        called_clean=sum(item.verdict == "clean" for item in leaking),
        inconclusive=sum(item.verdict == "inconclusive" for item in every),
        repaired=len(repaired),
        accused=sum(item.accuses for item in repaired),
        faults=sum(bool(item.fault) for item in every),
    )
