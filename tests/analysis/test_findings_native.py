"""Growth that native code holds gets the library and the line that sampled allocations tell."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from synthetic_runs import MIB, Program, State, Thing

from leakscope.analysis import analyse
from leakscope.model import gauge
from leakscope.model.census import CensusScope, Content, Owner, Site
from leakscope.model.record import (
    AllocationRecord,
    NativeAllocationsRecord,
    NativeKind,
    NativeOwner,
    NativeSite,
)
from leakscope.model.report import Finding, LedgerEntry, Report, RunVerdict, Severity
from leakscope.model.run import Run

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


@pytest.mark.parametrize(("library", "kept"), [("libz.so.1", True), ("libtorch_cpu.so", False)])
def test_the_container_that_gets_what_is_made_there_is_named(library: str, kept: bool) -> None:
    """Not of torch: what it allocates may be kernels and plans."""
    run = Program(epochs=14).swell(lambda s: s.step * MIB).build()
    run.main.sources["/project/train.py"] = (
        "class Shipper:\n"
        "    def stream(self, name):\n"
        "        self.streams[name] = zlib.compressobj(6)\n"
    )
    for measurement in run.main.measurements[::4]:
        sites = [site(measurement.boundary.step * MIB, 3, library=library)]
        run.main.native_allocations.append(
            NativeAllocationsRecord(
                boundary=measurement.boundary.index, interval_bytes=1 << 19, sites=sites
            )
        )
    found = finding(analyse(run), "unexplained")
    assert found.title.startswith(f"Native memory grows in {library}, called at train.py:3")
    assert found.title.endswith("whose result goes into Shipper.streams") is kept
    assert (found.remedy.title == "Bound Shipper.streams, or close what it keeps") is kept


PROFILED = """from torch.profiler import profile

with profile(with_stack=True) as profiler:
    for x in loader:
        train_step(x)
