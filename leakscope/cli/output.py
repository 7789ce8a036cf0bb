"""What several commands share: ``--format`` and ``--out``, writing to a file or stdout, reading
arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from leakscope.cli.conclusion import wants_color, write_text

STDOUT = Path("-")
_SUFFIXES = {
    ".html": "html", ".htm": "html", ".json": "json", ".txt": "text", ".text": "text",
    ".md": "markdown",
}  # fmt: skip
FORMS = ("html", "json", "text")
FOR_PEOPLE = ("text", "markdown", "github")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def format_option(otherwise: str, forms: Sequence[str] = FORMS) -> Decorator:
    """Return the option ``--format``; without it the suffix of ``--out`` tells, else this form."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(forms),
        default=None,
        help=f"[default: by the suffix of --out, else {otherwise}]",
    )


def out_option(text: str = "Where to write; - or nothing is stdout.") -> Decorator:
    """Return the option ``--out``."""
    return click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help=text)


def format_of(
    out: Path | None,
    otherwise: str,
    forms: Sequence[str] = FORMS,
    suffixes: Mapping[str, str] = _SUFFIXES,
) -> str:
    """Return the format that a file's suffix asks for; without a suffix the usual one.

    Raises:
        click.BadParameter: the suffix is none of a form that there is.

    """
    if out is None or is_stdout(out) or not out.suffix:
        return otherwise
    form = suffixes.get(out.suffix.lower(), "")
    if form not in forms:
        known = ", ".join(suffix for suffix, name in suffixes.items() if name in forms)
        raise click.BadParameter(
            f"{out} names no form; use one of {known}, or say which with --format.",
            param_hint="'--out'",
        )
    return form


def is_stdout(out: Path | None) -> bool:
    """Return whether a text goes to stdout."""
    return out is None or out == STDOUT


def shows_color(out: Path | None) -> bool:
    """Return whether a text is to be coloured."""
    return wants_color(sys.stdout.isatty() and is_stdout(out))


def deliver(text: str, out: Path | None, form: str = "text") -> None:
    """Write a finished text to a file, or to stdout where none is named.

    On a stdout that can't hold all signs, what people read has plain ones instead; what programs
    read stays as it is, in UTF-8.
    """
    text = text if text.endswith("\n") else text + "\n"
    if out is not None and not is_stdout(out):
        write_text(out, text)
    elif form in FOR_PEOPLE:
        tell(text)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()


def tell(text: str) -> None:
    """Print text for people to stdout, in signs that it can hold."""
    from leakscope.report.text import fitted

    sys.stdout.write(fitted(text if text.endswith("\n") else text + "\n", sys.stdout.encoding))
    sys.stdout.flush()


def to_process_number(
    _: click.Context | None, __: click.Parameter | None, text: str | None
) -> int | None:
    """Return the number of a process: a whole one above 0."""
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise click.BadParameter(f"{text!r} is not a process number.")
    return int(text)


def why_unread(fault: BaseException) -> str:
    """Return what is wrong with a file, as the end of a sentence about it."""
    if isinstance(fault, FileNotFoundError):
        return "it does not exist"
    if isinstance(fault, OSError):
        return f"it can't be read ({fault.strerror or fault})"
    if isinstance(fault, msgspec.ValidationError):
        return "it is JSON, but not as leakscope writes it"
    return "it is not JSON, or was cut off"
