"""Process numbers on the command line."""

from __future__ import annotations

import click


def to_process_number(
    _: click.Context | None, __: click.Parameter | None, text: str | None
) -> int | None:
    """Return the number of a process: a whole one above 0."""
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise click.BadParameter(f"{text!r} is not a process number.")
    return int(text)
