"""Registries of the interpreter that only C code refers to, known by type and by the call."""

from __future__ import annotations

import pytest
from synthetic_runs import MIB, Program, Thing

from leakscope.analysis import analyse
from leakscope.model.census import RootKind
from leakscope.model.report import Finding

LOOP = "import atexit, codecs, contextvars, sys\nfor epoch in range(9):\n    "


def found_in(text: str, type_name: str) -> Finding:
    """Return what is found in a program of which native code keeps ever more of a type."""
    held = Thing(
        f"<held by native code>·{type_name}", lambda s: s.epochs_done * 4 * MIB, "object",
        type_name, root=RootKind.NATIVE, user=False, count=lambda s: s.epochs_done,
    )  # fmt: skip
    run = Program(epochs=10, full_every=1).plant(held).build()
    run.main.sources["/project/train.py"] = text
    return next(f for f in analyse(run).findings if f.kind == "native_held")


@pytest.mark.parametrize(
    ("call", "type_name", "title"),
    [
        ("sys.addaudithook(hook)", "function", "Audit hooks pile up"),
        ("codecs.register(search)", "list", "Search functions of codecs pile up"),
        ("variable.set(batch)", "_contextvars.Context", "Values of context variables pile up"),
        ("atexit.register(save)", "method", "Calls pile up that are to be made when the program"),
    ],
)
def test_the_registry_is_named_with_the_line_that_fills_it(
    call: str, type_name: str, title: str
) -> None:
    found = found_in(f"{LOOP}{call}\n", type_name)
    assert found.title.startswith(title)
    assert found.fed_at == ["train.py:3"]
    assert "train.py:3" in found.text


@pytest.mark.parametrize(
    ("text", "type_name"),
    [
        pytest.param("import sys\nsys.addaudithook(hook)\n", "function", id="registered once"),
        pytest.param(f"{LOOP}sys.addaudithook(hook)\n", "dict", id="another type"),
        pytest.param(f"{LOOP}settings.register(hook)\n", "list", id="another owner"),
        pytest.param(f"{LOOP}settings.set(value)\n", "list", id="a setter of something else"),
    ],
)
def test_what_only_looks_like_a_registration_is_not_blamed(text: str, type_name: str) -> None:
    found = found_in(text, type_name)
    assert found.title == f"{type_name} objects that only native code holds"
    assert found.fed_at == []
