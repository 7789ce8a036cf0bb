"""Checks that a tag is the one of the version that is about to be released.

    python .github/check_tag.py v0.1.0

The version stands in one place, ``leakscope/model/__init__.py``, which a source distribution and a
shallow clone have too. The changelog must have a section for it, with a date.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def version(source: str) -> str:
    """Return what is assigned to ``__version__``."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__":
            return str(ast.literal_eval(node.value))
    raise SystemExit("leakscope/model/__init__.py has no __version__")


def trouble(tag: str, released: str, changelog: str) -> str:
    """Return what keeps a version from being released by a tag; empty where nothing does."""
    if tag != f"v{released}":
        return f"Of leakscope.__version__ {released} the tag must be v{released}, and not {tag}."
    if re.search(rf"^## \[{re.escape(released)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.M) is None:
        return f"CHANGELOG.md has no section `## [{released}] - YYYY-MM-DD`: rename [Unreleased]."
    return ""


def main(words: list[str]) -> str | int:
    """Return what to exit with."""
    if len(words) != 1:
        return "usage: check_tag.py TAG"
    released = version((ROOT / "leakscope" / "model" / "__init__.py").read_text())
    return trouble(words[0], released, (ROOT / "CHANGELOG.md").read_text()) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
