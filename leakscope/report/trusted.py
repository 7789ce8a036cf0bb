"""The only place where markup enters a page unescaped: our own drawings, style and script.

Nothing from the user's program passes here except :func:`embed_json`, whose output holds no
character that could end a script element, in any letter case.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from leakscope.model.printable import printable
from leakscope.report.svg import Drawing

TEMPLATES = Path(__file__).parent / "templates"
STYLES = (
    "colours",
    "page",
    "answer",
    "assurance",
    "charts",
    "timeline",
    "cards",
    "code",
    "chain",
    "icicle",
    "tables",
    "ledger",
    "comparison",
    "cuda",
    "runs",
    "small-print",
    "measuring",
    "widths",
    "print",
)
"""Parts of the style sheet, in their order: what comes later wins."""
SCRIPTS = (
    "page",
    "amounts",
    "theme",
    "copying",
    "sorting",
    "readings",
    "map",
    "axes",
    "window",
    "drawing",
    "timeline",
    "icicle",
)
"""Parts of the script, in their order: a part may use what those before it define."""
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&'\u2028\u2029"}


def inline_svg(drawing: Drawing) -> Markup:
    """Return a drawing of ours; its title was escaped where it was made."""
    return Markup(drawing.svg)  # noqa: S704


@lru_cache(maxsize=1)
def stylesheet() -> Markup:
    """Return the page's style sheet."""
    return Markup(_joined("style", STYLES, ".css"))  # noqa: S704


@lru_cache(maxsize=1)
def script() -> Markup:
    """Return the page's one script; its parts share a scope that nothing else sees."""
    body = _joined("script", SCRIPTS, ".js")
    return Markup(f'"use strict";\n(() => {{\n{body}}})();\n')  # noqa: S704


def content_security_policy() -> str:
    """Return the policy that lets nothing run but our script, and nothing load at all."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return (
        "default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def embed_json(value: Any) -> Markup:
    """Return a value as JSON in plain ASCII for a script element that is never executed."""
    text = _dumped(value)
    if _may_be_unseen(text):
        text = _dumped(_printable(value))
    return Markup(text.translate(_ESCAPES))  # noqa: S704


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _may_be_unseen(text: str) -> bool:
    """Return whether JSON in ASCII may hold characters that can't be seen: mostly it holds none,
    and then the thousands of values in it needn't be gone through.
    """
    codes = {int(code, 16) for code in re.findall(r"\\u([0-9a-f]{4})", text)}
    others = "\x7f" in text or re.search(r"\\[bfr]", text) is not None
    return others or any(printable(chr(code)) != chr(code) for code in codes)


def _joined(folder: str, names: Sequence[str], ending: str) -> str:
    files = (TEMPLATES / folder / f"{name}{ending}" for name in names)
    return "".join(file.read_text(encoding="utf-8") for file in files)


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, (list, tuple)) else value
