"""What commands share: sentences to stderr and exit codes, ``--format`` and ``--out``, writing."""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from leakscope.configuration import BY_NAME, FLAG, PATH, TEXT, Setting, UnreadableError
from leakscope.model.errors import EXIT_ERROR, LeakscopeError, UnwritableError

ALIKE = 0.7
"""From this likeness on a word is taken for another one mistyped."""
_INTERRUPTED = 130
STDOUT = Path("-")
_SUFFIXES = {
    ".html": "html", ".htm": "html", ".json": "json", ".txt": "text", ".text": "text",
    ".md": "markdown",
}  # fmt: skip
FORMS = ("html", "json", "text")
FOR_PEOPLE = ("text", "markdown", "github")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def notify(sentence: str) -> None:
    """Write one sentence of ours to stderr, if there is one to write to."""
    try:
        sys.stderr.write(f"leakscope: {sentence}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass


def exit_code_of(fault: BaseException) -> int:
    """Explain what ended a command and return the exit code that says so."""
    if isinstance(fault, SystemExit):
        raise fault
    if isinstance(fault, click.NoSuchOption):
        meant = [option for option in fault.possibilities or () if _is_meant(fault, option)]
        fault = click.NoSuchOption(fault.option_name, possibilities=meant, ctx=fault.ctx)
    if isinstance(fault, click.ClickException):
        fault.show()
        return fault.exit_code
    if isinstance(fault, (click.Abort, KeyboardInterrupt)):
        notify("interrupted.")
        return _INTERRUPTED
    if isinstance(fault, BrokenPipeError):
        # The reader of our output went away; the interpreter's last flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    notify(explain(fault))
    return EXIT_ERROR


def _is_meant(fault: click.NoSuchOption, option: str) -> bool:
    """Whether an option may be what was meant: its dashes alone make it look alike to click."""
    typed, known = fault.option_name.lstrip("-"), option.lstrip("-")
    return difflib.SequenceMatcher(None, typed, known).ratio() >= ALIKE


def explain(fault: BaseException) -> str:
    """Return a fault as a sentence; with ``LEAKSCOPE_DEBUG`` set, after its traceback."""
    if isinstance(fault, LeakscopeError):
        return str(fault)
    if os.environ.get("LEAKSCOPE_DEBUG"):
        traceback.print_exception(fault)
        return f"{type(fault).__name__}: {fault}"
    return (
        f"an error of leakscope's own ({type(fault).__name__}: {fault}); "
        "LEAKSCOPE_DEBUG=1 shows the traceback."
    )


def format_option(otherwise: str, forms: Sequence[str] = FORMS) -> Decorator:
    """Return ``--format``; without it the suffix of ``--out`` decides, else this form."""
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


def run_directory_options(
    text: str = "Run directory to make [default: leakscope-runs/<time>-<script>].",
    *,
    is_required: bool = False,
) -> Decorator:
    """Return the options ``--out`` and ``--force`` of a command that makes a run."""
    place = click.Path(path_type=Path)
    out = click.option("--out", "-o", type=place, metavar="DIR", required=is_required, help=text)
    force = click.option("--force", is_flag=True, help="Replace a run that --out holds already.")
    return lambda command: out(force(command))


def setting_options(*names: str) -> Decorator:
    """Return the options for settings, by their names in the table of them.

    What isn't given is None, so that the environment and the project may say it.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names):
            command = _setting_option(BY_NAME[name])(command)
        return command

    return add


def _setting_option(setting: Setting) -> Decorator:
    kind = setting.kind
    flags = setting.flags or (f"--{setting.name.rpartition('.')[2]}",)
    is_shown = setting.default and kind is not FLAG
    default = f" [default: {kind.shown(setting.default)}]" if is_shown else ""
    as_written: Any = click.Path(path_type=Path) if kind is PATH else click.STRING
    return click.option(
        *flags,
        setting.option,
        is_flag=kind is FLAG,
        multiple=kind.is_list,
        default=None,
        type=None if kind is FLAG else click.Choice(kind.choices) if kind.choices else as_written,
        metavar=kind.metavar,
        callback=_setting_value(setting),
        help=f"{setting.help.removesuffix('.')}{default}." if default else setting.help,
    )


def _setting_value(setting: Setting) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def value(_: click.Context, __: click.Parameter, text: Any) -> Any:
        if text is None or text == ():
            return None
        if setting.kind in (PATH, TEXT):
            return text
        try:
            return setting.kind.read([*text] if setting.kind.is_list else text)
        except UnreadableError as fault:
            raise click.BadParameter(f"{text!r} is not {fault}.") from None

    return value


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


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        UnwritableError: it can't be written; nothing is left behind.

    """
    from leakscope.recording.directory import temporary_path_for

    temporary = temporary_path_for(path)
    try:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        temporary.replace(path)
    except OSError as fault:
        raise UnwritableError(
            f"{path} can't be written ({fault.strerror or fault}); --out chooses another place.",
            slug="unwritable",
        ) from fault
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def terminal_width(otherwise: int) -> int:
    """Return the terminal's columns, or a fixed width where output goes elsewhere."""
    return shutil.get_terminal_size((otherwise, 24)).columns


def wants_color(is_terminal: bool) -> bool:
    """Return whether to colour: a terminal that can, and no ``NO_COLOR``."""
    can = is_terminal and os.environ.get("TERM") != "dumb"
    return can and not os.environ.get("NO_COLOR")


def write_output(text: str, out: Path | None, form: str = "text") -> None:
    """Write a finished text to a file, or to stdout where none is named.

    On a stdout whose encoding lacks some signs, text for people has plain ones instead; text for
    programs stays as it is, in UTF-8.
    """
    text = text if text.endswith("\n") else text + "\n"
    if out is not None and not is_stdout(out):
        write_text(out, text)
    elif form in FOR_PEOPLE:
        print_text(text)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()


def print_text(text: str) -> None:
    """Print text for people to stdout, in signs that it can hold."""
    from leakscope.report.text import encodable

    sys.stdout.write(encodable(text if text.endswith("\n") else text + "\n", sys.stdout.encoding))
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
