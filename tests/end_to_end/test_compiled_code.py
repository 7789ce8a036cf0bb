"""Programs that have functions compiled again and again, and look-alikes that end to do so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from snippet_recorder import SnippetRecorder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PRELUDE = """
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """
def train():
    for epoch in range(8):
        for step in range({steps}):
            number = {steps} * epoch + step
            x = torch.randn({rows}, 64)
            loss = model(x).pow(2).mean() + {term}
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

train()
"""
MADE_IN_A_STEP = """
def made(number, x):
    names = {}
    exec("def penalty(x): return (x * 3).abs().mean()", names)
    return torch.compile(names["penalty"], backend="eager")(x)
"""
GUARDED_BY_A_NAME = """
{limit}
@torch.compile(backend="eager")
def criterion(x, stage):
    loss = x.abs().mean()
    if stage.endswith("0"):
        loss = loss + x.square().mean()
    for k in range(8):
        loss = loss + x[:, k::8].abs().mean()
    return loss
"""
RAISED = "torch._dynamo.config.recompile_limit = torch._dynamo.config.cache_size_limit = 1000\n"
RAISED += "torch._dynamo.config.accumulated_recompile_limit = 1000"
KEPT_BY_THE_BACKEND = """
def backend(graph, inputs):
    weight = torch.ones(512, 512)
    return lambda *inputs: (graph.forward(*inputs), weight)[0]

@torch.compile(backend=backend)
def criterion(x, stage):
    return x.abs().mean() * (2 if stage == "1" else (3 if stage == "2" else 1))
"""
OF_ANY_SIZE = """
@torch.compile(backend="eager")
def criterion(x):
    return x.abs().mean()
"""


def reported(
    recorder: SnippetRecorder,
    folder: Path,
    defined: str,
    term: str,
    rows: str = "32",
    steps: str = "20",
) -> dict[str, Any]:
    loop = LOOP.format(term=term, rows=rows, steps=steps)
    (folder / "train.py").write_text(PRELUDE + defined + loop)
    return recorder.report(folder)


def line_of(folder: Path, text: str) -> str:
    lines = (folder / "train.py").read_text().splitlines()
    return f"train.py:{next(n for n, line in enumerate(lines, 1) if text in line)}"


def test_a_function_that_is_made_and_compiled_in_every_second_step_leaks(
    recorder: SnippetRecorder, tmp_path: Path
) -> None:
    report = reported(recorder, tmp_path, MADE_IN_A_STEP, "(made(number, x) if number % 2 else 0)")
    assert report["verdict"] == "leak", report["headline"]
    culprit = report["culprits"][0]
    assert culprit["name"] == "compiled code of penalty"
    assert culprit["fed_at"] == [line_of(tmp_path, '["penalty"]')]
    assert "nothing bounds them" in culprit["sentence"]
    assert culprit["remedy"]["title"] == "Compile it once, before the loop"
    (function,) = report["compiled_code"]["functions"]
    assert function["codes"] == function["entries"] == 80
    assert "unexplained" not in [finding["kind"] for finding in report["findings"]]


def test_a_function_that_is_compiled_for_each_name_leaks_where_the_limit_was_raised(
    recorder: SnippetRecorder, tmp_path: Path
) -> None:
    defined = GUARDED_BY_A_NAME.format(limit=RAISED)
    report = reported(recorder, tmp_path, defined, 'criterion(x, f"{epoch}-{step // 4}")')
    assert report["verdict"] == "leak", report["headline"]
    culprit = report["culprits"][0]
    assert culprit["name"] == "compiled code of criterion"
    assert culprit["fed_at"] == [line_of(tmp_path, "+ criterion(")]
    assert "40 of 1,000 entries" in culprit["sentence"]
    assert "Python value" in culprit["remedy"]["text"]
    (function,) = report["compiled_code"]["functions"]
    assert (function["entries"], function["recompilations"]) == (40, 39)
    assert function["reasons"][0]["cause"] == "value"
    assert "stage" in function["reasons"][0]["guard"]
    assert function["bytes"] > 40 * 10_000


def test_the_same_function_with_the_limit_as_it_is_ends_there_and_is_no_leak(
    recorder: SnippetRecorder, tmp_path: Path
) -> None:
    defined = GUARDED_BY_A_NAME.format(limit="")
    # One stage after the limit for a second more: in a run of a second nobody could tell.
    term, rows = 'criterion(x, f"{min(number, 60) // 4}")', "4096"
    report = reported(recorder, tmp_path, defined, term, rows, steps="60")
    assert report["verdict"] == "clean", report["headline"]
    (note,) = [finding for finding in report["findings"] if finding["kind"] == "compiled_code"]
    assert note["severity"] == "note"
    assert note["title"] == "criterion is compiled no more"
    (function,) = report["compiled_code"]["functions"]
    assert function["hit_limit"]
    assert function["entries"] == report["compiled_code"]["limit"] == 8


def test_a_function_on_the_way_to_its_limit_is_no_leak_and_says_how_far_it_is(
    recorder: SnippetRecorder, tmp_path: Path
) -> None:
    defined = GUARDED_BY_A_NAME.format(limit="")
    report = reported(recorder, tmp_path, defined, 'criterion(x, f"{epoch - epoch % 2}")')
    assert report["verdict"] != "leak", report["headline"]
    assert not [c for c in report["culprits"] if "compiled" in c["name"]]
    (note,) = [finding for finding in report["findings"] if finding["kind"] == "compiled_code"]
    assert "4 of 8 entries" in note["text"]


def test_shapes_that_vary_are_compiled_twice_and_are_no_leak(
    recorder: SnippetRecorder, tmp_path: Path
) -> None:
    report = reported(recorder, tmp_path, OF_ANY_SIZE, "criterion(x)", rows="8 + number % 24")
    assert report["verdict"] == "clean", report["headline"]
    (function,) = report["compiled_code"]["functions"]
    assert function["entries"] == 2
    assert function["reasons"][0]["cause"] == "shape"
    assert not [finding for finding in report["findings"] if finding["kind"] == "compiled_code"]


def test_tensors_that_only_compiled_code_keeps_are_reported(
    recorder: SnippetRecorder, tmp_path: Path
) -> None:
    report = reported(recorder, tmp_path, KEPT_BY_THE_BACKEND, 'criterion(x, f"{epoch // 2}")')
    assert report["verdict"] != "leak", report["headline"]
    (function,) = report["compiled_code"]["functions"]
    assert function["entries"] == 4
    assert function["tensor_bytes"] == pytest.approx(4 << 20, rel=0.05)
