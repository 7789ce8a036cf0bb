"""Every report as JSON, and the JSON schema that documents ``report.json``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import msgspec

from leakscope.model.comparison import Comparison
from leakscope.model.documents import Baseline, Check, Health, RunExplanation
from leakscope.model.report import REPORT_SCHEMA_MINOR, REPORT_SCHEMA_VERSION, Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render_json(document: msgspec.Struct | dict[str, Any]) -> str:
    """Return a report or any other document of ours as JSON, each field on its own line.

    What JSON can't hold is replaced: there is no NaN and no half of a surrogate pair.
    """
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:  # a name that is no Unicode: half of a surrogate pair
        plain = with_texts(
            msgspec.to_builtins(document),
            lambda text: text.encode("utf-8", "backslashreplace").decode(),
        )
        encoded = msgspec.json.encode(plain)
    return msgspec.json.format(encoded, indent=1).decode() + "\n"


def json_schema() -> dict[str, Any]:
    """Return the schema of ``report.json``; the other documents are among its ``$defs``."""
    (reference, *_), definitions = msgspec.json.schema_components(
        [Report, Comparison, Check, Baseline, Health, RunExplanation], ref_template="#/$defs/{name}"
    )
    schema = {
        "$schema": DIALECT,
        "title": f"leakscope report, version {REPORT_SCHEMA_VERSION}.{REPORT_SCHEMA_MINOR}",
        "description": "A number that is not finite, such as the open end of an interval, is null.",
        **reference,
        "$defs": dict(sorted(definitions.items())),
    }
    result = _normalized(schema)
    assert isinstance(result, dict)
    return result


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return plain values with all their texts changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {with_texts(key, change): with_texts(item, change) for key, item in value.items()}
    return [with_texts(v, change) for v in value] if isinstance(value, (list, tuple)) else value


def _normalized(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_normalized(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: _normalized(item) for key, item in schema.items()}
    if result.get("type") == "number":
        result["type"] = ["number", "null"]
    if isinstance(description := result.get("description"), str):
        # msgspec leaves the indentation of a docstring's later lines in before 0.23.
        result["description"] = inspect.cleandoc(description)
    return result


def schema_text() -> str:
    """Return the schema as it stands in ``docs/report-schema.json``."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
