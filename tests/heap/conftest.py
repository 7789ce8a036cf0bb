from __future__ import annotations

from pathlib import Path

import pytest
import reference_oracle
from heap_programs import ALONE, RunProgram, program_runner

from leakscope.heap import graph

FALLBACK = "test_heap_fallback.py"


@pytest.fixture(autouse=True)
def ask_for_graphs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget a deep graph that another test made: a process that met one asks no more."""
    monkeypatch.setattr(graph, "_has_deep_graph", False)


@pytest.fixture(autouse=True)
def oracle(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine ``reference`` answer all that the native one does; not where it is tested."""
    if request.path.name != FALLBACK:
        monkeypatch.setattr(graph, "reference", reference_oracle)


@pytest.fixture
def run_program(tmp_path: Path) -> RunProgram:
    return program_runner(tmp_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to ``test_heap_alone.py`` what must not share a process with other files."""
    others = [item for item in items if item.path.name != ALONE]
    if others and len(others) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item.path.name == ALONE])
        items[:] = others
