"""Runs that ended for want of memory, and those that only look like it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from synthetic_runs import GIB, KIB, MIB, Program

from leakscope.analysis import compare
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.census import Census, CensusRow, CensusScope, RootKind
from leakscope.model.record import DeviceSnapshotRecord, EndRecord, NoteRecord, OutOfMemoryRecord
from leakscope.model.report import Report, RunVerdict, Severity
from leakscope.model.run import Run

TORCH = "OutOfMemoryError: CUDA out of memory."


def row(path: str, size: int, device: str = "host", **more: object) -> CensusRow:
    values = {"root": RootKind.LOCAL, "type": "list", "kind": "list", **more}
    return CensusRow(
        path=path,
        name=path.replace("()·", "."),
        host_bytes=size if device == "host" else 64,
        device_bytes={} if device == "host" else {device: size},
        **values,
    )


def census(*rows: CensusRow, garbage: int = 0, **components: dict[str, int]) -> Census:
    return Census(
        scope=CensusScope.FULL,
        rows=list(rows),
        cutoff_bytes=16 * KIB,
        objects=1000,
        heap_bytes=MIB,
        garbage_bytes=garbage,
        components=components,
    )


def failed(run: Run, *shortages: OutOfMemoryRecord, exception: str = "MemoryError") -> Run:
    run.main.shortages[:] = shortages
    run.main.end = EndRecord(status="exception", exit_code=1, exception=exception, time_s=9.0)
    return run


def host(requested: int | None = 2 * GIB, **more: object) -> OutOfMemoryRecord:
    values: dict[str, object] = {
        "boundary": 80,
        "time_s": 9.0,
        "phase": "train",
        "epoch": 2,
        "step": 93,
        "seen": "exception",
        "error": "MemoryError",
        "requested": requested,
        "allocated": 6 * GIB,
        "free": GIB,
        "limits": {"machine": 64 * GIB, "cgroup": 8 * GIB},
        "census": census(row("main()·cache", 3 * GIB, role="cache"), other={"host": 3 * GIB}),
        **more,
    }
    return OutOfMemoryRecord(**values)


def snapshot(**more: int) -> DeviceSnapshotRecord:
    values = {"reserved": 78 * GIB, "allocated": 70 * GIB, "active": 70 * GIB, **more}
    return DeviceSnapshotRecord(boundary=0, device="cuda:0", segments=9, **values)


def device(**more: object) -> OutOfMemoryRecord:
    values: dict[str, object] = {
        "seen": "observer",
        "device": "cuda:0",
        "error": "",
        "requested": 4 * GIB,
        "allocated": 70 * GIB,
        "reserved": 78 * GIB,
        "free": GIB,
        "limits": {"device": 80 * GIB},
        "largest_hole": 2 * GIB,
        "snapshot": snapshot(stuck=8 * GIB),
        "census": census(
            row("main()·model", 10 * GIB, "cuda:0", kind="module"),
            row("main()·loss", 40 * GIB, "cuda:0", kind="graph", type="torch.Tensor"),
            parameters={"cuda:0": 10 * GIB},
            graph={"cuda:0": 40 * GIB},
        ),
        **more,
    }
    return host(**values)


def report_of(run: Run) -> Report:
    return analyse(run)


class TestHost:
    def test_a_capacity_failure_is_out_of_memory_and_no_leak(self):
        report = report_of(failed(Program().build(), host()))
        assert report.verdict is RunVerdict.OUT_OF_MEMORY
        ended = report.out_of_memory
        assert (ended.device, ended.cause, ended.shortage) == ("host", "exception", "")
        assert report.headline.startswith(
            "Out of memory in train of epoch 3, after 93 steps: 2 GiB were asked for with 1 GiB "
            "left under the limit of the control group of 8 GiB; the process held 6 GiB."
        )
        assert "main.cache: 3 GiB" in report.headline
        assert report.findings[0].kind == "out_of_memory"
        assert report.findings[0].severity is Severity.CRITICAL

    def test_a_census_in_which_no_name_holds_much_is_not_said_to_be_missing(self):
        libraries = census(other={"host": 3 * GIB})
        for seen, ending in ((libraries, "No name holds much of it."),
                             (None, "What was live, no census shows.")):  # fmt: skip
            run = failed(Program(epochs=1).build(), host(census=seen))
            run.main.measurements[:] = [m for m in run.main.measurements if m.census is None]
            assert report_of(run).headline.endswith(ending)

    def test_next_to_a_leak_the_first_line_leaves_figures_to_the_section(self):
        report = report_of(failed(Program().leak("main()·history", MIB).build(), host()))
        assert report.headline.startswith(
            "Out of memory in train of epoch 3, after 93 steps. Memory leaks: main.history"
        )
        assert "2 GiB were asked for" in report.out_of_memory.sentence

    def test_epochs_that_nobody_tells_are_not_counted(self):
        run = failed(Program().build(), host(epoch=0))
        for place, m in enumerate(run.main.measurements):
            boundary = msgspec.structs.replace(m.boundary, epoch=0)
            run.main.measurements[place] = replace(m, boundary=boundary)
        assert "Out of memory in train after 93 steps:" in report_of(run).out_of_memory.sentence

    def test_the_first_epoch_is_counted_where_it_is_the_first(self):
        run = failed(Program(epochs=1).build(), host(epoch=0))
        report = report_of(run).out_of_memory.sentence
        assert "in train of epoch 1, after 93 steps" in report

    def test_a_leak_is_named_and_mended_first(self):
        run = Program().leak("main()·history", MIB).build()
        held = census(row("main()·history", 3 * GIB), garbage=2 * GIB, other={"host": 5 * GIB})
        report = report_of(failed(run, host(census=held)))
        assert report.verdict is RunVerdict.LEAK
        assert "Out of memory" in report.headline
        assert "main.history grows by 1 MiB per step" in report.headline
        first, second = report.out_of_memory.fits_if[:2]
        assert first.title == "Mend main.history"
        assert "held 3 GiB (50 % of what was live)" in first.evidence
        assert (first.helps, first.bytes) == (True, 3 * GIB)
        assert (second.title, second.bytes) == (
            "Break reference cycles, or collect in time",
            2 * GIB,
        )

    def test_a_culprit_that_is_too_small_is_reported_as_not_enough(self):
        run = Program().leak("main()·history", MIB).build()
        held = census(row("main()·history", 320 * MIB), other={"host": 320 * MIB})
        report = report_of(failed(run, host(requested=4 * GIB, census=held)))
        first = report.out_of_memory.fits_if[0]
        assert (first.title, first.helps) == ("Mend main.history", False)

    def test_a_request_larger_than_all_memory_comes_first(self):
        run = Program().leak("main()·history", MIB).build()
        report = report_of(failed(run, host(requested=4_000_000 * GIB)))
        ways = report.out_of_memory.fits_if
        assert [way.title for way in ways[:2]] == ["Ask for less at once", "Mend main.history"]

    def test_slack_and_workers_are_ways_of_the_host(self):
        program = Program().gauge(gauge.MALLOC_FREE, lambda s: 3 * GIB)
        program.gauge(gauge.CHILDREN_PSS, lambda s: 2 * GIB)
        ways = report_of(failed(program.build(), host())).out_of_memory.fits_if
        reported = {way.title: way.bytes for way in ways}
        assert reported["Let the C heap return what is free"] == 3 * GIB
        assert reported["Fewer worker processes"] == 2 * GIB
        assert not any("expandable" in title for title in reported)

    def test_validation_with_gradients_is_reported(self):
        held = census(row("v()·out", 4 * GIB, kind="graph"), graph={"host": 4 * GIB})
        shortage = host(phase="validation", census=held)
        ways = report_of(failed(Program().build(), shortage)).out_of_memory.fits_if
        assert "Validate without gradients" in [way.title for way in ways]

    def test_without_a_census_of_the_moment_the_last_one_speaks(self):
        run = Program().constant("main()·table", 400 * MIB).build()
        report = report_of(failed(run, host(census=None, no_census="there was no room for one")))
        ended = report.out_of_memory
        assert ended.names[0].name == "main.table"
        assert ended.evidence.startswith("The last look at the heap was")

    def test_what_grew_since_the_last_census_is_reported_by_its_rate(self):
        run = Program().leak("main()·history", MIB).build()
        steps = run.main.measurements[-2].boundary.step
        later = host(census=None, no_census="there was no room for one", step=steps + 1000)
        report = report_of(failed(run, later))
        first = report.out_of_memory.fits_if[0]
        assert first.title == "Mend main.history"
        assert first.bytes == pytest.approx((steps + 1000) * MIB, rel=0.02)
        assert "when it was weighed last and the rest by its rate" in first.evidence
        assert all(culprit.forecast is None for culprit in report.culprits)

    def test_parts_are_not_counted_twice(self):
        rows = [
            row("main()·trainer", 3 * GIB, kind="object", type="Trainer"),
            row("main()·trainer.history", 2 * GIB, parent="main()·trainer", length=7),
            row("main()·trainer.history[*]", 2 * GIB, parent="main()·trainer.history"),
            row("main()·trainer.model", 900 * MIB, parent="main()·trainer", kind="module"),
            row("main()·trainer.model.w", 800 * MIB, parent="main()·trainer.model"),
        ]
        held = census(*rows, other={"host": 3 * GIB})
        ended = report_of(failed(Program().build(), host(census=held))).out_of_memory
        assert [(r.name, r.bytes) for r in ended.names] == [
            ("main.trainer.history", 2 * GIB),
            ("main.trainer.model", 900 * MIB),
        ]
        assert ended.names[0].detail == "list, 7 items"
        assert sum(r.bytes for r in ended.components) == pytest.approx(6 * GIB)


class TestDevice:
    def test_a_request_beyond_all_free_memory_is_capacity(self):
        run = failed(Program().build(), device(requested=10 * GIB), exception=TORCH)
        left = device(seen="exception", census=None, snapshot=None, requested=10 * GIB)
        run.main.shortages.append(left)
        ended = report_of(run).out_of_memory
        assert (ended.device, ended.shortage) == ("cuda:0", "capacity")
        assert "capacity, not fragmentation" in ended.sentence
        assert ended.evidence == "Looked at inside the allocator, before the exception unwound."
        assert [r.name for r in ended.names] == ["main.loss", "main.model"]
        assert {r.name: r.bytes for r in ended.components} == {
            "activations and graphs": 40 * GIB,
            "parameters": 10 * GIB,
            "without a name": 20 * GIB,
        }
        ways = {way.title: way.helps for way in ended.fits_if}
        assert any(title.startswith("Make the batch") for title in ways)
        assert ways["expandable_segments:True"] is False
        assert "in half the bits" in " ".join(ways)

    def test_a_request_that_fits_no_hole_is_fragmentation(self):
        seen = snapshot(stuck=8 * GIB, pages=7 * GIB)
        left = device(seen="exception", census=None, snapshot=None)
        run = failed(Program().build(), device(snapshot=seen), left, exception=TORCH)
        ended = report_of(run).out_of_memory
        assert ended.shortage == "fragmentation"
        assert "the largest place took 2 GiB: fragmentation" in ended.sentence
        way = next(way for way in ended.fits_if if way.title == "expandable_segments:True")
        assert way.helps

    def test_in_a_backward_pass_figures_and_names_come_from_two_moments(self):
        seen = device(census=None, no_census="a backward pass was under way")
        left = device(seen="exception", snapshot=None, largest_hole=None, error="OutOfMemoryError")
        ended = report_of(failed(Program().build(), seen, left, exception=TORCH)).out_of_memory
        assert ended.shortage == "fragmentation"
        assert ended.names[0].name == "main.loss"
        assert ended.evidence.startswith("Looked at when the exception left the program")
        assert ended.error.startswith("OutOfMemoryError")

    def test_another_request_that_was_caught_before_is_not_the_one(self):
        caught = device(requested=GIB // 2)
        left = device(seen="exception", snapshot=None, largest_hole=None, requested=20 * GIB)
        ended = report_of(failed(Program().build(), caught, left, exception=TORCH)).out_of_memory
        assert ended.requested_bytes == 20 * GIB
        assert ended.shortage == "capacity"

    def test_an_error_alone_never_claims_fragmentation(self):
        left = device(seen="exception", snapshot=None, largest_hole=None)
        ended = report_of(failed(Program().build(), left, exception=TORCH)).out_of_memory
        assert ended.shortage == ""
        assert not any("expandable" in way.title for way in ended.fits_if)

    def test_an_error_alone_may_prove_capacity(self):
        left = device(seen="exception", snapshot=None, largest_hole=None, requested=20 * GIB)
        ended = report_of(failed(Program().build(), left, exception=TORCH)).out_of_memory
        assert ended.shortage == "capacity"

    def test_a_culprit_on_another_device_is_not_to_be_mended_for_it(self):
        run = Program().leak("main()·history", MIB).build()
        ended = report_of(failed(run, device(seen="exception"), exception=TORCH)).out_of_memory
        assert not any(way.title.startswith("Mend") for way in ended.fits_if)


class TestLookAlikes:
    def test_a_shortage_that_was_survived_is_a_note(self):
        run = Program().build()
        run.main.shortages[:] = [device()]
        run.main.end = EndRecord(status="completed", time_s=9.0)
        report = report_of(run)
        assert report.verdict is RunVerdict.CLEAN
        assert report.out_of_memory is None
        (found,) = report.findings
        assert (found.kind, found.severity) == ("out_of_memory_survived", Severity.NOTE)

    def test_a_later_failure_of_another_kind_is_not_out_of_memory(self):
        run = failed(Program().build(), device(), exception="ValueError: wrong shape")
        report = report_of(run)
        assert report.out_of_memory is None
        assert report.verdict is RunVerdict.CLEAN

    def test_sigkill_without_a_counted_kill_is_none(self):
        program = Program().gauge(gauge.CGROUP_USED, lambda s: 2 * GIB)
        run = program.gauge(gauge.CGROUP_LIMIT, lambda s: 8 * GIB).build()
        run.outcome = {"exit_code": 137, "signal": 9}
        report = report_of(run)
        assert report.out_of_memory is None
        assert report.verdict is RunVerdict.CLEAN
        assert report.run.ended == "killed by SIGKILL"
        assert report.findings == []

    def test_sigkill_at_the_limit_is_a_suspicion(self):
        program = Program().gauge(gauge.CGROUP_USED, lambda s: int(7.9 * GIB))
        run = program.gauge(gauge.CGROUP_LIMIT, lambda s: 8 * GIB).build()
        run.outcome = {"exit_code": 137, "signal": 9}
        report = report_of(run)
        assert report.verdict is RunVerdict.CLEAN
        (found,) = report.findings
        assert (found.kind, found.severity) == ("killed_near_the_limit", Severity.NOTE)
        assert report.run.ended == "killed by SIGKILL; memory stood at 7.9 GiB of 8 GiB"

    def test_a_run_near_its_limit_that_ends_by_itself_is_none(self):
        program = Program().gauge(gauge.CGROUP_USED, lambda s: int(7.9 * GIB))
        run = program.gauge(gauge.CGROUP_LIMIT, lambda s: 8 * GIB).build()
        run.main.end = EndRecord(status="completed", time_s=9.0)
        run.outcome = {"exit_code": 0}
        assert report_of(run).findings == []


class TestKilled:
    def test_the_kernels_kill_is_named_with_the_last_figures(self):
        program = Program().leak("main()·history", MIB).gauge(gauge.CGROUP_USED, lambda s: 7 * GIB)
        run = program.gauge(gauge.CGROUP_LIMIT, lambda s: 8 * GIB).build()
        run.outcome = {"exit_code": 137, "signal": 9, "oom_killed": 1, "oom_kills": 1}
        report = report_of(run)
        assert report.verdict is RunVerdict.LEAK
        assert report.headline.startswith(
            "The program was killed by the kernel's out-of-memory killer"
        )
        assert "7 GiB of 8 GiB were in use when last measured" in report.headline
        assert report.run.ended == "killed by the kernel's out-of-memory killer"
        assert report.out_of_memory.fits_if[0].title == "Mend main.history"
        assert report.out_of_memory.names[0].name == "main.history"

    def test_a_killed_worker_is_distinguished_from_a_killed_program(self):
        text = "RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed. "
        run = failed(Program().build(), exception=text)
        assert report_of(run).out_of_memory is None, "a user may kill a worker too"
        run.outcome = {"exit_code": 1, "oom_kills": 1}
        ended = report_of(run).out_of_memory
        assert ended.cause == "worker_killed"
        assert ended.sentence.startswith("A DataLoader worker was killed by the kernel's")

    def test_a_run_killed_before_anything_was_measured(self):
        run = Program().build()
        run.main.measurements.clear()
        run.outcome = {"exit_code": 137, "signal": 9, "oom_killed": 1}
        report = report_of(run)
        assert report.verdict is RunVerdict.OUT_OF_MEMORY
        assert report.out_of_memory.names == []


def test_of_the_warnings_about_headroom_the_last_is_shown():
    run = Program().build()
    run.main.notes += [
        NoteRecord(slug="memory-low", message="900 MiB left"),
        NoteRecord(slug="other", message="something"),
        NoteRecord(slug="memory-low", message="400 MiB left"),
    ]
    assert report_of(run).notes == ["something", "400 MiB left"]


def test_a_comparison_tells_that_memory_no_longer_runs_out():
    before = report_of(failed(Program().leak("main()·history", MIB).build(), host()))
    after = report_of(Program().build())
    reported = compare(before, after)
    assert reported.headline.startswith("Memory no longer runs out.")
    assert not any("Memory ran out" in change.name for change in reported.culprits)
    assert compare(after, before).headline.startswith("The second run ran out of memory.")


def test_the_report_survives_its_json():
    report = report_of(failed(Program().build(), host()))
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
