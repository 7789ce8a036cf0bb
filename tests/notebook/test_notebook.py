"""The magics and what they show, in real shells of IPython's."""

from __future__ import annotations

import ast
import json
import linecache
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leakscope.analysis.source import SourceIndex
from leakscope.analysis.source.program import Cells
from leakscope.capture.sites import SourceTexts
from leakscope.model.census import CensusRow, Owner, RootKind, Site
from leakscope.notebook import run
from leakscope.recording import open_run

pytest.importorskip("IPython", reason="needs IPython: pip install ipython")
ROOT = Path(__file__).parents[2]
SHELL = Path(__file__).parent / "shell.py"
PAGE = (ROOT / "docs" / "notebooks.md").read_text()
SNIPPETS = [code.rstrip("\n") for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)]
HISTORY = 'leakscope.heap.snapshot().row("Out").name'
LOAD, LEAK, RECORD, *_ = SNIPPETS
CLEAN = LEAK.replace("        kept.append(outputs.detach().repeat(1, 8))", "")


def run_cells(folder: Path, *cells: str, how: str = "") -> list[dict[str, Any]]:
    """Return what each cell displayed."""
    reported = folder / "cells.json"
    reported.write_text(json.dumps(cells))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
    environment.pop("LEAKSCOPE_STRICT", None)
    ended = subprocess.run(
        [sys.executable, str(SHELL), str(reported), how],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(reported.read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def answers(folder: Path) -> list[dict[str, Any]]:
    """Return what the cells of the page display, and a status after them."""
    answers = run_cells(folder, *SNIPPETS, "%leakscope", HISTORY)
    assert [answer["error"] for answer in answers] == [None] * len(answers), answers[2]["printed"]
    return answers


@pytest.mark.slow
class TestThePage:
    def test_the_leak_is_shown_below_its_cell(self, answers: list[dict[str, Any]]) -> None:
        printed = answers[2]["printed"]
        leak = re.search(r"✗ Leak · Memory leaks: kept grows by (\d+) KiB per step", printed)
        assert leak is not None
        assert int(leak[1]) == pytest.approx(128, abs=2)
        assert "KiB per step (In [2]:14)." in printed
        assert "In [2]: line 14" in printed
        assert re.search(r"▶ 14\s+kept\.append\(outputs", printed)

    def test_the_recording_has_no_fault_and_ends_well(
        self, answers: list[dict[str, Any]], folder: Path
    ) -> None:
        main = open_run(folder / "first").main
        assert not main.errors
        assert main.end is not None
        assert main.end.status == "completed"
        assert set(main.titles.values()) >= {"In [2]", "In [3]"}

    def test_a_culprit_shows_itself(self, answers: list[dict[str, Any]]) -> None:
        assert answers[3]["html"].startswith('<div class="leakscope">')
        assert "In [2]: line 14" in answers[3]["html"]
        assert answers[3]["text"].startswith("kept · kept (list) grows by")

    def test_what_was_only_displayed_is_the_notebooks(self, answers: list[dict[str, Any]]) -> None:
        difference = " ".join(answers[5]["text"].split())
        assert "Out is the notebook's output history." in difference
        assert "End the line with a semicolon" in difference
        assert "__main__·Out" in answers[5]["html"]
        assert "the notebook's output history Out" in answers[7]["text"]
        assert "_oh" not in difference
        assert "history_manager" not in difference

    def test_the_line_magic_shows_the_last_run(self, answers: list[dict[str, Any]]) -> None:
        assert "kept grows by" in answers[6]["text"]

    def test_the_example_has_the_cells_of_the_page(self) -> None:
        notebook = json.loads((ROOT / "examples" / "in_a_notebook" / "leak.ipynb").read_text())
        code = [
            "".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"
        ]
        assert code == [LOAD, LEAK, RECORD]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "verdict"), [("leak", "leak"), ("leak_fixed", "clean")])
