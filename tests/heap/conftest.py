from __future__ import annotations

from pathlib import Path

import pytest
from heap_programs import ALONE, RunProgram, program_runner

from leakscope.heap import graph


@pytest.fixture(autouse=True)
def ask_for_graphs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget a deep graph that another test made: a process that met one asks no more."""
    monkeypatch.setattr(graph, "_met_deep_graph", False)


@pytest.fixture
def run_program(tmp_path: Path) -> RunProgram:
    return program_runner(tmp_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to ``test_heap_alone.py`` what must not share a process with other files."""
    others = [item for item in items if item.path.name != ALONE]
    if others and len(others) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item.path.name == ALONE])
        items[:] = others
