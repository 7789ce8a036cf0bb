"""What a user sees when a command fails: one sentence on stderr and an exit code."""

from __future__ import annotations

import difflib
import os
import sys
import traceback

import click

from leakscope.model.errors import EXIT_ERROR, LeakscopeError

ALIKE = 0.7
"""From this likeness on a word is taken for another one mistyped."""
_INTERRUPTED = 130


def say(sentence: str) -> None:
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
        meant = [one for one in fault.possibilities or () if _is_meant(fault, one)]
        fault = click.NoSuchOption(fault.option_name, possibilities=meant, ctx=fault.ctx)
    if isinstance(fault, click.ClickException):
        fault.show()
        return fault.exit_code
    if isinstance(fault, (click.Abort, KeyboardInterrupt)):
        say("interrupted.")
        return _INTERRUPTED
    if isinstance(fault, BrokenPipeError):
        # The reader of our output went away; the interpreter's last flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    say(explain(fault))
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
