"""What commands print where stdout or stderr can't hold our signs, or shows no colours."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import MIB, report_with

from leakscope.cli.output import print_text, wants_color, write_output
from leakscope.cli.report import print_summary
from leakscope.report import render_json, render_text


class Narrow(io.TextIOWrapper):
    """A stream of ASCII that takes nothing else."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="ascii", errors="strict")

    def written(self) -> bytes:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue()


@contextlib.contextmanager
def narrow_streams() -> Iterator[Narrow]:
    stream = Narrow()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield stream


def test_text_is_written_in_plain_signs() -> None:
    with narrow_streams() as stream:
        write_output(render_text(report_with(4.0 * MIB)), None)
        print_text("✓ done")
    written = stream.written().decode("ascii")
    assert written.startswith("x Leak - ")
    assert written.endswith("v done\n")


def test_the_summary_is_written_in_plain_signs(tmp_path: Path) -> None:
    with narrow_streams() as stream:
        print_summary(report_with(4.0 * MIB), tmp_path, None)
    assert stream.written().startswith(b"x Leak - ")


def test_what_programs_read_stays_as_it_is() -> None:
    text = render_json(report_with(4.0 * MIB)).replace('"headline": "', '"headline": "…', 1)
    with narrow_streams() as stream:
        write_output(text, None, "json")
    assert json.loads(stream.written())["headline"].startswith("…")


def test_markdown_can_be_printed_too() -> None:
    with narrow_streams() as stream:
        write_output("a → b", None, "markdown")
    assert stream.written() == b"a -> b\n"


@pytest.mark.parametrize(
    ("is_terminal", "environment", "colours"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    is_terminal: bool,
    environment: dict[str, str],
    colours: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wants_color(is_terminal) == colours
