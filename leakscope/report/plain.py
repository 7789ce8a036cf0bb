"""Text for a terminal whose encoding lacks our signs: each has a plain one in its place."""

from __future__ import annotations

from leakscope.report.sparkline import BLOCKS

PLAIN_BLOCKS = "_.-:=+*#"
_PLAIN = str.maketrans({
    **dict(zip(BLOCKS, PLAIN_BLOCKS, strict=True)),
    "✗": "x", "✓": "v", "→": "->", "·": "-", "…": "~", "–": "-", "\N{MINUS SIGN}": "-",
})  # fmt: skip


def fitted(text: str, encoding: str | None) -> str:
    r"""Return text that can be written in an encoding; as it stands where that holds all of it.

    What a program's names are made of is spelled out then, ``\u4e2d``.
    """
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        plain = text.translate(_PLAIN).encode(encoding, "backslashreplace")
        return plain.decode(encoding)
    except LookupError:
        return text
    return text
