"""What grows next to a graph too deep to be walked is reported as well, and not as the graph's.

The graph is walked up to a step, then only memory without a name tells that it goes on.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from synthetic_runs import MIB, Program, State, Thing

from leakscope.analysis import analyse
from leakscope.model.record import NativeAllocationsRecord, NativeOwner, NativeSite
from leakscope.model.report import Finding, Report, RunVerdict

EPOCHS, WALKED = 14, 60
LOOP = """import encoder
for step in range(500):
    state = cell(batch, state)
    encoder.encode(batch)
"""
GRAPH_LINE, OTHER_LINE = 3, 4
Sites = Callable[[int], list[NativeSite]]


def site(size: float, line: int, library: str, owner: NativeOwner) -> NativeSite:
    return NativeSite(
        library=library, function="f", file="/project/train.py", line=line, bytes=int(size),
        samples=5, owner=owner,
    )  # fmt: skip


def of_the_graph(step: int) -> list[NativeSite]:
    return [site(step * MIB, GRAPH_LINE, "libtorch_cpu.so", NativeOwner.TENSOR)]


def and_other(owner: NativeOwner, library: str, size: float = MIB / 2) -> Sites:
    return lambda step: [*of_the_graph(step), site(step * size, OTHER_LINE, library, owner)]


def report_of(sites: Sites, other: float = 0.0) -> Report:
    """Analyse a run whose graph takes 1 MiB a step, and what is next to it ``other``."""
    state = Thing(
        "state", lambda s: min(s.step, WALKED) * MIB, "tensor", "torch.Tensor", role="graph",
        graph_nodes=5000,
    )  # fmt: skip

    def nodes(now: State) -> float:
        return max(now.step - WALKED, 0) * MIB + now.step * other

    program = Program(epochs=EPOCHS, steps=20, validation=0).plant(state).swell(nodes)
    program.truncated_from = WALKED
    run = program.build()
    run.main.sources["/project/train.py"] = LOOP
    for measurement in run.main.measurements[::4]:
        boundary = measurement.boundary
        run.main.native_allocations.append(
            NativeAllocationsRecord(
                boundary=boundary.index, interval_bytes=1 << 19, sites=sites(boundary.step)
            )
        )
    return analyse(run)


def named(report: Report, kind: str) -> list[Finding]:
    return [f for f in report.findings if f.kind == kind]


def graph_rate(report: Report) -> float:
    rates = [c.bytes_per_unit for c in report.culprits if c.name == "state"]
    return max([*rates, *(f.bytes_per_unit for f in named(report, "deep_graph"))])


def test_alone_all_that_has_no_name_is_the_graphs() -> None:
    report = report_of(of_the_graph)
    assert report.verdict is RunVerdict.LEAK
    assert graph_rate(report) == pytest.approx(MIB, rel=0.1)
    assert not named(report, "unexplained")
    assert not named(report, "leaked_references")


@pytest.mark.parametrize(
    ("owner", "library", "kind"),
    [
        pytest.param(NativeOwner.LIBRARY, "libencoder.so", "unexplained", id="a library"),
        pytest.param(NativeOwner.INTERPRETER, "python3.11", "leaked_references", id="objects"),
        pytest.param(NativeOwner.ARRAY, "_multiarray_umath.so", "leaked_references", id="arrays"),
    ],
)
def test_what_another_line_allocates_is_reported_with_that_line(
    owner: NativeOwner, library: str, kind: str
) -> None:
    alone, both = report_of(of_the_graph), report_of(and_other(owner, library), MIB / 2)
    (found,) = named(both, kind)
    assert found.fed_at == [f"train.py:{OTHER_LINE}"]
    assert found.severity.value == "warning"
    assert named(both, "deep_graph")
    assert "Also: " in both.headline
    assert graph_rate(both) == pytest.approx(graph_rate(alone), rel=0.2)


def test_little_next_to_it_is_not_reported() -> None:
    report = report_of(and_other(NativeOwner.LIBRARY, "libencoder.so", MIB / 100), MIB / 100)
    assert not named(report, "unexplained")
