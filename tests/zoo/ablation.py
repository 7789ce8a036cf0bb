"""Switch off each rule and halve and double each number, and print what is judged otherwise.

    python tests/zoo/ablation.py [--only PATTERN] [--rules NAMES] [--numbers NAMES] [--jobs N]
        [--from FOLDER ...] [--write FILE]

A rule or number that changes no verdict of the recorded zoo is needed by none of its programs.

Each recording is read once and judged over and over by one process. A number is tried only where
judging the recording reads it, a rule only where it decides something; series are judged again only
where the number is one of the growth model's. Changes are made in groups first: of a group that
changes no verdict no member is tried alone, a group that does is halved until its members are
known. Two changes of a group that undo each other are missed so.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import msgspec
from archive import unpack
from judge import SAMPLE, Verdict, archives, known_cases, verdict_of
from record import CACHE, read_kept
from running import Outcome
from scoring import score

from leakscope.analysis import analyse
from leakscope.analysis.growth import exclusions, model, policy, shape
from leakscope.analysis.run_context import Decisions
from leakscope.model.run import Run
from leakscope.recording import open_run

ANALYSIS = "leakscope.analysis."
FACTORS = (0.5, 2.0)
GROUP_SIZE = 12


def returns(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def second_argument(*arguments: Any, **_: Any) -> Any:
    return arguments[1]


OTHERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "carried_by_pool": ("growth.search:find_carriers", returns({})),
    "share_named": ("growth.search:share_named", second_argument),
    "siblings": ("verdict.analyse:with_siblings_joined", second_argument),
    "undecided": ("verdict.analyse:find_undecided", returns([])),
    "pinned_by_unnamed": ("growth.exclusions:_pinned_by_unnamed", second_argument),
    "fills_a_librarys_bound": ("growth.exclusions:_filling", second_argument),
    "goes_with_memory": ("accounting.terms:_going_with_memory", second_argument),
    "known_slack": ("accounting.terms:_with_known_slack", second_argument),
    "in_loops": ("accounting.terms:_bytes_in_loops", returns(0.0)),
    "released_at_the_end": ("growth.rows:_was_released", returns(False)),
    "grew_without": ("growth.search:_grew_without", returns(False)),
    "waits": ("verdict.cleared:_may_only_wait", returns(False)),
    "kept_by_each": ("findings.gauge_rules:_bytes_of_each", returns(0.0)),
    "gained_little": ("verdict.cleared:_gained_little", returns(False)),
}
"""What is no entry of a list, by the function that stands for it, and what it does when off."""


@dataclass(frozen=True)
class Change:
    """One thing that is switched off, or one number that is changed."""

    name: str
    factor: float | None = None

    def __str__(self) -> str:
        return f"{self.name} off" if self.factor is None else f"{self.name} × {self.factor:g}"

    @contextlib.contextmanager
    def made(self) -> Iterator[None]:
        """Have the analysis of this process go by it."""
        if self.factor is not None:
            replaced = [(policy, self.name, number(self.name, self.factor))]
        elif self.name in OTHERS:
            place, replacement = OTHERS[self.name]
            module, _, name = place.partition(":")
            replaced = [(importlib.import_module(ANALYSIS + module), name, replacement)]
        else:
            replaced = rules_without(self.name)
        with set_to(replaced):
            yield


def number(name: str, factor: float) -> float:
    """Return a changed number; a whole one stays whole and is changed by one at least."""
    before: float = getattr(policy, name)
    if not isinstance(before, int):
        return before * factor
    changed = round(before * factor)
    return changed if changed != before else before + (1 if factor > 1 else -1)


@contextlib.contextmanager
def set_to(replaced: Iterable[tuple[ModuleType, str, Any]]) -> Iterator[None]:
    """Set names of modules, and set them back."""
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    for module, name, value in replaced:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def rules_without(rule_name: str) -> list[tuple[ModuleType, str, Any]]:
    """Return what takes a rule out of the ordered lists."""
    applies = exclusions.excludes

    def excludes(case: Any, rule: Any, grower: Any) -> bool:
        return rule.name != rule_name and applies(case, rule, grower)

    replaced: list[tuple[ModuleType, str, Any]] = []
    for module in loaded():
        if getattr(module, "excludes", None) is applies:
            replaced.append((module, "excludes", excludes))
    kept = tuple(rule for rule in exclusions.TERM_RULES if rule.name != rule_name)
    return [*replaced, (exclusions, "TERM_RULES", kept)]


def loaded() -> list[ModuleType]:
    return [m for n, m in list(sys.modules.items()) if n.startswith(ANALYSIS) and m is not None]


def rules() -> list[str]:
    listed = (*exclusions.ROW_RULES, *exclusions.TERM_RULES)
    return [exclusions.MOVED.name, *(r.name for r in listed)]


def numbers() -> list[str]:
    return [n for n, v in vars(policy).items() if n.isupper() and isinstance(v, int | float)]


def numbers_of_the_model() -> set[str]:
    """Return the numbers by which series are judged."""
    text = "".join(Path(str(m.__file__)).read_text() for m in (model, shape))
    return {name for name in numbers() if f"policy.{name}" in text}


class ReadPolicy(ModuleType):
    """The policy, which notes what is read of it."""

    seen: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        if name.isupper():
            ReadPolicy.seen.add(name)
        return super().__getattribute__(name)


@contextlib.contextmanager
def reads_and_rules() -> Iterator[tuple[set[str], set[str]]]:
    """Note which numbers are read meanwhile and which rules decide something."""
    decided: set[str] = set()
    add = Decisions.add

    def noting(self: Decisions, subject: str, rule: str, outcome: str, **rest: Any) -> None:
        decided.add(rule)
        add(self, subject, rule, outcome, **rest)

    ReadPolicy.seen = set()
    policy.__class__ = ReadPolicy
    Decisions.add = noting  # type: ignore[method-assign]
    try:
        yield ReadPolicy.seen, decided
    finally:
        Decisions.add = add  # type: ignore[method-assign]
        policy.__class__ = ModuleType


@contextlib.contextmanager
def series_remembered(known: dict[tuple[bytes, bytes, float], Any]) -> Iterator[None]:
    """Judge each series once."""
    judge_growth = model.judge_growth

    def remembering(x: Any, y: Any, *, noise: float = 0.0) -> Any:
        key = (x.tobytes(), y.tobytes(), noise)
        if key not in known:
            known[key] = judge_growth(x, y, noise=noise)
        return known[key]

    places = [m for m in loaded() if getattr(m, "judge_growth", None) is judge_growth]
    with set_to([(module, "judge_growth", remembering) for module in places]):
        yield


@dataclass(frozen=True)
class Effects:
    """What changes do to what is reported on one recording."""

    key: str
    right: bool
    read: set[str]
    decided: set[str]
    effects: dict[Change, tuple[str, str]]
    """How it changes, and in what: see ``effect``."""
    seconds: float


def examine(changes: list[Change], archive: Path) -> Effects:
    """Judge one recording as usual and with each change that may matter."""
    begun = time.perf_counter()
    of_model, found = numbers_of_the_model(), {}
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        about = unpack(archive, Path(scratch))
        run = open_run(scratch)
        key = f"{about.name}.{about.form}"
        with reads_and_rules() as (read, decided):
            usual = verdict(run, about)
        known: dict[tuple[bytes, bytes, float], Any] = {}

        def try_together(group: list[Change]) -> None:
            with contextlib.ExitStack() as made:
                for change in group:
                    made.enter_context(change.made())
                if not any(change.factor and change.name in of_model for change in group):
                    made.enter_context(series_remembered(known))
                other = verdict(run, about)
            what = effect(usual, other)
            if what and len(group) == 1:
                found[group[0]] = what
            elif what:
                try_together(group[: len(group) // 2])
                try_together(group[len(group) // 2 :])

        for group in groups(changes, read, decided, of_model):
            try_together(group)
    seconds = time.perf_counter() - begun
    return Effects(key, bool(usual["right"]), set(read), decided, found, seconds)


def groups(
    changes: list[Change], read: set[str], decided: set[str], of_model: set[str]
) -> list[list[Change]]:
    """Return what may matter for one recording, in groups that are tried together.

    Numbers of the growth model stay among themselves, as do those changed by one factor: what is
    scaled together keeps its order.
    """
    alike: defaultdict[tuple[float | None, bool], list[Change]] = defaultdict(list)
    for change in changes:
        if change.factor is not None:
            if change.name in read:
                alike[change.factor, change.name in of_model].append(change)
        elif change.name in decided or change.name in OTHERS:
            alike[None, False].append(change)
    return [
        every[start : start + GROUP_SIZE]
        for every in alike.values()
        for start in range(0, len(every), GROUP_SIZE)
    ]


def verdict(run: Run, about: Any) -> Verdict:
    case = known_cases()[about.name]
    try:
        report = analyse(run)
    except Exception as error:  # a number that makes no sense is a change as well
        return {"right": False, "verdict": f"{type(error).__name__}: {error}", "culprits": [],
                "findings": [], "explained": "", "unexplained": {}, "missing": []}  # fmt: skip
    found: dict[str, Any] = json.loads(msgspec.json.encode(report, enc_hook=float))
    kept = read_kept(case) or [{} for _ in case.leaks]
    return verdict_of(found, score(case, Outcome(found, about.seconds, kept)))


def effect(usual: Verdict, other: Verdict) -> tuple[str, str] | None:
    """Return how and in what a verdict changes: worse, better or otherwise."""
    parts = [(part(usual), part(other)) for part in (word, names, findings)]
    differing = [f"{a} → {b}" for a, b in parts if a != b]
    if usual["right"] != other["right"]:
        return "worse" if usual["right"] else "better", "; ".join(differing) or "place or line"
    return ("otherwise", "; ".join(differing)) if differing else None


def word(one: Verdict) -> str:
    return str(one["verdict"])


def names(one: Verdict) -> str:
    return ", ".join(f"{c['name']} ({c['severity']})" for c in one["culprits"]) or "nobody"


def findings(one: Verdict) -> str:
    return ", ".join(finding.partition(":")[0] for finding in one["findings"]) or "no finding"


def report(changes: list[Change], every: list[Effects], seconds: float) -> dict[str, Any]:
    """Print what each change does, and return it."""
    readings: dict[str, Any] = {}
    by_name: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for change in changes:
        kinds: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for item in every:
            if change in item.effects:
                kind, what = item.effects[change]
                kinds[kind][item.key] = what
        readings[str(change)] = {kind: dict(programs) for kind, programs in kinds.items()}
        for kind, programs in kinds.items():
            by_name[change.name][kind] += len(programs)
        counts = ", ".join(f"{len(programs)} {kind}" for kind, programs in sorted(kinds.items()))
        print(f"{change}: {counts or 'nothing'}")
        for kind in ("worse", "better", "otherwise"):
            for key, what in list(kinds[kind].items())[:6]:
                print(f"    {kind:9} {key}: {what[:150]}")
    tried = dict.fromkeys(change.name for change in changes)
    print(f"\nchange no verdict: {', '.join(n for n in tried if not by_name[n])}")
    print(f"{len(every)} recordings, {len(changes)} changes in {seconds:.0f} s")
    return readings


def chosen(wanted: str, known: Iterable[str]) -> list[str]:
    if wanted == "none":
        return []
    return [n for n in known if wanted == "all" or n in wanted.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--rules", default="all", help="names between commas, all or none")
    parser.add_argument("--numbers", default="all", help="names between commas, all or none")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--from", dest="folders", type=Path, action="append")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the same as JSON")
    arguments = parser.parse_args()
    begun = time.perf_counter()
    files = archives(arguments.folders or [CACHE, SAMPLE], arguments.only)
    changes = [Change(name) for name in chosen(arguments.rules, [*rules(), *OTHERS])]
    changes += [Change(n, f) for n in chosen(arguments.numbers, numbers()) for f in FACTORS]
    by_size = sorted(files, key=lambda file: -file.stat().st_size)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        every = sorted(pool.map(partial(examine, changes), by_size), key=lambda item: item.key)
    reported = report(changes, every, time.perf_counter() - begun)
    if arguments.write:
        arguments.write.write_text(json.dumps(reported, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
