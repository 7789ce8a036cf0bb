"""Where our options end and the user's program begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import click

from leakscope.instrument.program import STDIN, Program, ProgramKind

_PROGRAM_OPTIONS: dict[str, ProgramKind] = {"-m": "module", "-c": "code"}


class ProgramCommand(click.Command):
    """A command whose options come before a program; what follows the program is the program's.

    ``ctx.obj`` is the :class:`Program`.
    """

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the usage line as Python's own help words it."""
        return ["[OPTIONS]", "SCRIPT | -m MODULE | -c CODE | -", "[ARGS]..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse our options and put the program into the context."""
        own, ctx.obj = split_command_line(args, self._options_with_value())
        rest = super().parse_args(ctx, own)
        if ctx.obj is None:
            raise click.UsageError("Name a script to run, or -m MODULE, or -c CODE.", ctx)
        return rest

    def _options_with_value(self) -> set[str]:
        options = [p for p in self.params if isinstance(p, click.Option) and not p.is_flag]
        return {name for option in options for name in option.opts}


def split_command_line(
    args: Sequence[str], with_value: Collection[str]
) -> tuple[list[str], Program | None]:
    """Return our own arguments and the program; None where no program is named.

    The program begins at the first word that is no option of ours, as with ``python`` itself.
    """
    own: list[str] = []
    words = list(args)
    while words:
        word = words.pop(0)
        if word == "--":
            return own, _program(words)
        if word[:2] in _PROGRAM_OPTIONS or not word.startswith("-") or word == "-":
            return own, _program([word, *words])
        own.append(word)
        if word in with_value and words:
            own.append(words.pop(0))
    return own, None


def _program(words: list[str]) -> Program | None:
    if not words:
        return None
    first, *rest = words
    kind = _PROGRAM_OPTIONS.get(first[:2])
    if kind is None:
        return Program("stdin" if first == STDIN else "script", first, tuple(rest))
    if first[2:]:
        return Program(kind, first[2:], tuple(rest))
    if not rest:
        raise click.UsageError(f"Argument expected for the {first} option.")
    return Program(kind, rest[0], tuple(rest[1:]))
