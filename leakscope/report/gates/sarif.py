"""A check as SARIF 2.1.0, which GitHub's code scanning and others read, with a rule for each kind
of diagnosis.

The fingerprint of a result is made of its name, kind and type, so that an alert stays the same one
when lines move or a variable that leads to it is renamed. GitHub matches alerts by
``primaryLocationLineHash`` alone and would make it from the line's text.

What is excused is left out: SARIF has a property for it, ``suppressions``, but code scanning passes
it over and opens an alert all the same.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from leakscope.model.documents import Check, Checked, CheckReason, Outcome
from leakscope.model.known import read_toml
from leakscope.model.report import Severity
from leakscope.model.text import one_line
from leakscope.report.text import humane_rate
from leakscope.report.words import known_line

DOCUMENTATION = "docs/diagnoses.md"


@dataclass(frozen=True)
class Rule:
    """A kind of diagnosis."""

    id: str
    title: str
    help: str

    @property
    def name(self) -> str:
        """The id as SARIF wants names: ``GrowingContainer``."""
        return "".join(part.capitalize() for part in self.id.replace("_", "-").split("-"))


@lru_cache(maxsize=1)
def known_rules() -> dict[str, Rule]:
    """Return the kinds of diagnosis that have a rule, by id."""
    tables = read_toml(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))
    return {id_: Rule(id_, **texts) for id_, texts in tables.items()}


@dataclass(frozen=True)
class SourceLocation:
    """A line of a file; line 1 where none is known."""

    file: str
    line: int = 1

    @property
    def is_in_repository(self) -> bool:
        """Whether the path is relative to the repository's root and stays in it."""
        return bool(self.file) and not self.file.startswith(("/", "..", "<"))

    @property
    def uri(self) -> str:
        """The path as a reference of RFC 3986; what no file system could show is spelled out."""
        path = quote(one_line(self.file), safe="/-._~")
        return path if self.is_in_repository else f"file://{path}"


def to_location(text: str) -> SourceLocation:
    """Return the place that ``src/train.py:12`` names."""
    file, _, line = text.rpartition(":")
    if file and line.isascii() and line.isdigit() and len(line) < 10:
        return SourceLocation(file, max(int(line), 1))
    return SourceLocation(text)


def location_of(growth: Checked) -> SourceLocation | None:
    """Return the line to look at first; None where none is known."""
    return to_location(growth.place) if growth.place else None


def rate_of(growth: Checked) -> str:
    """Return ``412 MiB per validation``; empty where nothing was measured per unit of work."""
    return humane_rate(growth.bytes_per_unit, growth.unit) if growth.bytes_per_unit > 0 else ""


def why_of(growth: Checked) -> str:
    """Return why it fails or doesn't, with the reason that people gave."""
    return f"{growth.why} {growth.excuse}".strip()


def account_of(growth: Checked) -> list[str]:
    """Return what grows, why it fails or doesn't, and what to change: a line each."""
    title = [] if growth.path else [f"{growth.name}."]
    known = known_line(growth.recognised) if growth.recognised else ""
    parts = (*title, growth.sentence, known, why_of(growth), growth.remedy)
    return [text for text in parts if text]


def rule_of(kind: str) -> Rule:
    """Return what is known of a kind of diagnosis; of one that has no rule yet, its own words."""
    known = known_rules().get(kind)
    if known is not None:
        return known
    title = kind.replace("_", " ").replace("-", " ").strip().capitalize() or "Memory"
    return Rule(kind or "memory", title, f"See {DOCUMENTATION}.")


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
_LEVELS = {Severity.CRITICAL: "error", Severity.WARNING: "warning", Severity.NOTE: "warning"}


def render_check_sarif(check: Check, *, version: str = "", otherwise: str = "") -> str:
    """Return the check as a SARIF file; notes and what is excused are left out.

    Code scanning takes no result without a file: ``otherwise`` is shown for what has no place of
    its own.
    """
    grave = [growth for growth in check.growths if growth.standing is not CheckReason.NOTE]
    failed = [
        (growth, likeness)
        for growth, likeness in zip(grave, _likenesses(grave), strict=True)
        if growth.standing is CheckReason.FAILED
    ]
    rules = list(dict.fromkeys(rule_of(growth.rule) for growth, _ in failed))
    driver: dict[str, Any] = {"name": "leakscope", "rules": [_rule(rule) for rule in rules]}
    driver |= {"semanticVersion": version} if version else {}
    run = {
        "tool": {"driver": driver},
        "originalUriBaseIds": {ROOT: {"description": {"text": "The repository's root."}}},
        "results": [_result(growth, likeness, rules, otherwise) for growth, likeness in failed],
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(check)],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": one_line(rule.id),
        "name": one_line(rule.name),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.help},
        "help": {"text": rule.help},
        "properties": {"tags": ["memory", "performance"], "precision": "high"},
    }


def _result(growth: Checked, likeness: str, rules: list[Rule], otherwise: str) -> dict[str, Any]:
    rule = rule_of(growth.rule)
    places = [to_location(text) for text in growth.places[:5]]
    first = location_of(growth) or (SourceLocation(otherwise) if otherwise else None)
    others = [place for place in places if place != first]
    result: dict[str, Any] = {
        "ruleId": one_line(rule.id),
        "ruleIndex": rules.index(rule),
        "level": _LEVELS[growth.severity],
        "message": {"text": "\n".join(map(one_line, account_of(growth)))},
        "locations": [_location(first)] if first else [],
        "partialFingerprints": {
            "primaryLocationLineHash": likeness,
            "leakscopeLikeness/v1": likeness,
            "leakscopeSignature/v1": _fingerprint(growth, growth.signature),
        },
        "properties": {"standing": growth.standing.value, **_known(growth)},
    }
    if others:
        result["relatedLocations"] = [_location(place) for place in others]
    return result


def _known(growth: Checked) -> dict[str, Any]:
    known = growth.recognised
    if known is None:
        return {}
    found = {"id": known.id, "nature": known.nature.value, "library": known.library}
    return {"knownCulprit": {**found, "version": known.version, "link": one_line(known.link)}}


def _likenesses(grave: Sequence[Checked]) -> list[str]:
    """Return a fingerprint for each that lasts while it is called the same.

    Those that are alike in it have their signatures too: an alert that somebody dismissed must not
    be taken for another one.
    """
    traits = [(growth.name, growth.kind, growth.type) for growth in grave]
    found = [_fingerprint(g, _digest(*own)) for g, own in zip(grave, traits, strict=True)]
    counts = Counter(found)
    return [
        text if counts[text] == 1 else _fingerprint(growth, _digest(*own, growth.signature))
        for growth, own, text in zip(grave, traits, found, strict=True)
    ]


def _digest(*parts: str) -> str:
    text = "\n".join(map(one_line, parts))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]


def _fingerprint(growth: Checked, identity: str) -> str:
    where = f"{growth.device}-workers" if growth.in_workers else growth.device
    return one_line(f"{identity}-{growth.growth}-{where}:1")


def _location(place: SourceLocation) -> dict[str, Any]:
    artifact = {"uri": place.uri}
    if place.is_in_repository:
        artifact["uriBaseId"] = ROOT
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": place.line}}}


def _invocation(check: Check) -> dict[str, Any]:
    remarks = [*check.remarks]
    if check.outcome is Outcome.INCONCLUSIVE:
        remarks += [check.headline, *check.missing]
    notes = [{"level": "warning", "message": {"text": one_line(text)}} for text in remarks]
    return {"executionSuccessful": True} | ({"toolExecutionNotifications": notes} if notes else {})
