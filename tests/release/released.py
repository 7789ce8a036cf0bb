"""What users rely on, as it was in the last release: the schema of reports, commands, arguments.

    python tests/release/released.py

rewrites it, as a part of a release (``CONTRIBUTING.md``). In between, what is there may grow and
nothing of it may go: ``tests/release/test_stability.py``.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import click

import leakscope
from leakscope import cli
from leakscope.configuration import SETTINGS
from leakscope.model import errors
from leakscope.report import json_schema

FOLDER = Path(__file__).parents[1] / "data" / "released"
SCHEMA, SURFACE = FOLDER / "report-schema.json", FOLDER / "surface.json"


def schema() -> dict[str, Any]:
    """Return the schema of reports, without what it says in words."""
    plain = _without_words(json_schema())
    assert isinstance(plain, dict)
    return plain


def _without_words(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_words(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: item for key, item in node.items() if key != "properties"}
    words = {"$schema", "title", "description"}
    plain = {key: _without_words(item) for key, item in kept.items() if key not in words}
    if "properties" in node:  # a property may be called title
        plain["properties"] = {k: _without_words(v) for k, v in node["properties"].items()}
    return plain


def surface() -> dict[str, list[str]]:
    """Return what can be typed and called, by where."""
    context = click.Context(cli.leakscope)
    found = {
        f"leakscope {name}": _options(context, name)
        for name in cli.leakscope.list_commands(context)
    }
    for name in ("profile", "find_growth", "heap.snapshot"):
        function: Any = leakscope
        for part in name.split("."):
            function = getattr(function, part)
        found[f"leakscope.{name}()"] = list(inspect.signature(function).parameters)
    found["leakscope"] = [name for name in leakscope.__all__ if name != "__version__"]
    found["leakscope.Scope"] = [n for n in vars(leakscope.Scope) if not n.startswith("_")]
    found["leakscope.cleanup"] = list(leakscope.cleanup.__all__)
    found["leakscope.notebook"] = list(leakscope.notebook.__all__)
    found["settings"] = [setting.name for setting in SETTINGS]
    found["exit codes"] = [f"{n}={v}" for n, v in vars(errors).items() if n.startswith("EXIT_")]
    return {place: sorted(names) for place, names in sorted(found.items())}


def _options(context: click.Context, name: str) -> list[str]:
    command = cli.leakscope.get_command(context, name)
    assert command is not None
    return [name for option in command.params for name in (*option.opts, *option.secondary_opts)]


def main() -> None:
    """Write both."""
    SCHEMA.write_text(json.dumps(schema(), separators=(",", ":")) + "\n")
    SURFACE.write_text(json.dumps(surface(), indent=1) + "\n")


if __name__ == "__main__":
    main()