"""


@pytest.mark.parametrize(
    ("function", "is_known"),
    [("torch::profiler::impl::ThreadLocalSubqueue::begin_op", True), ("at::native::copy_", False)],
)
def test_a_profiler_that_never_stops_is_named_with_the_line_that_starts_it(
    function: str, is_known: bool
) -> None:
    run = Program(epochs=14).swell(lambda s: s.step * MIB).build()
    run.manifest.environment["torch"] = "2.13.0"
    run.main.sources["/project/train.py"] = PROFILED
    for measurement in run.main.measurements[::4]:
        step = measurement.boundary.step
        sites = [
            site(step * MIB / 2, line, library="libtorch_cpu.so", function=function)
            for line in (5, 6)
        ]
        run.main.native_allocations.append(
            NativeAllocationsRecord(
                boundary=measurement.boundary.index, interval_bytes=1 << 19, sites=sites
            )
        )
    found = finding(analyse(run), "unexplained")
    assert (found.known is not None) is is_known
    assert ("started at train.py:3" in found.title) is is_known
    assert (found.fed_at[0] == "train.py:3") is is_known
    assert ("schedule" in found.remedy.title) is is_known


def test_free_memory_between_native_blocks_that_grow_goes_with_them() -> None:
    program = Program(epochs=14).swell(lambda s: s.step * 5 * MIB / 4)
    program.gauge(gauge.MALLOC_FREE, lambda s: s.step * MIB)
    program.gauge(gauge.MALLOC_IN_USE, lambda s: 300 * MIB + s.step * MIB / 4)
    run = program.build()
    for measurement in run.main.measurements[::4]:
        record = NativeAllocationsRecord(
            boundary=measurement.boundary.index,
            interval_bytes=1 << 19,
            sites=[site(measurement.boundary.step * MIB / 4, 31)],
        )
        run.main.native_allocations.append(record)
    first, slack = analyse(run).findings[:2]
    assert first.title == "Native memory grows in libdecoder.so, called at train.py:31"
    assert "of free memory in the C heap lie between them" in first.text
    assert (slack.kind, slack.severity) == ("allocator_slack", Severity.NOTE)


def test_the_site_that_gains_most_comes_first() -> None:
    def sites(step: int) -> list[NativeSite]:
        return [site(step * MIB / 4, 12), site(step * MIB * 3 / 4, 31)]

    found = finding(report_with(sites, lambda s: s.step * MIB), "unexplained")
    assert found.fed_at == ["train.py:31", "train.py:12"]


@pytest.mark.parametrize(
    ("shares", "places"),
    [
        pytest.param({31: 1.0}, ["train.py:31"], id="at one line"),
        pytest.param({31: 0.9, 12: 0.1}, ["train.py:31"], id="nearly all at one line"),
        pytest.param({31: 0.4, 12: 0.3, 8: 0.3}, [], id="at whichever line waits"),
    ],
)
def test_threads_of_a_library_have_the_line_that_waits_for_them(
    shares: dict[int, float], places: list[str]
) -> None:
    """Each line alone may gain too little to be judged: they are one row."""
    report = report_with(
        lambda step: [site(share * step * MIB, n, is_awaited=True) for n, share in shares.items()],
        lambda s: s.step * MIB,
    )
    found = finding(report, "unexplained")
    assert found.title.startswith("Native memory grows in libdecoder.so")
    assert found.fed_at == places
    assert ("waits for them" in found.text) is bool(places)


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


def test_a_site_of_less_than_a_leak_is_named_where_it_is_most_of_one() -> None:
    report = report_with(lambda step: [site(step * MIB / 160, 31)], lambda s: s.step * MIB / 110)
    found = finding(report, "unexplained")
    assert found.title == "Native memory grows in libdecoder.so, called at train.py:31"
    assert "open_frame at train.py:31 3." in found.text


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
    assert found.title.endswith("to which nothing refers are never freed, allocated at train.py:31")
    assert found.fed_at == ["train.py:31"]
    assert "unexplained" not in {f.kind for f in report.findings}


def test_without_a_walk_of_the_whole_heap_a_library_may_hold_them() -> None:
    run = Program(epochs=14).swell(lambda s: s.step * MIB).build()
    run.main.measurements[:] = [
        m
        if m.census is None
        else replace(m, census=msgspec.structs.replace(m.census, scope=CensusScope.FOCUSED))
        for m in run.main.measurements
    ]
    for measurement in run.main.measurements[::4]:
        sites = [site(measurement.boundary.step * MIB, 31, owner=NativeOwner.ARRAY)]
        run.main.native_allocations.append(
            NativeAllocationsRecord(
                boundary=measurement.boundary.index, interval_bytes=1 << 19, sites=sites
            )
        )
    found = finding(analyse(run), "leaked_references")
    assert found.title.endswith(
        "outside the names of the program are never freed, allocated at train.py:31"
    )
    assert "a library keeps them in a container of its own" in found.text
    assert found.remedy.title == "Profile again with --budget 10%"


def test_small_objects_have_the_lines_that_windows_of_tracing_saw() -> None:
    """The line that takes their next arena is chance; what lives for a moment is in each window."""
    run = Program(epochs=14).swell(lambda s: s.step * MIB).build()
    run.main.sources["/project/train.py"] = SOURCE
    for measurement in run.main.measurements[::4]:
        boundary = measurement.boundary
        arenas = site(boundary.step * MIB, 31, owner=NativeOwner.INTERPRETER)
        run.main.native_allocations.append(
            NativeAllocationsRecord(boundary=boundary.index, interval_bytes=1 << 19, sites=[arenas])
        )
    boundaries = [m.boundary.index for m in run.main.measurements]
    for first, last in ((4, 5), (8, 12)):
        many = (last - first) * 1000
        sites = [
            Site(file="/project/train.py", line=12, bytes=300 * many, count=many),
            Site(file="/project/train.py", line=9, bytes=200_000, count=100),
            Site(file="/project/train.py", line=7, bytes=900_000, count=2),
        ]
        run.main.allocations.append(
            AllocationRecord(
                first_boundary=boundaries[first], last_boundary=boundaries[last], sites=sites
            )
        )
    found = finding(analyse(run), "leaked_references")
    assert found.fed_at == ["train.py:12"]
    assert "train.py:31" not in found.text


def test_objects_that_no_walk_reaches_are_not_reported_where_frozen_garbage_explains_them() -> None:
    program = Program(epochs=14).swell(lambda s: s.step * MIB)
    run = program.gauge(gauge.GC_FROZEN, lambda s: 300_000 + 5_000 * s.epoch).build()
    for measurement in run.main.measurements[::4]:
        size = measurement.boundary.step * MIB
        record = NativeAllocationsRecord(
            boundary=measurement.boundary.index,
            interval_bytes=1 << 19,
            sites=[site(size, 31, owner=NativeOwner.INTERPRETER)],
        )
        run.main.native_allocations.append(record)
    kinds = [f.kind for f in analyse(run).findings if f.severity is Severity.WARNING]
    assert kinds == ["collector_frozen"]


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({}, ["train.py:31"]),
        ({"kind": NativeKind.MAPPING}, []),
        ({"owner": NativeOwner.LIBRARY}, []),
        ({"deviation_bytes": 400 * MIB}, []),
        ({"file": "/python/lib/json/decoder.py"}, []),
    ],
    ids=["blocks", "arenas", "a library's own", "chance", "no file of the program"],
)
def test_a_librarys_container_has_the_line_that_sampled_blocks_tell(
    more: dict[str, object], lines: list[str]
) -> None:
    run = Program(epochs=14).leak("library·registry", 2 * MIB, user=False).build()
    run.main.sources["/project/train.py"] = "x = 1\n" * 40
    for measurement in run.main.measurements[::4]:
        step = measurement.boundary.step
        sites = [site(step * 2 * MIB, 31, **{"owner": NativeOwner.INTERPRETER, **more})]
        run.main.native_allocations.append(
            NativeAllocationsRecord(
                boundary=measurement.boundary.index, interval_bytes=1 << 19, sites=sites
            )
        )
    first = analyse(run).culprits[0]
    assert (first.name, first.fed_at) == ("library.registry", lines)


def test_what_imports_allocate_before_the_work_begins_is_no_growth_of_their_lines() -> None:
    run = Program(epochs=14).leak("library·registry", 2 * MIB, user=False).build()
    run.main.sources["/project/train.py"] = "x = 1\n" * 40
    for measurement in run.main.measurements[::4]:
        began, step = measurement.boundary.index > 0, measurement.boundary.step
        sites = [site(began * 500 * MIB, 2, owner=NativeOwner.INTERPRETER)]
        sites.append(site(step * 2 * MIB, 31, owner=NativeOwner.INTERPRETER))
        run.main.native_allocations.append(
            NativeAllocationsRecord(
                boundary=measurement.boundary.index, interval_bytes=1 << 19, sites=sites
            )
        )
    assert analyse(run).culprits[0].fed_at == ["train.py:31"]


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


SOURCE = """\
import decoder


