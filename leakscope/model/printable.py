r"""Text from the user's program made harmless to look at: what can't be seen is spelled out.

Names may hold terminal escapes, marks that reverse the direction of reading, or halves of
surrogate pairs that no file can hold. Each such character is shown as its escape, ``\x1b``.
"""

from __future__ import annotations

import re

UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and newline
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff"  # direction, zero width
    "\ud800-\udfff"  # halves of surrogate pairs
    "\U000e0000-\U000e007f"  # invisible tags
)
_UNSEEN = re.compile(f"[{UNSEEN}]")
_UNSEEN_OR_BREAK = re.compile(f"[{UNSEEN}\t\n]")


def printable(text: str) -> str:
    """Return text with every unseen character spelled out; tabs and newlines stay."""
    return _UNSEEN.sub(_spell, text)


def one_line(text: str) -> str:
    """Return text fit for one line of a terminal: tabs and newlines are spelled out as well."""
    return _UNSEEN_OR_BREAK.sub(_spell, text)


def clipped(text: str, width: int) -> str:
    """Return one line of at most so many characters, its middle left out where it is longer."""
    text = one_line(text)
    if len(text) <= width:
        return text
    head = max(0, (width - 1) // 2)
    return f"{text[:head]}…{text[len(text) - max(0, width - head - 1) :]}" if width > 0 else ""


def _spell(match: re.Match[str]) -> str:
    code = ord(match.group())
    named = {9: "\\t", 10: "\\n", 13: "\\r"}.get(code)
    if named:
        return named
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
