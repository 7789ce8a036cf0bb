"""Memory that no Python object holds: leaks are reported with library and line, twins are not.

The native library is built from `native_programs/decoder.c` on first use.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from warm import Warm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]

PROGRAMS = Path(__file__).parent / "native_programs"
SWITCHES = {
    "extension_leaks": "CLOSES = False",
    "kept_decoders": "KEEPS = True",
    "ctypes_malloc": "FREES = False",
    "thread_arenas": "FREES = False",
    "shared_segments": "UNLINKS = False",
}
"""What makes each program leak; turned, it is the fixed twin."""


def report_of(name: str, folder: Path, commands: Warm, *, fixed: bool = False) -> dict[str, Any]:
    text = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    if fixed:
        switch = SWITCHES[name]
        assert switch in text
        words = {"False": "True", "True": "False"}
        variable, _, value = switch.rpartition(" ")
        text = text.replace(switch, f"{variable} {words[value]}")
    (folder / "train.py").write_text(text, encoding="utf-8")
    for each in ("decoder.py", "decoder.c"):
        shutil.copy(PROGRAMS / each, folder)
    commands.run(["-m", "leakscope", "run", "--quiet", "--out", "run", "train.py"], folder).well()
    report: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
    return report


def line_of(name: str, text: str) -> str:
    lines = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8").splitlines()
    return f"train.py:{next(n for n, line in enumerate(lines, 1) if text in line)}"


def first(report: dict[str, Any]) -> dict[str, Any]:
    """Return what a reader reads first: the worst culprit, or else finding."""
    serious = [c for c in report["culprits"] if c["severity"] != "note"]
    leading: dict[str, Any] = [*serious, *report["findings"]][0]
    return leading


@pytest.mark.parametrize(
    ("name", "library", "call"),
    [
        ("extension_leaks", "libdecoder.so", "decoder.open_stream("),
        ("ctypes_malloc", "_ctypes", "libc.malloc(size)"),
        ("thread_arenas", "libdecoder.so", "decoder.scratch("),
    ],
)
def test_a_native_leak_is_reported_with_its_library_and_line(
    name: str, library: str, call: str, tmp_path: Path, leakscope_commands: Warm
) -> None:
    report = report_of(name, tmp_path, leakscope_commands)
    assert report["verdict"] == "leak"
    found = first(report)
    assert found["kind"] == "unexplained"
    assert library in found["title"]
    assert found["fed_at"][0] == line_of(name, call)
    entries = report["ledgers"][0]["entries"]
    native = sum(entry["bytes"] for entry in entries if entry["kind"] == "native")
    assert native >= 0.5 * report["ledgers"][0]["total_bytes"]


def test_arenas_of_all_threads_are_one_kind_of_mapping(
    tmp_path: Path, leakscope_commands: Warm
) -> None:
    report = report_of("thread_arenas", tmp_path, leakscope_commands)
    grown = report["mappings"][0]
    assert (grown["kind"], grown["verdict"]) == ("mapped_arenas", "growing")
    assert "in thread arenas of glibc" in first(report)["text"]


def test_decoders_that_a_list_keeps_are_one_culprit_with_what_their_library_holds(
    tmp_path: Path, leakscope_commands: Warm
) -> None:
    report = report_of("kept_decoders", tmp_path, leakscope_commands)
    assert report["verdict"] == "leak"
    culprit = first(report)
    assert culprit["name"] == "Frames.readers"
    assert culprit["fed_at"] == [line_of("kept_decoders", "self.readers.append")]
    assert culprit["native"]["library"] == "libdecoder.so"
    assert culprit["native"]["allocated_at"] == line_of("kept_decoders", "open_stream")
    assert 200_000 < culprit["bytes_per_unit"] < 400_000
    assert not [f for f in report["findings"] if f["kind"] == "unexplained"]


def test_segments_of_shared_memory_are_reported_with_the_line_that_makes_them(
    tmp_path: Path, leakscope_commands: Warm
) -> None:
    report = report_of("shared_segments", tmp_path, leakscope_commands)
    assert report["verdict"] == "leak"
    found = first(report)
    assert found["kind"] == "shared_memory"
    assert found["fed_at"] == [line_of("shared_segments", "SharedMemory(create=True")]


@pytest.mark.parametrize("name", SWITCHES)
def test_the_fixed_twin_is_accused_of_nothing(
    name: str, tmp_path: Path, leakscope_commands: Warm
) -> None:
    report = report_of(name, tmp_path, leakscope_commands, fixed=True)
    assert report["verdict"] == "clean", report["headline"]


def test_a_mapped_table_that_is_read_is_page_cache_and_no_leak(
    tmp_path: Path, leakscope_commands: Warm
) -> None:
    report = report_of("mapped_table", tmp_path, leakscope_commands)
    assert report["verdict"] == "clean", report["headline"]
    cleared = next(c for c in report["cleared"] if c["name"] == "table.bin")
    assert "page cache" in cleared["reason"]