class Reader:
    def __init__(self):
        self.handle = decoder.open_stream(300_000)


class Frames:
    def __init__(self):
        self.readers = []
        self.losses = []

    def load(self, step):
        reader = Reader()
        self.readers.append(reader)
        stream = decoder.Stream(step)
        self.readers.append(stream)
        self.losses.append(decoder.read(reader.handle))
        decoder.warm(step)

    def first(self, number, texts):
        message = decoder.Message()
        message.extend(texts)
        self.readers.append(message)
        tree = decoder.parse(texts)
        title = tree.find("title")[0]
        self.readers.append(title)
        opened = self.readers[number]
        rows = opened[2:5]
        for row in opened:
            decoder.warm(row)
        self.readers[0].decode(texts)
        model = decoder.model(texts)
        self.readers.append(wrapped(model))
        model(rows)
        texts.clear()
        other = self.losses[number]
        other.decode(rows)

    def opened(self, name):
        reader = decoder.open(name)
        self.readers.append(reader)
        return reader

    def search(self, name):
        found = self.opened(name).find(name)
        for each in found:
            decoder.warm(each)
        decoder.warm(name)
"""
IN_CLASS, MADE, NAMED, FED_FLOATS, ELSEWHERE = 6, 15, 17, 19, 20
FILLED, PARSED, READ, GONE_OVER, DECODED, CALLED = 24, 26, 30, 31, 33, 36
ARGUMENT, OF_ANOTHER = 37, 39
RETURNED, RESULT, NEXT_TO_IT = 47, 48, 50
READERS = Owner(kind="class", name="Frames", file="/project/train.py", line=9, variable="readers")


def kept(
    line: int,
    held: str = "__main__.Reader",
    owner: Owner = READERS,
    grown: Callable[[State], float] = lambda s: s.step * MIB,
    **more: object,
) -> Report:
    """Analyse a run in which a list gets an item of 60 bytes a step and a library a MiB."""
    thing = Thing(
        f"__main__·dataset.{owner.variable}",
        lambda s: 20_000 + 60 * s.step,
        length=lambda s: s.step,
        owner=owner,
        name=f"Frames.{owner.variable}",
        holds=(Content(type=held, count=100, bytes=6000),),
    )
    run = Program(epochs=14).plant(thing).swell(grown).build()
    run.main.sources["/project/train.py"] = SOURCE
    for measurement in run.main.measurements[::4]:
        boundary = measurement.boundary
        record = NativeAllocationsRecord(
            boundary=boundary.index,
            interval_bytes=1 << 19,
            sites=[site(boundary.step * MIB, line, **more)],
        )
        run.main.native_allocations.append(record)
    return analyse(run)


@pytest.mark.parametrize(
    ("line", "held"),
    [
        pytest.param(IN_CLASS, "__main__.Reader", id="in the class of its items"),
        pytest.param(NAMED, "decoder.Stream", id="where what is appended gets its name"),
        pytest.param(NAMED + 1, "decoder.Stream", id="where it is appended"),
        pytest.param(FILLED, "decoder.Message", id="where it is filled before"),
        pytest.param(PARSED, "decoder.Text", id="where what it is a part of is made"),
        pytest.param(READ, "decoder.Volume", id="where a part of an item is read"),
        pytest.param(GONE_OVER, "decoder.Volume", id="where an item is gone over"),
        pytest.param(DECODED, "decoder.Stream", id="where a method of an item runs"),
        pytest.param(CALLED, "decoder.Model", id="where an item is called"),
        pytest.param(RETURNED, "decoder.Stream", id="where a function that appends one returns it"),
        pytest.param(RESULT, "decoder.Stream", id="where what it gives is gone over"),
    ],
)
def test_what_a_library_allocates_for_the_items_of_a_container_is_the_containers(
    line: int, held: str
) -> None:
    report = kept(line, held)
    (culprit,) = report.culprits
    assert culprit.name == "Frames.readers"
    assert culprit.severity is not Severity.NOTE
    assert culprit.unit == "step"
    assert culprit.bytes_per_unit == pytest.approx(MIB, rel=0.05)
    assert culprit.native is not None
    assert (culprit.native.library, culprit.native.allocated_at) == (
        "libdecoder.so",
        f"train.py:{line}",
    )
    assert "native memory that its items keep" in culprit.sentence
    assert not [f for f in report.findings if f.kind == "unexplained"]
    assert report.verdict is RunVerdict.LEAK


@pytest.mark.parametrize(
    ("line", "held", "variable"),
    [
        pytest.param(ELSEWHERE, "__main__.Reader", "readers", id="another line of the function"),
        pytest.param(ARGUMENT, "decoder.Text", "readers", id="what an item was made from"),
        pytest.param(OF_ANOTHER, "decoder.Text", "readers", id="an item of another container"),
        pytest.param(NEXT_TO_IT, "decoder.Stream", "readers", id="next to where one is used"),
        pytest.param(FED_FLOATS, "float", "losses", id="numbers own nothing"),
        pytest.param(IN_CLASS, "decoder.Stream", "readers", id="items of another class"),
    ],
)
def test_what_is_allocated_elsewhere_stays_a_culprit_of_its_own(
    line: int, held: str, variable: str
) -> None:
    owner = msgspec.structs.replace(READERS, variable=variable)
    report = kept(line, held, owner)
    assert not [c for c in report.culprits if c.native is not None]
    assert f"train.py:{line}" in finding(report, "unexplained").title


def test_what_torch_has_in_c_plus_plus_for_each_tensor_is_its_containers() -> None:
    owner = msgspec.structs.replace(READERS, variable="losses")
    report = kept(FED_FLOATS, "torch.Tensor", owner, library="libtorch_cpu.so")
    (culprit,) = report.culprits
    assert culprit.bytes_per_unit == pytest.approx(MIB, rel=0.05)
    assert not [f for f in report.findings if f.kind == "unexplained"]
    others = kept(ELSEWHERE, "torch.Tensor", owner, library="libtorch_cpu.so")
    assert not [c for c in others.culprits if c.native is not None]


def test_what_grows_with_an_event_does_so_with_all_that_its_items_keep() -> None:
    """One save in 20 steps, with 20 MiB."""

    def saved(state: State) -> int:
        return state.step // 20

    thing = Thing(
        "__main__·dataset.readers",
        lambda s: 20_000 + 6000 * saved(s),
        length=saved,
        owner=READERS,
        name="Frames.readers",
        holds=(Content(type="__main__.Reader", count=100, bytes=6000),),
    )
    program = Program(epochs=14).plant(thing).swell(lambda s: saved(s) * 20 * MIB)
    run = program.event("save", saved).build()
    run.main.sources["/project/train.py"] = SOURCE
    for measurement in run.main.measurements[::4]:
        boundary = measurement.boundary
        sites = [site(boundary.step // 20 * 20 * MIB, IN_CLASS)]
        run.main.native_allocations.append(
            NativeAllocationsRecord(boundary=boundary.index, interval_bytes=1 << 19, sites=sites)
        )
    (culprit,) = analyse(run).culprits
    assert culprit.per_event is not None
    (rate,) = culprit.per_event.rates
    assert rate.event == "save"
    assert rate.bytes_each == pytest.approx(20 * MIB, rel=0.1)


def test_what_several_lines_allocate_for_the_items_adds_up() -> None:
    thing = Thing(
        "__main__·dataset.readers",
        lambda s: 20_000 + 60 * s.step,
        length=lambda s: s.step,
        owner=READERS,
        name="Frames.readers",
        holds=(Content(type="decoder.Volume", count=100, bytes=6000),),
    )
    run = Program(epochs=14).plant(thing).swell(lambda s: 3 * s.step * MIB).build()
    run.main.sources["/project/train.py"] = SOURCE
    for measurement in run.main.measurements[::4]:
        boundary = measurement.boundary
        sites = [site(2 * boundary.step * MIB, READ), site(boundary.step * MIB, NAMED)]
        run.main.native_allocations.append(
            NativeAllocationsRecord(boundary=boundary.index, interval_bytes=1 << 19, sites=sites)
        )
    report = analyse(run)
    (culprit,) = report.culprits
    assert culprit.bytes_per_unit == pytest.approx(3 * MIB, rel=0.05)
    assert culprit.native is not None
    assert culprit.native.allocated_at == f"train.py:{READ}"
    assert not [f for f in report.findings if f.kind == "unexplained"]


def test_what_threads_of_a_library_keep_is_not_taken_for_the_items() -> None:
    report = kept(DECODED, "decoder.Stream", is_awaited=True)
    assert not [c for c in report.culprits if c.native is not None]
    assert f"train.py:{DECODED}" in finding(report, "unexplained").title


def test_pages_that_a_library_allocates_and_never_writes_are_no_part_of_the_rate() -> None:
    report = kept(DECODED, "decoder.Stream", grown=lambda s: s.step * 3 * MIB / 4)
    (culprit,) = report.culprits
    assert culprit.native is not None
    assert culprit.bytes_per_unit == pytest.approx(3 * MIB / 4, rel=0.05)


def test_native_memory_of_items_is_no_leak_while_memory_rests() -> None:
    report = kept(IN_CLASS, grown=lambda _: 0.0)
    assert report.verdict is RunVerdict.CLEAN
    assert not [c for c in report.culprits if c.native is not None]


@pytest.mark.parametrize(
    ("item_bytes", "free", "verdict"),
    [
        pytest.param(60, 900 * MIB, RunVerdict.INCONCLUSIVE, id="into what was free"),
        pytest.param(60, 0, RunVerdict.CLEAN, id="nothing was free: its pages aren't touched"),
        pytest.param(0, 900 * MIB, RunVerdict.CLEAN, id="and no name grows"),
    ],
)
def test_native_memory_that_grows_with_a_name_while_memory_rests_leaves_a_run_open(
    item_bytes: int, free: int, verdict: RunVerdict
) -> None:
    thing = Thing(
        "__main__·dataset.readers",
        lambda s: 20_000 + item_bytes * s.step,
        length=lambda s: s.step,
        owner=READERS,
        name="Frames.readers",
    )
    program = Program(epochs=14, rss_noise=0.0).plant(thing).swell(lambda s: -item_bytes * s.step)
    run = program.gauge(gauge.MALLOC_FREE, lambda s: free).build()
    for measurement in run.main.measurements[::4]:
        sites = [site(measurement.boundary.step * MIB, ELSEWHERE)]
        run.main.native_allocations.append(
            NativeAllocationsRecord(
                boundary=measurement.boundary.index, interval_bytes=1 << 19, sites=sites
            )
        )
    report = analyse(run)
    assert report.verdict is verdict, report.headline
    assert ("into what the C heap held free" in report.headline) is (
        verdict is RunVerdict.INCONCLUSIVE
    )


def term(report: Report, kind: str) -> LedgerEntry | None:
    return next((e for e in report.ledgers[0].entries if e.kind == kind), None)


def test_native_allocations_are_a_term_of_the_ledger_with_their_interval() -> None:
    report = report_with(
        lambda step: [site(0.8 * step * MIB, 31, deviation_bytes=3 * MIB)], lambda s: s.step * MIB
    )
    native, left = term(report, "native"), term(report, "unexplained")
    assert native is not None
    assert left is not None
    assert native.bytes == pytest.approx(0.8 * report.ledgers[0].total_bytes, rel=0.05)
    assert left.bytes == pytest.approx(0.2 * report.ledgers[0].total_bytes, rel=0.1)
    assert re.search(r"sampled: .* to .* more are live", native.note)
    assert any(d.subject == native.label and "growing" in d.outcome for d in report.decisions)


@pytest.mark.parametrize(
    "more",
    [{"owner": owner} for owner in NativeOwner if owner is not NativeOwner.LIBRARY]
    + [
        {"library": "_imaging.cpython-312-x86_64-linux-gnu.so"},
        {"library": "_backend_agg.cpython-312-x86_64-linux-gnu.so"},
        {"library": "libarrow.so.2000"},
    ],
)
def test_what_others_keep_books_of_is_no_term(more: dict[str, object]) -> None:
    report = report_with(lambda step: [site(step * MIB, 31, **more)], lambda s: s.step * MIB)
    assert term(report, "native") is None


def test_no_more_is_counted_than_the_other_terms_leave() -> None:
    run = lambda step: [site(3 * step * MIB, 31)]  # noqa: E731  reserved, but not resident
    report = report_with(run, lambda s: s.step * MIB)
    assert sum(e.bytes for e in report.ledgers[0].entries) == report.ledgers[0].total_bytes
    left = term(report, "unexplained")
    assert left is not None
    assert left.bytes == 0


def test_a_container_that_explains_the_growth_leaves_none_of_it_to_native_allocations() -> None:
    run = Program(epochs=14).leak("__main__·history", MIB, per="step").build()
    for measurement in run.main.measurements[::4]:
        step = measurement.boundary.step
        record = NativeAllocationsRecord(
            boundary=measurement.boundary.index, interval_bytes=1 << 19, sites=[site(step * MIB, 3)]
        )
        run.main.native_allocations.append(record)
    native = term(analyse(run), "native")
    assert native is None or native.bytes < 0.2 * analyse(run).ledgers[0].total_bytes


def with_records(run: Run, sites: Callable[[State], list[NativeSite]]) -> Run:
    for measurement in run.main.measurements[::2]:
        boundary = measurement.boundary
        found = sites(State(step=boundary.step))
        record = NativeAllocationsRecord(
            boundary=boundary.index,
            interval_bytes=1 << 19,
            sites=found,
            bytes=sum(each.bytes for each in found),
            by_owner={"library": 3, "tensor": 5},
        )
        run.main.native_allocations.append(record)
    return run


def test_the_peak_is_composed_of_what_was_live_where_private_memory_was_highest() -> None:
    """In the middle of the run; pages of a file make resident memory highest at its end."""
    top = 280
    run = Program(epochs=14).swell(lambda s: 200 * MIB - abs(s.step - top) * MIB / 2)
    run.gauge(gauge.MAPPED, lambda s: s.step * 2 * MIB)
    run.swell(lambda s: s.step * 2 * MIB)

    def live(state: State) -> list[NativeSite]:
        return [site(300 * MIB - abs(state.step - top) * MIB, 31), site(MIB, 12)]

    peak = analyse(with_records(run.build(), live)).peak
    assert peak is not None
    assert peak.step == pytest.approx(top, abs=20)
    assert [row.location for row in peak.sites] == ["train.py:31", "train.py:12"]
    assert peak.sites[0].library == "libdecoder.so"
    assert list(peak.by_owner) == ["tensor", "library"]
    assert peak.private_bytes <= peak.highest_bytes <= 1.05 * peak.private_bytes


def test_tensors_and_objects_of_python_belong_to_the_composition_of_the_peak() -> None:
    owners = [NativeOwner.TENSOR, NativeOwner.INTERPRETER, NativeOwner.ARRAY]
    sites = [site(MIB * (9 - n), n + 1, owner=owner) for n, owner in enumerate(owners)]
    peak = analyse(with_records(Program().build(), lambda _: sites)).peak
    assert peak is not None
    assert [row.owner for row in peak.sites] == [owner.value for owner in owners]


def test_without_sampled_allocations_nothing_is_reported_of_the_peak() -> None:
    assert analyse(Program().build()).peak is None
