"""What a reader takes from what a tool prints: a few accusations, the greatest first.

One function a tool, from its raw output to accusations; ``README.md`` says each rule in words. A
rule knows nothing of the truth. What a tool has no way to say (a rate, a verdict) isn't expected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

LEAST_BYTES = 2**20
"""A tool that gives sizes accuses where what it puts first has grown by a mebibyte."""
LEAST_OBJECTS = 1000
"""A tool that counts accuses where so many more objects of a type are there."""


@dataclass(frozen=True)
class Accusation:
    """One entry of what a tool prints."""

    name: str
    """The container, the type, the function or the file that it names."""
    lines: tuple[str, ...] = ()
    """Places that it gives, ``file:line``."""
    size: float = 0.0
    """Bytes, or objects where the tool counts."""
    is_container: bool = False
    """Whether the name claims to be what grows: a right line doesn't mend a wrong name then."""


def read_leakscope(report: dict[str, Any]) -> list[Accusation]:
    """Return culprits before findings, without the notes, as ``report.json`` has them."""
    entries = [*report["culprits"], *report["findings"]]
    return [
        Accusation(
            str(entry.get("name") or entry["kind"]),
            tuple(entry["fed_at"][:1]),
            entry["bytes_per_unit"] or 0.0,
            is_container="name" in entry,
        )
        for entry in entries
        if entry["severity"] != "note"
    ]


def read_tracemalloc(printed: str) -> list[Accusation]:
    """Return the statistics of ``compare_to``, of the last look to the first, that grew."""
    found = []
    for block in printed.split("--\n"):
        lines = tuple(re.findall(r'File "(.+)", line (\d+)', block))
        size = re.search(r"size_diff=(-?\d+)", block)
        if size and lines and int(size[1]) >= LEAST_BYTES:
            places = tuple(f"{file}:{number}" for file, number in lines)
            found.append(Accusation(places[-1], places, float(size[1])))
    return found


def read_objgraph(looks: list[str]) -> list[Accusation]:
    """Return the types that ``show_growth`` prints at each look after the first."""
    grown: dict[str, list[int]] = {}
    for printed in looks[1:]:
        for name, more in re.findall(r"^(\S+) +\d+ +\+(\d+)$", printed, re.MULTILINE):
            grown.setdefault(name, []).append(int(more))
    steady = {name: sum(m) for name, m in grown.items() if len(m) == len(looks) - 1}
    return _greatest(steady, LEAST_OBJECTS)


def read_pympler(looks: list[str]) -> list[Accusation]:
    """Return the types in whose rows of ``print_diff`` sizes rise at each look after the first."""
    grown: dict[str, list[float]] = {}
    for printed in looks[1:]:
        for row in printed.splitlines():
            cells = [cell.strip() for cell in row.split("|")]
            if len(cells) == 3 and (size := _size(cells[2])) is not None and size > 0:
                name = cells[0].removeprefix("<class '").removesuffix("'>")
                grown.setdefault(name.split(".")[-1], []).append(size)
    steady = {name: sum(s) for name, s in grown.items() if len(s) == len(looks) - 1}
    return _greatest(steady, LEAST_BYTES)


def read_guppy(printed: str) -> list[Accusation]:
    """Return the kinds in the last table of ``heap()``, which is relative to the first look."""
    rows = re.findall(r"^ *\d+ +\d+ +\d+ +(\d+) +\d+ +\d+ +\d+ (.+)$", printed, re.MULTILINE)
    names = {kind.removeprefix("dict of ").split(".")[-1].strip(): int(size) for size, kind in rows}
    return _greatest(names, LEAST_BYTES)


def read_memray(rows: list[dict[str, Any]]) -> list[Accusation]:
    """Return the stacks of what wasn't freed at the end, without what modules keep by importing."""
    found = [
        Accusation(row["stack"][0], tuple(row["stack"]), row["size"])
        for row in rows
        if row["size"] >= LEAST_BYTES and not any("importlib" in place for place in row["stack"])
    ]
    return sorted(found, key=lambda item: -item.size)


def read_scalene(profile: dict[str, Any]) -> list[Accusation]:
    """Return the lines that its JSON lists as leaks, the fastest first."""
    found = [
        Accusation(f"{name}:{line}", (f"{name}:{line}",), leak["velocity_mb_s"] * 2**20)
        for name, file in profile.get("files", {}).items()
        for line, leak in file.get("leaks", {}).items()
    ]
    return sorted(found, key=lambda item: -item.size)


def _greatest(sizes: dict[str, Any], least: float) -> list[Accusation]:
    rows = sorted(sizes.items(), key=lambda item: -item[1])
    return [Accusation(name, (), float(size)) for name, size in rows if size >= least]


def _size(text: str) -> float | None:
    match = re.fullmatch(r"(-?[\d.]+) +(B|KB|MB|GB)", text)
    units = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
    return float(match[1]) * units[match[2]] if match else None
