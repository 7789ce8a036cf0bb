"""Growth that native code holds gets the library and the line that sampled allocations tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from synthetic_runs import MIB, Program, State

from leakscope.analysis import analyse
from leakscope.model.record import NativeAllocationsRecord, NativeOwner, NativeSite
from leakscope.model.report import Finding, Report, RunVerdict

Size = Callable[[int], float]


def finding(report: Report, kind: str) -> Finding:
    return next(f for f in report.findings if f.kind == kind)


def site(size: float, line: int, **more: object) -> NativeSite:
    known = {"library": "libdecoder.so", "function": "open_frame", "file": "/project/train.py"}
    return NativeSite(**{**known, **more}, line=line, bytes=int(size), samples=5)


def report_with(
    sites: Callable[[int], list[NativeSite]], grown: Callable[[State], float]
) -> Report:
    """Analyse a run of 14 epochs whose resident memory grows, with sampled allocations."""
    run = Program(epochs=14).swell(grown).build()
    for measurement in run.main.measurements[::4]:
        boundary = measurement.boundary
        record = NativeAllocationsRecord(
            boundary=boundary.index, interval_bytes=1 << 19, sites=sites(boundary.step)
        )
        run.main.native_allocations.append(record)
    return analyse(run)


def test_a_library_that_keeps_what_a_line_allocates_is_named_with_both() -> None:
    report = report_with(lambda step: [site(step * MIB, 31)], lambda s: s.step * MIB)
    found = finding(report, "unexplained")
    assert found.title == "Native memory grows in libdecoder.so, called at train.py:31"
    assert found.fed_at == ["train.py:31"]
    assert "open_frame" in found.text
    assert report.verdict is RunVerdict.LEAK


def test_the_site_that_gains_most_comes_first() -> None:
    def sites(step: int) -> list[NativeSite]:
        return [site(step * MIB / 4, 12), site(step * MIB * 3 / 4, 31)]

    found = finding(report_with(sites, lambda s: s.step * MIB), "unexplained")
    assert found.fed_at == ["train.py:31", "train.py:12"]


@pytest.mark.parametrize(
    "sites",
    [
        pytest.param(lambda step: [site(300 * MIB, 31)], id="flat"),
        pytest.param(lambda step: [site(min(step, 20) * 9 * MIB, 31)], id="filled"),
        pytest.param(lambda step: [site(step * MIB / 100, 31)], id="little"),
        pytest.param(
            lambda step: [site(300 * MIB, 31, owner=NativeOwner.ARRAY)], id="arrays that stay"
        ),
    ],
)
def test_allocations_that_do_not_account_for_the_growth_are_not_blamed(
    sites: Callable[[int], list[NativeSite]],
) -> None:
    report = report_with(sites, lambda s: s.step * MIB)
    found = finding(report, "unexplained")
    assert found.title == "Memory grows outside everything that has a name"
    assert found.fed_at == []


def test_an_estimate_from_few_samples_is_noise() -> None:
    def sites(step: int) -> list[NativeSite]:
        return [site(step * MIB, 31, deviation_bytes=400 * MIB)]

    found = finding(report_with(sites, lambda s: s.step * MIB), "unexplained")
    assert "libdecoder.so" not in found.title


def test_growing_allocations_without_growing_memory_accuse_nobody() -> None:
    report = report_with(lambda step: [site(step * MIB, 31)], lambda s: 0.0)
    assert report.verdict is RunVerdict.CLEAN


@pytest.mark.parametrize("owner", [NativeOwner.INTERPRETER, NativeOwner.ARRAY, NativeOwner.TENSOR])
def test_objects_that_no_walk_reaches_have_the_line_that_allocates_them(owner: NativeOwner) -> None:
    """The collector doesn't track texts, bytes and arrays: one that is leaked is in no census."""
    report = report_with(lambda step: [site(step * MIB, 31, owner=owner)], lambda s: s.step * MIB)
    found = finding(report, "leaked_references")
    assert found.title.endswith("piles up that nothing leads to, allocated at train.py:31")
    assert found.fed_at == ["train.py:31"]
    assert "unexplained" not in {f.kind for f in report.findings}


def test_what_a_named_list_holds_is_not_taken_for_unreached_objects() -> None:
    program = Program(epochs=14).leak("main()·texts", 4 * MIB).swell(lambda s: s.step * MIB)
    run = program.build()
    for measurement in run.main.measurements[::4]:
        boundary = measurement.boundary
        sites = [site(boundary.step * 4 * MIB, 31, owner=NativeOwner.INTERPRETER)]
        run.main.native_allocations.append(
            NativeAllocationsRecord(boundary=boundary.index, interval_bytes=1 << 19, sites=sites)
        )
    report = analyse(run)
    assert report.culprits[0].name == "main.texts"
    assert "leaked_references" not in {f.kind for f in report.findings}
