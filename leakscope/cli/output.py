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
from typing import Any, TypeVar

import click
import msgspec

from leakscope.configuration import BY_NAME, FLAG, PATH, TEXT, Setting, UnreadableError
from leakscope.model.errors import EXIT_ERROR, LeakscopeError, NewerSchemaError, UnwritableError

ALIKE = 0.7
"""From this likeness on a word is taken for another one mistyped."""
_INTERRUPTED = 130
PLACE = click.Path(path_type=Path)
STDOUT = Path("-")
_SUFFIXES = {
    ".html": "html", ".htm": "html", ".json": "json", ".txt": "text", ".text": "text",
    ".md": "markdown",
}  # fmt: skip
FORMS = ("html", "json", "text")
FOR_PEOPLE = ("text", "markdown", "github")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
D = TypeVar("D")


def notify(sentence: str) -> None:
    """Write one sentence of ours to stderr, if there is one to write to."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"leakscope: {sentence}\n")
        sys.stderr.flush()


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


def exit_codes(
    success: str, fault: str, invalid: str = "an invalid command line", *more: str
) -> str:
    """Return the end of a command's help: what its exit codes mean, from 0 on."""
    codes = enumerate((success, fault, invalid, *more))
    return "".join(["\n\b\nExit codes:\n", *(f"  {code}  {text}\n" for code, text in codes)])


def output_options(
    otherwise: str,
    forms: Sequence[str] = FORMS,
    suffixes: Mapping[str, str] = _SUFFIXES,
    text: str = "Where to write; - or nothing is stdout.",
) -> Decorator:
    """Return ``--format`` and ``--out``: ``form`` is what the first says, else what the suffix of
    the second does, else this form.
    """

    def in_force(context: click.Context, _: click.Parameter, form: str | None) -> str:
        # What isn't given is read after what is: --out is known here.
        out: Path | None = context.params.get("out")
        if form is not None or out is None or is_stdout(out) or not out.suffix:
            return form or otherwise
        by_suffix = suffixes.get(out.suffix.lower(), "")
        if by_suffix not in forms:
            known = ", ".join(suffix for suffix, name in suffixes.items() if name in forms)
            raise click.BadParameter(
                f"{out} names no form; use one of {known}, or say which with --format.",
                param_hint="'--out'",
            )
        return by_suffix

    form = click.option(
        "--format",
        "form",
        type=click.Choice(forms),
        callback=in_force,
        help=f"[default: by the suffix of --out, else {otherwise}]",
    )
    out = click.option("--out", type=PLACE, metavar="FILE", help=text)
    return lambda command: form(out(command))


def seconds_option(flag: str, default: float, text: str, *, least: float = 0.1) -> Decorator:
    """Return an option that takes a number of seconds."""
    kind = click.FloatRange(min=least)
    return click.option(flag, type=kind, default=default, show_default=True, help=text)


def run_directory_options(
    text: str = "Run directory to make [default: leakscope-runs/<time>-<script>].",
    *,
    is_required: bool = False,
) -> Decorator:
    """Return the options ``--out`` and ``--force`` of a command that makes a run."""
    out = click.option("--out", "-o", type=PLACE, metavar="DIR", required=is_required, help=text)
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

    def value(_: click.Context, __: click.Parameter, text: Any) -> Any:
        if text is None or text == ():
            return None
        if kind in (PATH, TEXT):
            return text
        try:
            return kind.read([*text] if kind.is_list else text)
        except UnreadableError as fault:
            raise click.BadParameter(f"{text!r} is not {fault}.") from None

    flags = setting.flags or (f"--{setting.name.rpartition('.')[2]}",)
    is_shown = setting.default and kind is not FLAG
    default = f" [default: {kind.shown(setting.default)}]" if is_shown else ""
    as_written: Any = PLACE if kind is PATH else click.STRING
    return click.option(
        *flags,
        setting.option,
        is_flag=kind is FLAG,
        multiple=kind.is_list,
        default=None,
        type=None if kind is FLAG else click.Choice(kind.choices) if kind.choices else as_written,
        metavar=kind.metavar,
        callback=value,
        help=f"{setting.help.removesuffix('.')}{default}." if default else setting.help,
    )


def is_stdout(out: Path | None) -> bool:
    """Return whether a text goes to stdout."""
    return out is None or out == STDOUT


def looks(out: Path | None = None) -> dict[str, Any]:
    """Return the ``width`` of a text, and whether it has ``color``."""
    color = wants_color(sys.stdout.isatty() and is_stdout(out))
    return {"width": terminal_width(100), "color": color}


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
            f"{path} can't be written ({fault.strerror or fault}); --out chooses another place."
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


def write_document(
    name: str, document: Any, form: str, out: Path | None, **renderers: Callable[[], str]
) -> None:
    """Write a document in a form; where that is a file, print its headline and where it is."""
    write_output(rendered(document, form, **renderers), out, form)
    if not is_stdout(out):
        print_text(f"leakscope: {document.headline}\nleakscope: {name} in {out}")


def rendered(document: Any, form: str, **renderers: Callable[[], str]) -> str:
    """Return a document in a form: as JSON, or as its own renderer of that form writes it."""
    from leakscope.report import render_json

    return render_json(document) if form == "json" else renderers[form]()


def print_text(text: str) -> None:
    """Print text for people to stdout, in signs that it can hold."""
    from leakscope.report.text import encodable

    sys.stdout.write(encodable(text if text.endswith("\n") else text + "\n", sys.stdout.encoding))
    sys.stdout.flush()


def to_process_number(text: str) -> int:
    """Return the number of a process: a whole one above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise click.BadParameter(f"{text!r} is not a process number.")
    return int(text)


class NoDocumentError(Exception):
    """A file is no such document; the message is the end of a sentence about it."""


class _Head(msgspec.Struct):
    schema_version: int
    headline: Any = None
    """What a report, a comparison or a check says; a baseline says nothing."""


def read_document(path: Path, kind: type[D], newest: int, *, has_headline: bool) -> D:
    """Return what leakscope wrote as JSON.

    Raises:
        NewerSchemaError: a newer leakscope than this one did.
        NoDocumentError: it is another document or none, or can't be read.

    """
    try:
        data = path.read_bytes()
        head = msgspec.json.decode(data, type=_Head)
        if head.headline is not None and not has_headline:
            raise NoDocumentError("it is a report, a comparison or a check")
        if head.schema_version > newest:
            raise NewerSchemaError(f"{path} was written by a newer leakscope; update this one.")
        return msgspec.json.decode(data, type=kind)
    except FileNotFoundError:
        why = "it does not exist"
    except OSError as fault:
        why = f"it can't be read ({fault.strerror or fault})"
    except msgspec.ValidationError:
        why = "it is JSON, but not as leakscope writes it"
    except (msgspec.MsgspecError, ValueError, RecursionError):
        why = "it is not JSON, or was cut off"
    raise NoDocumentError(why)
