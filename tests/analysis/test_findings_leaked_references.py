"""References that native code leaks: what is accused, and what only looks alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import msgspec
import pytest
from synthetic_runs import Program

from leakscope.analysis import analyse
from leakscope.model.census import Census, CensusScope, HeadObjects, Site
from leakscope.model.report import Finding, Report, RunVerdict

KIB = 1024
SOURCE = """import encoder


def batch(x):
    rows = encoder.encode(x)
    both = encoder.encode(encoder.rounded(x))
    return rows
"""
Count = Callable[[int], int]


def heads(count: int, type_name: str = "list", most: int = 1) -> HeadObjects:
    return HeadObjects(
        type=type_name,
        count=count,
        bytes=count * 64 * KIB,
        least_references=1,
        most_references=most,
    )


def report_with(
    count: Count,
    natively: Count | None = None,
    type_name: str = "list",
    most: int = 1,
    line: int | None = None,
    source: str = SOURCE,
    more_each: int = 0,
) -> Report:
    """Analyse a run in which objects of a type hang outside of the user's names.

    ``more_each`` are bytes that memory gains for each of them, in no object.
    """

    def seen(census: Census, step: int) -> Census:
        known = heads(count(step), type_name, most)
        native = heads((natively or count)(step), type_name, most)
        full = census.scope is CensusScope.FULL
        site = Site(file="/project/train.py", line=line or 0, bytes=known.bytes)
        return msgspec.structs.replace(
            census,
            elsewhere_bytes=known.bytes,
            elsewhere_types={type_name: known.bytes},
            elsewhere_heads=[known] if known.count else [],
            native_heads=[native] if full and native.count else [],
            elsewhere_sites=[site] if line else [],
        )

    run = Program(epochs=8).swell(lambda s: count(s.step) * (64 * KIB + more_each)).build()
    run.main.measurements[:] = [
        measurement
        if measurement.census is None
        else dataclasses.replace(
            measurement, census=seen(measurement.census, measurement.boundary.step)
        )
        for measurement in run.main.measurements
    ]
    run.main.sources["/project/train.py"] = source
    return analyse(run)


def leaked(report: Report) -> Finding | None:
    return next((f for f in report.findings if f.kind == "leaked_references"), None)


def test_objects_that_native_code_alone_refers_to_and_that_only_become_more_are_leaked() -> None:
    report = report_with(lambda step: 4 * step, line=5)
    found = leaked(report)
    assert report.verdict is RunVerdict.LEAK
    assert found is not None
    assert found.title == "References to list objects are leaked by encoder.encode"
    assert found.fed_at == ["train.py:5"]
    assert found.unit == "epoch"
    assert found.bytes_per_unit == pytest.approx(40 * 4 * 64 * KIB, rel=0.1)
    assert {f.kind for f in report.findings} == {"leaked_references"}


def test_memory_in_no_object_that_grows_along_with_them_counts_with_them() -> None:
    """What C++ allocated for them, as for a traced graph, is in nothing that a walk can weigh."""
    report = report_with(lambda step: 4 * step, line=5, more_each=192 * KIB)
    found = leaked(report)
    assert found is not None
    assert found.bytes_per_unit == pytest.approx(40 * 4 * 256 * KIB, rel=0.1)
    assert "Memory in no Python object grows along with them, by 30 MiB per epoch" in found.text
    assert report.headline.startswith("Memory grows by 40 MiB per epoch: references to list")
    assert {f.kind for f in report.findings} == {"leaked_references"}


def test_of_several_calls_in_a_line_none_is_accused() -> None:
    found = leaked(report_with(lambda step: 4 * step, line=6))
    assert found is not None
    assert found.title == "References to list objects are leaked by native code"
    assert "train.py:6" in found.text


HANDED = """import json, codec


class Reader(list):
    pass


def upload(text):
    rows = json.loads(text)
    codec.send(rows)
    reader = Reader(rows)
    codec.read(reader)
"""


@pytest.mark.parametrize(
    ("type_name", "function", "fed_at"),
    [
        ("list", "codec.send", ["train.py:10", "train.py:9"]),
        ("__main__.Reader", "codec.read", ["train.py:12", "train.py:11"]),
    ],
)
def test_whoever_is_handed_the_objects_is_accused_and_not_their_constructor(
    type_name: str, function: str, fed_at: list[str]
) -> None:
    """Of a class of the program's the lines that call it make the objects."""
    found = leaked(report_with(lambda n: 4 * n, type_name=type_name, line=9, source=HANDED))
    assert found is not None
    assert found.title == f"References to {type_name} objects are leaked by {function}"
    assert found.fed_at == fed_at


def test_others_of_the_type_may_come_and_go() -> None:
    assert leaked(report_with(lambda step: 4 * step + step % 3))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param({"count": lambda step: 4 * (step % 160)}, id="a queue that drains"),
        pytest.param({"count": lambda step: 4 * min(step, 60)}, id="a cache that fills"),
        pytest.param(
            {"count": lambda step: 4 * step, "natively": lambda step: step // 2},
            id="a library's registry",
        ),
        pytest.param({"count": lambda step: 4 * step, "most": 3}, id="unequal references"),
        pytest.param({"count": lambda step: 4 * step, "type_name": "function"}, id="callbacks"),
        pytest.param(
            {"count": lambda step: 4 * step, "type_name": "torch.Tensor"}, id="what graphs save"
        ),
        pytest.param({"count": lambda step: step // 20}, id="little"),
    ],
)
def test_what_looks_alike_is_not_called_a_leaked_reference(case: dict[str, object]) -> None:
    assert leaked(report_with(**case)) is None


def test_what_a_registry_has_that_the_program_fills_is_not_leaked() -> None:
    made = "import contextvars\nfor x in data:\n    contextvars.ContextVar(x).set(x)\n"
    for source, is_leaked in ((made, False), (SOURCE, True)):
        report = report_with(lambda step: step, type_name="_contextvars.Context", source=source)
        assert (leaked(report) is not None) is is_leaked
