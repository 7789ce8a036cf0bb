"""What the collector and cleaning calls take: reported with its cost and gain, never a leak."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from synthetic_runs import MIB, Program, State, Thing

from leakscope.analysis.verdict.analyse import analyse
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind
from leakscope.model.record import CleaningCall, CleaningCallsRecord
from leakscope.model.report import Finding, Report, RunVerdict, Severity

MOMENT_US = 10_000
"""From one boundary of a synthetic program to the next."""


def report_of(program: Program, *calls: CleaningCall, seconds: float = 0.0) -> Report:
    run = program.build()
    if calls:
        run.main.cleaning_calls.append(CleaningCallsRecord(boundary=0, calls=list(calls)))
    return analyse(run)


def found(report: Report, kind: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind == kind]


def done(state: State) -> float:
    """Return how many boundaries there were about: 54 to 40 steps."""
    return state.step * 54 / 40


def collecting(us_each: float, *, full_us: float = 0.0, growing: float = 0.0) -> Program:
    """Return a program whose collections take so much at each moment, and a full one per epoch."""
    program = Program(epochs=12, full_every=1)
    program.gauge(gauge.GC_TIMES[0], lambda s: us_each * done(s))

    def pause(state: State) -> float | None:
        ends = state.kind is BoundaryKind.PHASE_END and state.phase == "train"
        return full_us + growing * state.epochs_done if ends and full_us else None

    program.gauge(gauge.GC_PAUSES[2], pause)
    return program


def test_a_collector_that_takes_a_good_part_of_the_time_is_reported() -> None:
    report = report_of(collecting(0.3 * MOMENT_US))
    (finding,) = found(report, "collector_time")
    assert finding.title == "The collector takes 30 % of the time"
    assert finding.severity is Severity.NOTE
    assert report.verdict is RunVerdict.CLEAN
    assert "gc.freeze()" in finding.remedy.text
    assert "garbage lies longer" in finding.remedy.text


def test_a_collector_that_takes_little_is_not() -> None:
    assert not found(report_of(collecting(0.02 * MOMENT_US)), "collector_time")


def test_what_it_took_while_the_program_was_set_up_does_not_count() -> None:
    program = Program(epochs=12).gauge(gauge.GC_TIMES[2], lambda s: 5e6)
    assert not found(report_of(program), "collector_time")


def test_full_collections_that_take_ever_longer_name_what_holds_most_objects() -> None:
    program = collecting(0.001 * MOMENT_US, full_us=100_000, growing=100_000)
    program.gauge(gauge.GC_LONG_LIVED, lambda s: 4_500_000)
    program.plant(
        Thing("main()·index", lambda s: 50 * MIB, length=lambda s: 4_000_000),
        Thing("main()·names", lambda s: 1 * MIB, length=lambda s: 1000),
    )
    (finding,) = found(report_of(program), "collector_time")
    assert finding.title == "Full collections take ever longer"
    assert "100 ms at first" in finding.text
    assert "1.2 s in the end" in finding.text
    assert "100 ms more per epoch" in finding.text
    printed = "`main.index` has 4,000,000 items; a full collection visits 4,500,000 objects"
    assert printed in finding.text


def test_a_container_with_few_of_the_objects_is_not_named() -> None:
    program = collecting(0.3 * MOMENT_US).gauge(gauge.GC_LONG_LIVED, lambda s: 4_500_000)
    program.plant(Thing("main()·names", lambda s: 1 * MIB, length=lambda s: 100_000))
    (finding,) = found(report_of(program), "collector_time")
    assert "items" not in finding.text


def test_the_bytes_of_a_buffer_are_no_objects() -> None:
    program = collecting(0.3 * MOMENT_US).gauge(gauge.GC_LONG_LIVED, lambda s: 4_500_000)
    buffer = Thing(
        "main()·buffer", lambda s: 50 * MIB, "bytes", "bytearray", length=lambda s: 50 * MIB
    )
    (finding,) = found(report_of(program.plant(buffer)), "collector_time")
    assert "items" not in finding.text


def test_full_collections_that_stay_as_long_are_not_reported() -> None:
    assert not found(report_of(collecting(0.001 * MOMENT_US, full_us=300_000)), "collector_time")


def test_short_ones_may_grow() -> None:
    program = collecting(0.001 * MOMENT_US, full_us=1000, growing=3000)
    assert not found(report_of(program), "collector_time")


def test_those_that_were_requested_show_the_growth_too() -> None:
    program = collecting(0.0)

    def pause(state: State) -> float | None:
        ends = state.kind is BoundaryKind.PHASE_END and state.phase == "train"
        return 100_000 * (1 + state.epochs_done) if ends else None

    program.gauge(gauge.GC_EXPLICIT_PAUSE, pause)
    (finding,) = found(report_of(program), "collector_time")
    assert "By itself the collector took" in finding.text


def call(
    share: float = 0.4,
    *,
    times: int = 300,
    freed: float = 0.0,
    objects: int | None = 3,
    **more: int,
) -> CleaningCall:
    """Return calls that take a share of a synthetic run."""
    whole = program().build().main.measurements[-1].boundary.time_s
    return CleaningCall(
        call="gc.collect()" if objects is not None else "torch.cuda.empty_cache()",
        file="train.py",
        line=41,
        times=times,
        seconds=share * whole,
        longest_s=0.02,
        objects=None if objects is None else objects * times,
        weighed=more.get("weighed", times),
        freed_bytes=int(freed * times),
        most_freed_bytes=int(more.get("most", freed)),
    )


def program() -> Program:
    return Program(epochs=12)


def test_calls_that_free_next_to_nothing_are_to_be_removed() -> None:
    report = report_of(program(), call())
    (finding,) = found(report, "cleaning_calls")
    assert finding.title == "gc.collect() takes 40 % of the time and frees next to nothing"
    assert finding.text.startswith(
        "gc.collect() is called 300 times by train.py:41, takes 40 % of the run (9 ms a call, "
        "20 ms at most) and frees 0 B and 3 objects a call."
    )
    assert finding.remedy.title == "Remove the call"
    assert finding.fed_at == ["train.py:41"]
    assert (finding.severity, report.verdict) == (Severity.NOTE, RunVerdict.CLEAN)


def test_calls_that_free_much_are_reported_with_their_gain() -> None:
    (finding,) = found(report_of(program(), call(freed=50 * MIB, objects=20)), "cleaning_calls")
    assert "next to nothing" not in finding.title
    assert "frees 50 MiB and 20 objects a call" in finding.text
    assert finding.remedy.title == "Break the circles, or call it less often"


def test_one_call_that_freed_much_speaks_for_the_others() -> None:
    calls = call(freed=0.1 * MIB, most=40 * MIB)
    (finding,) = found(report_of(program(), calls), "cleaning_calls")
    assert finding.remedy.title != "Remove the call"


def test_many_small_objects_are_of_use_though_no_memory_returns() -> None:
    (finding,) = found(report_of(program(), call(objects=50_000)), "cleaning_calls")
    assert finding.remedy.title != "Remove the call"


def test_where_the_collector_is_off_somebody_must_call_it() -> None:
    report = report_of(program().gauge(gauge.GC_ENABLED, lambda s: 0), call())
    (finding,) = found(report, "cleaning_calls")
    assert finding.remedy.title == "Call it less often"


def test_on_a_device_any_object_may_have_held_much() -> None:
    on_device = program().gauge("cuda:0.allocated", lambda s: 64 * MIB)
    (finding,) = found(report_of(on_device, call()), "cleaning_calls")
    assert "What they held on a device is not counted" in finding.text
    assert finding.remedy.title != "Remove the call"
    (finding,) = found(report_of(on_device, call(objects=0)), "cleaning_calls")
    assert finding.remedy.title == "Remove the call"


def test_calls_whose_gain_was_not_read_are_not_called_useless() -> None:
    (finding,) = found(report_of(program(), call(weighed=0)), "cleaning_calls")
    assert "frees an unknown amount" in finding.text
    assert finding.remedy.title != "Remove the call"


def test_emptying_a_devices_cache_has_its_price_next_to_its_gain() -> None:
    (finding,) = found(report_of(program(), call(objects=None, freed=3 * MIB)), "cleaning_calls")
    assert finding.text.startswith("torch.cuda.empty_cache() is called 300 times by train.py:41")
    assert "frees 3 MiB a call" in finding.text
    assert "cudaMalloc" in finding.remedy.text


@pytest.mark.parametrize("calls", [call(0.04), call(0.0, times=0)])
def test_calls_that_take_little_are_not_reported(calls: CleaningCall) -> None:
    assert not found(report_of(program(), calls), "cleaning_calls")


def test_each_line_is_reported_by_itself_the_dearest_first() -> None:
    other = CleaningCall(call="gc.collect()", times=9, seconds=0.9, objects=0, weighed=9)
    report = report_of(program(), other, call())
    first, second = found(report, "cleaning_calls")
    assert first.signature != second.signature
    assert {first.fed_at[0], *second.fed_at} == {"train.py:41"}
    assert any("by a library" in each.text for each in (first, second))


def test_what_collections_took_while_the_program_was_set_up_is_no_part_of_its_work() -> None:
    program = Program(epochs=12)
    program.gauge(gauge.GC_TIMES[2], lambda s: 8e6 if s.step > 300 else None)
    run = program.build()
    assert found(analyse(run), "collector_time")
    first = run.main.measurements[0]
    boundary = msgspec.structs.replace(
        first.boundary, kind=BoundaryKind.TIME, time_s=first.boundary.time_s - 1e-4
    )
    set_up = replace(first, boundary=boundary, gauges={gauge.GC_TIMES[2]: 7_999_000}, census=None)
    run.main.measurements.insert(0, set_up)
    assert not found(analyse(run), "collector_time")
