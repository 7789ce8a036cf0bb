"""Collections that take ever longer, and calls of the collector, through `leakscope run`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from warm import Warm

PROGRAM = Path(__file__).parent / "programs" / "collections_grow.py"
HEALTHY = PROGRAM.with_name("healthy_collections.py")
RUN = ("-m", "leakscope", "run", "--quiet", "--out", "run")


def findings(commands: Warm, folder: Path, kept: str) -> dict[str, dict[str, Any]]:
    """Return what is found in a run of the program, by kind."""
    output = report_of(commands, folder, PROGRAM, kept)
    return {item["kind"]: item for item in output["findings"]}


def report_of(commands: Warm, folder: Path, program: Path, kept: str) -> dict[str, Any]:
    commands.run([*RUN, str(program), kept], folder, timeout_s=280).well()
    reported: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
    return reported


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["circles", "dataset", "registered", "callbacks"])
def test_many_collections_that_keep_nothing_accuse_nobody(
    leakscope_commands: Warm, tmp_path: Path, kind: str
) -> None:
    reported = report_of(leakscope_commands, tmp_path, HEALTHY, kind)
    assert (reported["verdict"], reported["culprits"]) == ("clean", []), reported["headline"]
    kinds = {one["kind"]: one["severity"] for one in reported["findings"]}
    assert kinds.keys() <= {"collector_time", "cleaning_calls"}, reported["findings"]
    assert set(kinds.values()) <= {"note"}


@pytest.mark.slow
def test_ever_more_objects_make_collections_longer(
    leakscope_commands: Warm, tmp_path: Path
) -> None:
    found = findings(leakscope_commands, tmp_path, "objects")["collector_time"]
    assert found["severity"] == "note"
    assert "`index` has 2,400,000 items" in found["text"]


@pytest.mark.slow
def test_a_program_that_keeps_few_objects_gets_no_word_of_its_collections(
    leakscope_commands: Warm, tmp_path: Path
) -> None:
    assert (
        not {"collector_time", "cleaning_calls"}
        & findings(leakscope_commands, tmp_path, "nothing").keys()
    )


@pytest.mark.slow
def test_calls_that_free_much_are_reported_with_what_they_free(
    leakscope_commands: Warm, tmp_path: Path
) -> None:
    found = findings(leakscope_commands, tmp_path, "collects")["cleaning_calls"]
    assert "is called 150 times by" in found["text"]
    assert "frees 3.8 MiB" in found["text"]
    assert found["remedy"]["title"] == "Break the circles, or call it less often"
