"""A check as SARIF 2.1.0, which GitHub's code scanning and others read.

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
from typing import Any

from leakscope.model.check import Check, Checked, Outcome, Standing
from leakscope.model.printable import one_line
from leakscope.model.report import Severity
from leakscope.report.checks.places import Place, place_of, to_place
from leakscope.report.checks.rules import Rule, rule_of
from leakscope.report.checks.telling import account_of

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"
_LEVELS = {Severity.CRITICAL: "error", Severity.WARNING: "warning", Severity.NOTE: "warning"}


def render_check_sarif(check: Check, *, version: str = "", otherwise: str = "") -> str:
    """Return the check as a SARIF file.

    Args:
        check: What is told; notes and what is excused are left out.
        version: leakscope's own.
        otherwise: The file that is shown for what has no place of its own: code scanning takes no
            result without one.

    """
    grave = [one for one in check.growths if one.standing is not Standing.NOTE]
    told = [
        (one, likeness)
        for one, likeness in zip(grave, _likenesses(grave), strict=True)
        if one.standing is Standing.FAILED
    ]
    rules = list(dict.fromkeys(rule_of(one.rule) for one, _ in told))
    run = {
        "tool": {"driver": _driver(rules, version)},
        "originalUriBaseIds": {ROOT: {"description": {"text": "The repository's root."}}},
        "results": [_result(one, likeness, rules, otherwise) for one, likeness in told],
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(check)],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _driver(rules: list[Rule], version: str) -> dict[str, Any]:
    driver = {
        "name": "leakscope",
        "rules": [_rule(rule) for rule in rules],
    }
    return {**driver, "semanticVersion": version} if version else driver


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": one_line(rule.id),
        "name": one_line(rule.name),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.help},
        "help": {"text": rule.help},
        "properties": {"tags": ["memory", "performance"], "precision": "high"},
    }


def _result(one: Checked, likeness: str, rules: list[Rule], otherwise: str) -> dict[str, Any]:
    rule = rule_of(one.rule)
    places = [to_place(text) for text in one.places[:5]]
    first = place_of(one) or (Place(otherwise) if otherwise else None)
    others = [place for place in places if place != first]
    result: dict[str, Any] = {
        "ruleId": one_line(rule.id),
        "ruleIndex": rules.index(rule),
        "level": _LEVELS[one.severity],
        "message": {"text": _message(one)},
        "locations": [_location(first)] if first else [],
        "partialFingerprints": {
            "primaryLocationLineHash": likeness,
            "leakscopeLikeness/v1": likeness,
            "leakscopeSignature/v1": _fingerprint(one, one.signature),
        },
        "properties": {"standing": one.standing.value, **_known(one)},
    }
    if others:
        result["relatedLocations"] = [_location(place) for place in others]
    return result


def _known(one: Checked) -> dict[str, Any]:
    known = one.recognised
    if known is None:
        return {}
    told = {"id": known.id, "nature": known.nature.value, "library": known.library}
    return {"knownCulprit": {**told, "version": known.version, "link": one_line(known.link)}}


def _message(one: Checked) -> str:
    return "\n".join(map(one_line, account_of(one)))


def _likenesses(grave: Sequence[Checked]) -> list[str]:
    """Return a fingerprint for each that lasts while it is called the same.

    Those that are alike in it have their signatures too: an alert that somebody dismissed must not
    be taken for another one.
    """
    found = [_fingerprint(one, _digest(one.name, one.kind, one.type)) for one in grave]
    counts = Counter(found)
    return [
        text
        if counts[text] == 1
        else _fingerprint(one, _digest(one.name, one.kind, one.type, one.signature))
        for one, text in zip(grave, found, strict=True)
    ]


def _digest(*parts: str) -> str:
    text = "\n".join(map(one_line, parts))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]


def _fingerprint(one: Checked, identity: str) -> str:
    where = f"{one.device}-workers" if one.in_workers else one.device
    return one_line(f"{identity}-{one.growth}-{where}:1")


def _location(place: Place) -> dict[str, Any]:
    artifact = {"uri": place.uri}
    if place.is_in_repository:
        artifact["uriBaseId"] = ROOT
    return {
        "physicalLocation": {
            "artifactLocation": artifact,
            "region": {"startLine": place.line},
        }
    }


def _invocation(check: Check) -> dict[str, Any]:
    told = [*check.remarks]
    if check.outcome is Outcome.INCONCLUSIVE:
        told += [check.headline, *check.missing]
    invocation: dict[str, Any] = {"executionSuccessful": True}
    if told:
        invocation["toolExecutionNotifications"] = [
            {"level": "warning", "message": {"text": one_line(text)}} for text in told
        ]
    return invocation
