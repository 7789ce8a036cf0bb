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
    within = known.leaking and any(known.ways(one) for one in found[:WITHIN])
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
    leaking = [one for one in every if one.leaking]
    repaired = [one for one in every if not one.leaking]
    return Sum(
        leaking=len(leaking),
        first=sum(bool(one.first) for one in leaking),
        container=sum("container" in one.first for one in leaking),
        line=sum("line" in one.first for one in leaking),
        within=sum(one.within for one in leaking),
        silent=sum(not one.accuses for one in leaking),
        called_clean=sum(one.verdict == "clean" for one in leaking),
        inconclusive=sum(one.verdict == "inconclusive" for one in every),
        repaired=len(repaired),
        accused=sum(one.accuses for one in repaired),
        faults=sum(bool(one.fault) for one in every),
    )
