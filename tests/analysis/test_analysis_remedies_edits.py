"""Edits to source text: the diff applies and parses, or there is none."""

from __future__ import annotations

import ast
import subprocess

import pytest

from leakscope.analysis.remedies.context import Edits
from leakscope.analysis.source import SourceIndex


def edits(text: str, path: str = "/p/train.py") -> tuple[Edits, ast.Module]:
    return Edits(SourceIndex({path: text}, "/p"), path), ast.parse(text)


def applied(diff: str, text: str, folder) -> str:
    file = folder / "train.py"
    file.write_bytes(text.encode())
    command = ["patch", "-p1", "-s", "--binary", "-d", str(folder)]
    subprocess.run(command, input=diff.encode(), check=True)
    return file.read_bytes().decode()


@pytest.mark.parametrize(
    "text",
    [
        "total = 0\ntotal += loss\nprint(total)\n",
        "total = 0\ntotal += loss",
        "total = 0\r\ntotal += loss\r\nprint(total)\r\n",
        "# Größe ✓\ntotal = 'ä✓'; total += loss\n",
        "if x:\n\ttotal += loss\n\tprint(total)\n",
    ],
)
def test_a_replacement_touches_its_node_alone(text: str, tmp_path) -> None:
    change, tree = edits(text)
    node = next(n for n in ast.walk(tree) if isinstance(n, ast.AugAssign))
    diff = change.call_method(node.value, "item()").diff()
    assert diff is not None
    assert applied(diff, text, tmp_path) == text.replace("+= loss", "+= loss.item()")


def test_an_operation_is_wrapped_before_a_method_is_called_on_it(tmp_path) -> None:
    text = "total += (a + b) * (c + d)\n"
    change, tree = edits(text)
    diff = change.call_method(tree.body[0].value, "item()").diff()  # type: ignore[attr-defined]
    assert diff is not None
    assert applied(diff, text, tmp_path) == "total += ((a + b) * (c + d)).item()\n"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("def f():\n    x = 1\n", "def f():\n    x = 1\n    y()\n"),
        ("def f():\n\tx = 1  # why", "def f():\n\tx = 1  # why\n\ty()\n"),
        ("def f():\r\n  x = 1\r\n  z()\r\n", "def f():\r\n  x = 1\r\n  y()\r\n  z()\r\n"),
    ],
)
def test_a_line_is_inserted_with_the_indentation_of_its_neighbour(text, after, tmp_path) -> None:
    change, tree = edits(text)
    diff = change.insert_after(tree.body[0].body[0], "y()").diff()  # type: ignore[attr-defined]
    assert diff is not None
    assert applied(diff, text, tmp_path) == after


@pytest.mark.parametrize("text", ["if x: y = 1\n", "x = 1; y = 2\n", "for i in x: y(i)\n"])
def test_nothing_is_inserted_next_to_a_statement_that_shares_its_line(text: str) -> None:
    change, tree = edits(text)
    inner = getattr(tree.body[0], "body", tree.body)[0]
    assert change.insert_after(inner, "z()").diff() is None or "if" not in text
    change, tree = edits(text)
    last = getattr(tree.body[0], "body", tree.body)[-1]
    assert change.insert_before(last, "z()").diff() is None


def test_a_result_that_does_not_parse_is_no_diff() -> None:
    change, tree = edits("x = 1\n")
    assert change.replace(tree.body[0], "x = (").diff() is None


def test_overlapping_edits_are_no_diff() -> None:
    change, tree = edits("x = a + b\n")
    value = tree.body[0].value  # type: ignore[attr-defined]
    assert change.replace(value, "c").replace(value.left, "d").diff() is None


def test_an_import_goes_below_the_first_run_of_imports(tmp_path) -> None:
    text = '"""Doc."""\nimport os\nimport sys\n\nx = 1\nimport re\n'
    change, _ = edits(text)
    diff = change.insert_import("from functools import lru_cache").diff()
    assert diff is not None
    assert applied(diff, text, tmp_path).splitlines()[3] == "from functools import lru_cache"


def test_an_import_that_is_there_is_not_repeated() -> None:
    change, _ = edits("from functools import lru_cache\nx = 1\n")
    assert change.insert_import("from functools import lru_cache").diff() is None


def test_the_diff_names_the_file_relative_to_the_project() -> None:
    change, tree = edits("x = 1\n", "/p/pkg/train.py")
    diff = change.replace(tree.body[0], "x = 2").diff()
    assert diff is not None
    assert diff.startswith("--- a/pkg/train.py\n+++ b/pkg/train.py\n")


def test_inserts_at_one_place_keep_their_order(tmp_path) -> None:
    text = "x = 1\n"
    change, tree = edits(text)
    diff = change.insert_after(tree.body[0], "a()").insert_after(tree.body[0], "b()").diff()
    assert diff is not None
    assert applied(diff, text, tmp_path) == "x = 1\na()\nb()\n"
