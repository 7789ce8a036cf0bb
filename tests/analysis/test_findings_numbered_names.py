"""Module variables that a program makes by number, all along: no container, and a leak."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_runs import MIB, Program, State, Thing

from leakscope.analysis import analyse
from leakscope.model.census import RootKind
from leakscope.model.report import Finding, Report, RunVerdict

EPOCHS = 10
BY_NUMBER = """
for epoch in range(10):
    train()
    globals()[f"outputs_{epoch}"] = predict()
"""
BY_HAND = "\n".join(f"train()\noutputs_{epoch} = predict()" for epoch in range(EPOCHS))


def variable(name: str, epoch: int, size: float) -> Thing:
    def held(state: State) -> float | None:
        return size if state.epochs_done >= epoch + 1 else None

    return Thing(f"__main__·{name}", held, "tensor", "torch.Tensor", name=name)


def report_of(source: str, names: list[str], size: float = 2 * MIB) -> Report:
    things = [variable(name, epoch, size) for epoch, name in enumerate(names)]
    run = Program(epochs=EPOCHS).plant(*things).build()
    if source:
        run.main.sources["/project/train.py"] = source
    return analyse(run)


def reported(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind == "numbered_names"]


NUMBERED = [f"outputs_{epoch}" for epoch in range(EPOCHS)]


def test_names_that_are_made_by_number_all_along_are_a_leak() -> None:
    report = report_of(BY_NUMBER, NUMBERED)
    (finding,) = reported(report)
    assert report.verdict is RunVerdict.LEAK
    assert finding.text.startswith("outputs_0, outputs_1, … outputs_8: 9 variables")
    assert finding.bytes_per_unit == pytest.approx(2 * MIB, rel=0.1)
    assert finding.total_bytes == 18 * MIB


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (BY_HAND, NUMBERED),
        ("", NUMBERED),
        (BY_NUMBER, NUMBERED[:4]),
        (BY_NUMBER, ["model", "loader", "scores", "figure", "report", "table", "best"]),
    ],
    ids=["written by hand", "no source", "few", "stages"],
)
def test_variables_of_a_scripts_stages_are_none(source: str, names: list[str]) -> None:
    report = report_of(source, names)
    assert reported(report) == []
    assert report.verdict is not RunVerdict.LEAK


def test_names_that_stopped_coming_are_none() -> None:
    assert reported(report_of(BY_NUMBER, NUMBERED[:5])) == []


CLASSES = [f"Batch{epoch}" for epoch in range(EPOCHS)]


@pytest.mark.parametrize(
    "made",
    [
        'type(f"Batch{epoch}", (), {"table": table()})',
        'exec(f"class Batch{epoch}: table = load()", globals())',
        'dataclasses.make_dataclass("Batch%d" % epoch, ["table"])',
    ],
)
def test_classes_that_are_made_all_along_are_reported_as_that_with_their_line(made: str) -> None:
    things = [
        replace(
            variable(name, epoch, 2 * MIB), type="type", kind="object",
            root=RootKind.CLASS_ATTRIBUTE,
        )
        for epoch, name in enumerate(CLASSES)
    ]  # fmt: skip
    run = Program(epochs=EPOCHS).plant(*things).build()
    run.main.sources["/project/train.py"] = f"for epoch in range(10):\n    train()\n    {made}\n"
    report = analyse(run)
    (finding,) = reported(report)
    assert report.verdict is RunVerdict.LEAK
    assert finding.title == "New classes are made all along"
    assert finding.text.startswith("Batch0, Batch1, … Batch8: 9 classes, made at train.py:3")
    assert "2 MiB each" in finding.text
    assert finding.fed_at == ["train.py:3"]
    assert finding.remedy.title == "Make classes once, and not again and again"
