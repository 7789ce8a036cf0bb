"""What torch.compile keeps: limits, causes of recompilations and what to change, from records."""

from __future__ import annotations

import msgspec
import pytest
from synthetic_runs import MIB, Program

from leakscope.analysis.accounting.compiled_code import cause_of
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.record import (
    CapturedGraphs,
    CompilationRecord,
    CompiledCodeRecord,
    CompiledFunction,
)
from leakscope.model.report import RecompileCause, Report
from leakscope.report.sections import compiled_view

WHERE = {"function": "criterion", "file": "/p/train.py", "line": 7}
FULL = CompiledCodeRecord(
    boundary=9,
    functions=[CompiledFunction(**WHERE, entries=3, most=3)],  # type: ignore[arg-type]
    limit=8,
    cap=256,
)


def compiled(number: int, reason: str = "", **more: object) -> CompilationRecord:
    return CompilationRecord(boundary=number, number=number, reason=reason, **(WHERE | more))  # type: ignore[arg-type]


def report(kept: CompiledCodeRecord | None, *compilations: CompilationRecord) -> Report:
    run = Program().constant("main()·kept", 2 * MIB).build()
    run.main.compiled_code = kept
    run.main.compilations = list(compilations)
    return analyse(run)


@pytest.mark.parametrize(
    ("guard", "cause"),
    [
        ("tensor 'x' size mismatch at index 0. expected 3, actual 4", RecompileCause.SHAPE),
        ("tensor 'x' stride mismatch at index 0", RecompileCause.SHAPE),
        ("tensor 'x' dtype mismatch", RecompileCause.TYPE),
        ("tensor 'x' requires_grad mismatch", RecompileCause.TYPE),
        ("GLOBAL_STATE changed: grad_mode", RecompileCause.MODE),
        ("___check_obj_id(self, …", RecompileCause.OBJECT),
        ("len(items) == …", RecompileCause.LENGTH),
        ("stage == …", RecompileCause.VALUE),
        ("something of a later version", RecompileCause.OTHER),
    ],
)
def test_a_guard_tells_what_was_new(guard: str, cause: RecompileCause) -> None:
    assert cause_of(guard) is cause


def test_without_a_record_nothing_is_reported() -> None:
    found = report(None, compiled(0))
    assert found.compiled_code is None
    assert compiled_view(found.compiled_code) is None


def test_reasons_are_counted_without_numbers_of_entries_and_sizes() -> None:
    mismatch = "0/{}: tensor 'x' size mismatch at index 0. expected {}, actual 5"
    found = report(
        FULL, compiled(0), *(compiled(n, mismatch.format(n - 1, 30 + n)) for n in (1, 2))
    )
    assert found.compiled_code is not None
    (entry,) = found.compiled_code.functions
    assert (entry.compilations, entry.recompilations, entry.hit_limit) == (3, 2, False)
    (reason,) = entry.reasons
    assert (reason.guard, reason.count) == ("tensor 'x' size mismatch at index 0", 2)
    assert not [finding for finding in found.findings if finding.kind == "compiled_code"]


def test_what_was_not_compiled_for_want_of_room_is_no_recompilation() -> None:
    found = report(FULL, compiled(0), compiled(1, "0/0: a == …"), compiled(2, hit_limit=True))
    assert found.compiled_code is not None
    (entry,) = found.compiled_code.functions
    assert (entry.compilations, entry.recompilations, entry.hit_limit) == (2, 1, True)
    (note,) = [finding for finding in found.findings if finding.kind == "compiled_code"]
    assert note.title == "criterion is compiled no more"
    assert "torch.tensor(value)" in note.remedy.text


def test_a_function_near_its_limit_is_reported_and_one_without_a_bound_is_not() -> None:
    near = CompiledFunction(**WHERE, entries=4, most=4)  # type: ignore[arg-type]
    many = CompiledFunction(**WHERE, entries=40, most=1, codes=40)  # type: ignore[arg-type]
    for function, reported in ((near, 1), (many, 0)):
        found = report(msgspec.structs.replace(FULL, functions=[function]), compiled(0))
        notes = [finding for finding in found.findings if finding.kind == "compiled_code"]
        assert len(notes) == reported


def test_lines_that_call_are_those_of_dynamos_account() -> None:
    calls = [compiled(n, caller_file="/p/train.py", caller_line=33) for n in range(2)]
    found = report(FULL, *calls)
    assert found.compiled_code is not None
    assert found.compiled_code.functions[0].called_at == ["/p/train.py:33"]


def test_the_page_tells_limits_workers_and_graphs() -> None:
    kept = msgspec.structs.replace(
        FULL,
        is_raised=True,
        limit=512,
        workers=3,
        worker_bytes=300 * MIB,
        graphs=[CapturedGraphs(device="cuda:0", shapes="8x512", graphs=4)],
    )
    view = compiled_view(report(kept, compiled(0)).compiled_code)
    assert view is not None
    assert "512 entries per code object (recompile_limit, which the program has raised)" in (
        view.sentence
    )
    workers, graphs = view.remarks
    assert "3 processes of its own, 300 MiB resident" in workers
    assert "they stay until the program ends" in workers
    assert graphs.startswith("4 CUDA graphs captured, by the shapes of what they return: 8x512 on")
    (row,) = view.rows
    assert (row.entry.entries, row.limit, row.entry.bytes) == (3, "of 512", None)
