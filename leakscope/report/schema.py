"""Prints the schema of ``report.json``: ``python -m leakscope.report.schema``."""

from __future__ import annotations

import json
import sys

from leakscope.report.encoding import json_schema


def schema_text() -> str:
    """Return the schema as it stands in ``docs/report-schema.json``."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
