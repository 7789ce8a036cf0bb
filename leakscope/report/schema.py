"""The schema of ``report.json`` as text."""

from __future__ import annotations

import json

from leakscope.report.encoding import json_schema


def schema_text() -> str:
    """Return the schema as it stands in ``docs/report-schema.json``."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