def test_a_notebook_runs_without_a_server(form: str, verdict: str, tmp_path: Path) -> None:
    notebook = ROOT / "examples" / "in_a_notebook" / f"{form}.ipynb"
    runner = ROOT / "examples" / "run_notebook.py"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython")}
    ended = subprocess.run(
        [sys.executable, str(runner), str(notebook), str(tmp_path / "run")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stderr
    assert run(tmp_path / "run").verdict == verdict


@pytest.mark.slow
def test_the_cells_that_displayed_most_are_named(tmp_path: Path) -> None:
    cells = ["import numpy, leakscope", "numpy.ones(100_000)", "numpy.ones(300_000)", "[*'ab']"]
    answers = run_cells(tmp_path, *cells, HISTORY.replace(".name", ".holds[0].detail"))
    assert answers[-1]["text"].strip("'").endswith(", Out[3], Out[2]")


@pytest.mark.slow
def test_what_a_library_allocates_for_a_cell_of_a_kernel_is_the_cells(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    *_, reported = run_cells(
        tmp_path,
        "import json\nfrom leakscope.probes.allocations import AllocationWindow\n"
        "window = AllocationWindow()",
        "window.open();",
        "number = 1000\nkept = [json.loads('[1.5, 2.5]') for _ in range(number)]",
        "sites, _ = window.close(top=1)\n(sites[0].file.split('/')[-2], sites[0].line)",
        how="as-files",
    )
    assert re.fullmatch(r"\('ipykernel_\d+', 2\)", reported["text"]), reported


@pytest.mark.slow
def test_a_clean_cell_is_no_leak_and_outputs_are_not_blamed(tmp_path: Path) -> None:
    displays = "torch.randn(300, 300)"
    answers = run_cells(tmp_path, LOAD, CLEAN, displays, RECORD, displays, "%leakscope first")
    assert "✗" not in answers[3]["printed"]
    answer = run(tmp_path / "first")
    assert answer.verdict != "leak"
    assert not answer.culprits
    assert "✗" not in answers[5]["text"]


@pytest.mark.slow
def test_errors_of_cells_and_of_the_magic(tmp_path: Path) -> None:
    raising = "%%leakscope --out raised\nfor _ in range(3):\n    1 / 0"
    answers = run_cells(
        tmp_path,
        LOAD,
        "%leakscope",
        raising,
        "%leakscope nowhere",
        "%%leakscope --wrong\n1",
        "%%leakscope --budget much\n1",
        "%%leakscope --out value\nx = 20\nx + 1",
    )
    names = [answer["error"] for answer in answers]
    assert names[:2] == [None, None]
    assert names[2] == "ZeroDivisionError"
    assert names[3:6] == ["UsageError"] * 3
    assert names[6] is None
    assert "nothing is recorded" in answers[1]["printed"]
    assert "Cell In[3], line 3" in answers[2]["printed"]
    assert "21" in answers[6]["printed"]
    end = open_run(tmp_path / "raised").main.end
    assert end is not None
    assert end.exception.startswith("ZeroDivisionError")


@pytest.mark.slow
def test_a_semicolon_silences_the_last_value(tmp_path: Path) -> None:
    silent, shown = (
        "%%leakscope --out a\n'told' + 'me';  # no",
        "%%leakscope --out b\n'told' + 'me'",
    )
    answers = run_cells(tmp_path, LOAD, silent, "[*Out]", shown, "sorted(Out)")
    assert [answer["error"] for answer in answers] == [None] * 5
    assert "toldme" not in answers[1]["printed"]
    assert "toldme" in answers[3]["printed"]
    assert ("2" in answers[2]["printed"], "4" in answers[4]["printed"]) == (False, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "waits", ["await asyncio.sleep(0)", "async with asyncio.Lock():\n    pass"]
)
def test_a_cell_that_waits_outside_a_function_is_refused_in_a_sentence(
    tmp_path: Path, waits: str
) -> None:
    answers = run_cells(tmp_path, LOAD, f"%%leakscope --out waits\nimport asyncio\n{waits}")
    assert answers[1]["error"] == "UsageError"
    assert "with leakscope.profile():" in answers[1]["printed"]
    assert "Traceback" not in answers[1]["printed"]
    assert not (tmp_path / "waits").exists()
    around = f"import asyncio, leakscope\nwith leakscope.profile('waits', quiet=True):\n    {waits}"
    (ended,) = run_cells(tmp_path, around.replace("\n    pass", " pass"))
    assert ended["error"] is None
    assert (tmp_path / "waits").exists()


class TestCellsAsOneProgram:
    SOURCES = {  # noqa: RUF012
        "/tmp/ipykernel_1/11.py": "kept = []\n",
        "/tmp/ipykernel_1/12.py": "def feed(x):\n    kept.append(x)\n",
        "/tmp/ipykernel_1/13.py": "%%broken\nkept.append(1)\n",
        "/tmp/ipykernel_1/14.py": "# mended\ndef feed(x):\n    kept.append(x + 1)\n",
    }
    TITLES = {f"/tmp/ipykernel_1/1{i}.py": f"In [{i}]" for i in range(1, 5)}  # noqa: RUF012

    def test_lines_are_named_by_their_cells(self) -> None:
        files = SourceIndex(self.SOURCES, "/home", self.TITLES).files
        path = files.find("/tmp/ipykernel_1/14.py")
        assert path is not None
        line = files.line_in_text("/tmp/ipykernel_1/14.py", 3)
        assert files.lines(path)[line - 1] == "    kept.append(x + 1)"
        assert files.location(path, line) == "In [4]:3"
        assert files.location("/tmp/ipykernel_1/12.py", 2) == "In [2]:2"
        excerpt = files.excerpt(path, [line])
        assert excerpt is not None
        assert (excerpt.file, excerpt.first_line, excerpt.marked) == ("In [4]", 1, [3])
        assert excerpt.lines == ["# mended", "def feed(x):", "    kept.append(x + 1)"]

    def test_what_was_redefined_or_cannot_be_read_counts_no_more(self) -> None:
        text = Cells(self.SOURCES, self.TITLES).text
        assert "kept.append(x + 1)" in text
        assert "kept.append(x)\n" not in text
        assert "kept.append(1)" not in text

    def test_the_order_is_that_of_the_numbers(self) -> None:
        titles = self.TITLES | {"/tmp/ipykernel_1/12.py": "In [9]"}
        text = Cells(self.SOURCES, titles).text
        assert "kept.append(x)\n" in text
        assert "kept.append(x + 1)" not in text

    def test_files_next_to_cells_are_files(self) -> None:
        files = SourceIndex(
            {**self.SOURCES, "/home/model.py": "import torch\n"}, "/home", self.TITLES
        ).files
        assert files.location("/home/model.py", 1) == "model.py:1"
        assert files.find("/home/model.py") == "/home/model.py"

    def test_the_cell_in_which_the_contents_were_allocated_feeds(self) -> None:
        old, new = "/tmp/ipykernel_1/11.py", "/tmp/ipykernel_1/12.py"
        cells = {
            old: "kept = []\ndef old():\n    kept.append(1)\n",
            new: "def feed(x):\n    y = x\n    kept.append(y.sum())\n",
        }
        row = CensusRow(
            path="__main__·kept",
            name="kept",
            root=RootKind.GLOBAL,
            owner=Owner(kind="module", name="__main__", variable="kept"),
            type="list",
            kind="list",
            host_bytes=1 << 20,
            allocated_at=[Site(file=new, line=3, bytes=1 << 20, count=9)],
        )
        index = SourceIndex(cells, "/home", self.TITLES)
        fed = [index.location(item.file, item.line) for item in index.feeding(row.owner, row)]
        assert fed == ["In [2]:3", "In [1]:3"]


def test_cells_are_recorded_next_to_any_number_of_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("leakscope.capture.sites.MOST_FILES", 2)
    monkeypatch.setattr("leakscope.capture.sites.cells_of_shell", lambda: {"cell": 7})
    monkeypatch.setitem(linecache.cache, "cell", (1, None, ["x = 1\n"], "cell"))
    files = [tmp_path / f"{number}.py" for number in range(3)]
    for file in files:
        file.write_text("y = 2\n")
    sources = SourceTexts()
    assert len([*sources.new(map(str, files))]) == 2
    assert [record.title for record in sources.new_cells()] == ["In [7]"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["", "as-files"])
def test_of_two_cells_the_one_that_fed_is_named(tmp_path: Path, how: str) -> None:
    if how:
        pytest.importorskip("ipykernel")
    feeds = """\
import torch
kept = []
def unused():
    kept.append(torch.ones(1))
"""
    model = """\
class Model(torch.nn.Linear):
    def forward(self, x):
        kept.append(x.repeat(1, 8))
        return super().forward(x)
model = Model(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(64, 64)).square().mean().backward()
    optimizer.step()
"""
    *_, reported = run_cells(
        tmp_path,
        LOAD,
        feeds,
        model,
        "%%leakscope --out first\nfor _ in range(120):\n    step()",
        "import leakscope; leakscope.notebook.run('first').report.culprits[0].fed_at",
        how=how,
    )
    assert ast.literal_eval(reported["text"])[0] == "In [3]:3"


def test_without_a_shell_there_are_no_cells() -> None:
    assert not [*SourceTexts().new_cells()]
