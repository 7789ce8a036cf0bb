"""Exceptions that hang on what a container holds: the line that keeps them, and what to keep."""

from __future__ import annotations

import pytest
from synthetic_runs import MIB, Program, State, Thing

from leakscope.analysis import analyse
from leakscope.model.census import Content, Owner
from leakscope.model.report import Culprit

SOURCE = """
class Trial:
    def __init__(self, number):
        self.number = number
        self.reason = None

class Study:
    def __init__(self):
        self.trials = []

    def optimize(self, objective):
        for number in range(30):
            trial = Trial(number)
            self.trials.append(trial)
            try:
                objective(trial)
            except ValueError as error:
                trial.reason = error

def main():
    study = Study()
    study.optimize(objective)

study = Study()
study.optimize(objective)
"""
OF_A_MODULE, OF_A_FUNCTION = "__main__·study.trials", "main()·study.trials"


def culprit(of_errors: float, path: str = OF_A_MODULE) -> Culprit:
    """Return the culprit of a run whose trials keep so much of their bytes in exceptions."""

    def trials(state: State) -> float:
        return 2 * MIB * state.epochs_done

    kept = Thing(path, trials, length=lambda s: s.epochs_done)
    reason = Thing(
        f"{path}[*].reason",
        lambda s: of_errors * trials(s),
        kind="traceback",
        name="Trial.reason",
        owner=Owner(
            kind="class", name="Trial", file="/project/train.py", line=2, variable="reason"
        ),
        count=lambda s: s.epochs_done,
        type="ValueError",
        parent=path,
    )
    run = Program(epochs=8).plant(kept, reason).build()
    run.main.sources["/project/train.py"] = SOURCE
    return analyse(run).culprits[0]


@pytest.mark.parametrize("path", [OF_A_MODULE, OF_A_FUNCTION])
def test_the_line_that_keeps_an_exception_on_an_item_comes_first(path: str) -> None:
    found = culprit(0.9, path)
    assert found.name.endswith("study.trials")
    assert [place.rpartition(":")[2] for place in found.fed_at] == ["18", "14"]
    assert found.remedy.title == "Keep the text of the errors in Trial.reason"
    assert "with_traceback(None)" in found.remedy.text


@pytest.mark.parametrize("of_errors", [0.0, 0.2])
def test_items_that_are_large_by_themselves_are_fed_where_they_are_put(of_errors: float) -> None:
    found = culprit(of_errors)
    assert [place.rpartition(":")[2] for place in found.fed_at] == ["14"]
    assert "errors" not in found.remedy.title


KEPT_THEMSELVES = """
errors = []
for batch in loader:
    try:
        check(batch)
    except ValueError as error:
        errors.append(error)
print(len(errors))
"""


def test_exceptions_that_are_the_items_themselves_get_their_diff() -> None:
    def errors(state: State) -> float:
        return 2 * MIB * state.epochs_done

    kept = Thing("__main__·errors", errors, name="errors", length=lambda s: s.epochs_done)
    each = Thing(
        "__main__·errors[*]",
        errors,
        kind="traceback",
        count=lambda s: s.epochs_done,
        type="ValueError",
        parent="__main__·errors",
    )
    run = Program(epochs=8).plant(kept, each).build()
    run.main.sources["/project/train.py"] = KEPT_THEMSELVES
    found = analyse(run).culprits[0]
    assert found.remedy.title == "Keep the text of the errors in errors"
    assert found.remedy.diff is not None
    assert "+        errors.append(repr(error))" in found.remedy.diff


def test_the_exception_is_named() -> None:
    assert "A ValueError keeps its traceback" in culprit(0.9).remedy.text
    assert "ValueError" not in culprit(0.2).remedy.text


def holding(
    item: str, below: str = "", below_type: str = "", *, share: float = 0.9, of_items: float = 1.0
) -> Culprit:
    """Return the culprit of a run in which a list keeps items, and these something below."""

    def kept(state: State) -> float:
        return 2 * MIB * state.epochs_done

    contents = (Content(type=item, count=8, bytes=int(of_items * 16 * MIB)),)
    path = "__main__·found"
    things = [Thing(path, kept, name="found", length=lambda s: s.epochs_done, holds=contents)]
    if below:
        things.append(
            Thing(
                f"{path}[*].{below}",
                lambda s: share * kept(s),
                kind="traceback" if below_type != "frame" else "object",
                name=f"found[*].{below}",
                count=lambda s: s.epochs_done,
                type=below_type,
                parent=path,
            )
        )
    run = Program(epochs=8).plant(*things).build()
    run.main.sources["/project/train.py"] = "found = []\nfor x in data:\n    found.append(x)\n"
    return analyse(run).culprits[0]


def test_log_records_with_exceptions_are_to_keep_their_text() -> None:
    found = holding("logging.LogRecord", "exc_info[2]", "ValueError")
    assert found.remedy.title == "Let records keep the text of an exception, not the exception"
    assert "A ValueError keeps" in found.remedy.text
    plain = holding("logging.LogRecord", "exc_info[2]", "ValueError", share=0.1)
    assert plain.remedy.title.startswith("Log numbers")


def test_frames_that_tasks_keep_by_their_exceptions_are_told() -> None:
    found = holding("_asyncio.Task", "tb_frame", "frame")
    assert "hangs on found[*].tb_frame. An exception keeps its traceback" in found.remedy.text
    few = holding("_asyncio.Task", "tb_frame", "frame", share=0.1)
    assert "traceback" not in few.remedy.text


@pytest.mark.parametrize(
    ("item", "of_items", "title"),
    [
        ("generator", 0.9, "Close the suspended generators in found"),
        ("coroutine", 0.9, "Close the suspended coroutines in found"),
        ("generator", 0.1, "Keep only the last entry of found"),
        ("bytearray", 0.9, "Keep only the last entry of found"),
    ],
)
def test_what_is_suspended_is_to_be_closed(item: str, of_items: float, title: str) -> None:
    assert holding(item, of_items=of_items).remedy.title == title
