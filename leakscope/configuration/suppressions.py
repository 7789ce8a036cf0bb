"""``[[tool.leakscope.suppress]]``: what a project puts up with, why, and until when."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from leakscope.configuration.pyproject import Section
from leakscope.configuration.sentences import bad, unknown
from leakscope.model.check import Suppression

KEY = "suppress"
_PATTERNS = ("signature", "pattern", "path")
_KNOWN = (*_PATTERNS, "reason", "expires")


def read_suppressions(section: Section) -> tuple[list[Suppression], list[str]]:
    """Return the suppressions of a project, and a sentence for each key that is unknown.

    Raises:
        LeakscopeError: one has no reason, no pattern, or a value of the wrong type.

    """
    entries = section.table.get(KEY, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise bad(f"{KEY} in {section.path} must be written as [[tool.leakscope.{KEY}]].")
    found = [_suppression(entry, f"{_ordinal(n)} [[tool.leakscope.{KEY}]] of {section.path}")
             for n, entry in enumerate(entries, 1)]  # fmt: skip
    remarks = [
        unknown(key, _KNOWN, f"[[tool.leakscope.{KEY}]] of {section.path}")
        for entry in entries
        for key in entry
        if key not in _KNOWN
    ]
    return found, remarks


def _suppression(entry: dict[str, Any], where: str) -> Suppression:
    texts = {key: entry.get(key, "") for key in (*_PATTERNS, "reason")}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise bad(f"{key} must be a text, not {value!r}: see the {where}.")
    if not any(texts[key].strip() for key in _PATTERNS):
        raise bad(f"The {where} names nothing: give it a signature, a pattern or a path.")
    if not texts["reason"].strip():
        raise bad(f'The {where} has no reason; say why it is put up with: reason = "…".')
    return Suppression(**texts, expires=_date(entry.get("expires"), where))


def _date(value: object, where: str) -> date | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise bad(
            f"expires must be a date such as 2027-01-31, not {value!r}: see the {where}."
        ) from None


def _ordinal(number: int) -> str:
    return f"{number}{'th' if 10 <= number % 100 <= 20 else _ENDINGS.get(number % 10, 'th')}"


_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
