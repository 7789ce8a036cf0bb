"""Registries of the interpreter that only C code refers to, known by type and by the call."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic_runs import KIB, MIB, Program, Size, Thing

from leakscope.analysis import analyse
from leakscope.model import gauge
from leakscope.model.census import RootKind
from leakscope.model.record import (
    NativeAllocationsRecord,
    NativeSite,
    RegistryEntriesRecord,
)
from leakscope.model.report import Culprit, Finding, Severity

LISTENING = """
import sqlalchemy
from sqlalchemy import event

def main():
    engine = sqlalchemy.create_engine("sqlite://")
    for step in range(200):
        {lines}
"""


def listeners(
    *, entries: Size, lines: int = 1, library: str = "sqlalchemy.engine.base.Engine"
) -> Culprit:
    """Return what is reported of a list of a library's object that gains one item in each step."""
    engine = Thing(
        "main()·engine", lambda s: 800.0 + s.step * 300 * KIB, "object", library,
        root=RootKind.LOCAL,
    )  # fmt: skip
    kept = Thing(
        "main()·engine.dispatch.begin.listeners", lambda s: 60.0 + s.step * 300 * KIB, "deque",
        "collections.deque", "main()·engine", RootKind.LOCAL, length=lambda s: s.step,
    )  # fmt: skip
    program = Program(epochs=5, validation=0).plant(engine, kept)
    run = program.gauge(gauge.registry("event-listeners"), entries).build()
    calls = "\n        ".join(['event.listen(engine, "begin", made())'] * lines)
    run.main.sources["/project/train.py"] = LISTENING.replace("{lines}", calls)
    return next(c for c in analyse(run).culprits if c.name.endswith("listeners"))


@pytest.mark.parametrize("lines", [1, 2])
def test_what_a_librarys_object_keeps_of_each_registration_is_fed_by_the_registering_line(
    lines: int,
) -> None:
    found = listeners(entries=lambda s: 5.0 + lines * s.step, lines=lines)
    assert found.fed_at == [f"train.py:{8 + line}" for line in range(lines)]


@pytest.mark.parametrize(
    ("entries", "library"),
    [
        pytest.param(lambda s: 5.0 + 3 * s.step, "sqlalchemy.engine.base.Engine", id="faster"),
        pytest.param(lambda s: 5.0, "sqlalchemy.engine.base.Engine", id="at rest"),
        pytest.param(lambda s: 5.0 + s.step, "kombu.connection.Connection", id="another library's"),
        pytest.param(lambda s: 5.0 + s.step, "__main__.Engine", id="the program's own"),
    ],
)
def test_a_registry_that_has_nothing_to_do_with_a_container_feeds_it_by_no_line(
    entries: Size, library: str
) -> None:
    assert listeners(entries=entries, library=library).fed_at == []


LOOP = "import atexit, codecs, contextvars, sys\nfor epoch in range(9):\n    "


def found_in(text: str, type_name: str) -> Finding:
    """Return what is found in a program of which native code keeps ever more of a type."""
    held = Thing(
        f"<held by native code>·{type_name}", lambda s: s.epochs_done * 4 * MIB, "object",
        type_name, root=RootKind.NATIVE, user=False, count=lambda s: s.epochs_done,
    )  # fmt: skip
    run = Program(epochs=10, full_every=1).plant(held).build()
    run.main.sources["/project/train.py"] = text
    return next(f for f in analyse(run).findings if f.kind == "native_held")


@pytest.mark.parametrize(
    ("call", "type_name", "title"),
    [
        ("sys.addaudithook(hook)", "function", "Audit hooks pile up"),
        ("codecs.register(search)", "list", "Search functions of codecs pile up"),
        ("codecs.register_error(name, handler)", "dict", "Error handlers of codecs pile up"),
        ("variable.set(batch)", "_contextvars.Context", "Values of context variables pile up"),
        ("atexit.register(save)", "method", "Calls pile up that are to be made when the program"),
    ],
)
def test_the_registry_is_named_with_the_line_that_fills_it(
    call: str, type_name: str, title: str
) -> None:
    found = found_in(f"{LOOP}{call}\n", type_name)
    assert found.title.startswith(title)
    assert found.fed_at == ["train.py:3"]
    assert "train.py:3" in found.text


@pytest.mark.parametrize(
    ("text", "type_name"),
    [
        pytest.param("import sys\nsys.addaudithook(hook)\n", "function", id="registered once"),
        pytest.param(f"{LOOP}sys.addaudithook(hook)\n", "dict", id="another type"),
        pytest.param(f"{LOOP}settings.register(hook)\n", "list", id="another owner"),
        pytest.param(f"{LOOP}settings.set(value)\n", "list", id="a setter of something else"),
    ],
)
def test_what_only_looks_like_a_registration_is_not_blamed(text: str, type_name: str) -> None:
    found = found_in(text, type_name)
    assert found.title == f"{type_name} objects that only native code holds"
    assert found.fed_at == []


def counted(entries: Size, memory: Size, name: str = "operators") -> Program:
    program = Program(epochs=12).gauge(gauge.registry(name), entries)
    return program.swell(memory)


def registries_in(program: Program, text: str = "") -> list[Finding]:
    run = program.build()
    run.main.sources["/project/train.py"] = text
    return [f for f in analyse(run).findings if f.kind == "registry"]


def test_memory_without_a_name_is_put_down_to_a_registry_that_grows_with_it() -> None:
    text = f"import torch\n{LOOP}library.define(schema)\n"
    program = counted(lambda s: 900 + s.epochs_done * 5, lambda s: s.epochs_done * 9 * MIB)
    (found,) = registries_in(program, text)
    assert found.severity is Severity.WARNING
    assert found.bytes_per_unit == pytest.approx(9 * MIB, rel=0.1)
    assert found.fed_at == ["train.py:4"]
    assert "torch.library._defs" in found.text


def test_a_registry_that_grows_while_memory_rests_is_a_note() -> None:
    (found,) = registries_in(counted(lambda s: 900 + s.epochs_done * 5, lambda s: 0.0))
    assert (found.severity, found.total_bytes) == (Severity.NOTE, 0.0)


def test_memory_that_grows_at_other_times_is_not_put_down_to_it() -> None:
    program = counted(
        lambda s: 900 + s.epochs_done * 5, lambda s: 20 * MIB * (s.epochs_done % 3 == 0)
    )
    assert all(f.severity is Severity.NOTE for f in registries_in(program))


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        pytest.param("operators", lambda s: 900 + min(s.epochs_done, 3) * 20, id="filled at first"),
        pytest.param("operators", lambda s: 900 + s.epochs_done, id="a few"),
        pytest.param("patterns", lambda s: 100 + s.epochs_done * 20, id="one with a bound"),
        pytest.param("operators", lambda s: 900 + 40 * (s.step % 2), id="taken back"),
    ],
)
def test_what_ends_to_grow_is_no_registry_that_leaks(name: str, entries: Size) -> None:
    assert registries_in(counted(entries, lambda s: s.epochs_done * 9 * MIB, name)) == []


def test_of_two_registries_the_one_that_the_program_fills_has_the_memory() -> None:
    program = counted(lambda s: 900 + s.epochs_done * 50, lambda s: s.epochs_done * 9 * MIB)
    program.gauge(gauge.registry("finalizers"), lambda s: s.epochs_done * 3)
    found = registries_in(program, f"import weakref\n{LOOP}weakref.finalize(model, save)\n")
    titles = {f.title: f.severity for f in found}
    assert titles == {
        "More and more finalizers of objects that are alive": Severity.WARNING,
        "More and more operators and kernels that were registered": Severity.NOTE,
    }


@pytest.mark.parametrize("is_leak", [True, False])
def test_little_memory_is_put_down_to_a_registry_only_where_it_leaks_without_a_name(
    is_leak: bool,
) -> None:
    path = "<held by native code>·dict"
    program = counted(lambda s: 900 + s.epochs_done * 5, lambda s: 0)
    size = (lambda s: s.step * 0.1 * MIB) if is_leak else (lambda s: s.epochs_done * 10_000)
    program.plant(Thing(path, size, "dict", root=RootKind.NATIVE, user=False))
    (found,) = registries_in(program)
    assert (found.severity is Severity.WARNING) is is_leak


@pytest.mark.parametrize(("call", "is_its"), [("sys.modules[name] = made", True), ("", False)])
def test_what_the_program_stores_in_a_registry_may_be_made_anywhere(
    call: str, is_its: bool
) -> None:
    text = f"import sys\nfor name in names:\n    importlib.import_module(name)\n    {call}\n"
    program = counted(lambda s: 900 + s.epochs_done * 5, lambda s: s.epochs_done * MIB, "modules")
    run = program.build()
    run.main.sources["/project/train.py"] = text
    for measurement in run.main.measurements[::4]:
        done = measurement.boundary.step / program.steps
        site = NativeSite(
            library="libother.so", function="make", file="/project/train.py", line=9,
            bytes=int(done * MIB), samples=5,
        )  # fmt: skip
        run.main.native_allocations.append(
            NativeAllocationsRecord(
                boundary=measurement.boundary.index, interval_bytes=1 << 19, sites=[site]
            )
        )
    (found,) = [f for f in analyse(run).findings if f.kind == "registry"]
    assert (found.severity is Severity.WARNING) is is_its


@pytest.mark.parametrize("line", [4, 9])
def test_little_memory_is_a_registrys_where_the_line_that_registers_allocates_it(
    line: int,
) -> None:
    text = f"import torch\n{LOOP}library.define(schema)\n"
    program = counted(lambda s: 900 + s.epochs_done * 5, lambda s: s.epochs_done * MIB)
    run = program.build()
    run.main.sources["/project/train.py"] = text
    for measurement in run.main.measurements[::4]:
        done = measurement.boundary.step / program.steps
        site = NativeSite(
            library="libtorch_python.so", function="define", file="/project/train.py", line=line,
            bytes=int(done * MIB), samples=5,
        )  # fmt: skip
        run.main.native_allocations.append(
            NativeAllocationsRecord(
                boundary=measurement.boundary.index, interval_bytes=1 << 19, sites=[site]
            )
        )
    (found,) = [f for f in analyse(run).findings if f.kind == "registry"]
    assert found.severity is (Severity.WARNING if line == 4 else Severity.NOTE)


def test_the_latest_entries_of_a_registry_are_named() -> None:
    program = counted(lambda s: 900 + s.epochs_done * 5, lambda s: s.epochs_done * 9 * MIB)
    run = program.build()
    for names in (["first"], ["mine::conv7", "mine::conv6"]):
        entries = {"operators": names, "loggers": ["other"]}
        run.main.registry_entries.append(RegistryEntriesRecord(boundary=0, entries=entries))
    (found,) = [f for f in analyse(run).findings if f.kind == "registry"]
    assert "Among the latest: `mine::conv7`, `mine::conv6`." in found.text
    assert "other" not in found.text


def test_a_store_under_a_key_of_a_registry_fills_it() -> None:
    text = (
        "import sys\n"
        "def load(name, code):\n"
        "    others[name] = code\n"
        "    sys.modules[name] = module = make(name)\n"
        "    exec(code, module.__dict__)\n"
        "for name, code in texts:\n"
        "    load(name, code)\n"
    )
    program = counted(
        lambda s: 900 + s.epochs_done * 5, lambda s: s.epochs_done * 9 * MIB, "modules"
    )
    (found,) = registries_in(program, text)
    assert found.fed_at == ["train.py:4"]


def test_records_that_wait_for_a_tracker_are_reported_by_what_keeps_them() -> None:
    text = f"{LOOP}writer.add_histogram('weights', weights, epoch)\n"
    program = counted(
        lambda s: s.epochs_done * 30, lambda s: s.epochs_done * 9 * MIB, "tracker-records"
    )
    (found,) = registries_in(program, text)
    assert found.severity is Severity.WARNING
    assert found.fed_at == ["train.py:3"]
    assert "the queue of the tracker's thread keeps each" in found.text


def culprit_of(row: Thing, text: str) -> Culprit:
    """Return the culprit that a row of a library is, in a program with these lines."""
    run = Program(epochs=12, full_every=1).plant(row).build()
    run.main.sources["/project/train.py"] = text
    (culprit,) = analyse(run).culprits
    return culprit


def library_row(path: str, **more: Any) -> Thing:
    size = more.pop("size", lambda s: s.epochs_done * 4 * MIB)
    return Thing(path, size, "dict", "dict", root=RootKind.LIBRARY, user=False, **more)


@pytest.mark.parametrize(
    ("path", "call", "is_named"),
    [
        ("encodings·_cache", "codecs.lookup(name)", True),
        ("re·_cache", "codecs.lookup(name)", False),
        ("linecache·cache", "linecache.getlines(name)", True),
        ("torch._dynamo.eval_frame·cached_backends", "torch.compile(f, backend=g)", True),
        ("torch.optim.optimizer·_global_optimizer_post_hooks",
         "register_optimizer_step_post_hook(save)", True),
        ("torch.optim.optimizer·_global_optimizer_post_hooks",
         "module.register_module_forward_hook(save)", False),
        ("a_b.wrap·KernelSideTable", "kernel_side_table.add_kernel(kernel)", False),
        ("torch._higher_order_ops.triton_kernel_wrap·KernelSideTable",
         "kernel_side_table.add_kernel(kernel)", True),
        ("typing·_overload_registry", "exec(text, names)", True),
        ("multiprocessing.process·_children", "worker.start()", True),
    ],
)  # fmt: skip
def test_a_row_that_is_a_registry_has_the_lines_that_fill_it(
    path: str, call: str, is_named: bool
) -> None:
    lines = ["train.py:3"] if is_named else []
    if path.endswith("post_hooks") and not is_named:
        call, lines = f"{call}\n    register_optimizer_step_post_hook(save)", ["train.py:4"]
    assert culprit_of(library_row(path), f"{LOOP}{call}\n").fed_at == lines


def test_a_decorator_fills_a_registry_as_a_call_does() -> None:
    text = "import typing\ndef load():\n    @typing.overload\n    def f(x): ...\nfor n in names:\n"
    row = library_row("typing·_overload_registry")
    assert culprit_of(row, f"{text}    load()\n    exec(text)\n").fed_at == ["train.py:3"]


def test_deleting_an_entry_of_a_librarys_dict_feeds_nothing() -> None:
    text = "from pandas._config import config\nfor key in keys:\n    config.options[key] = 1\n"
    row = library_row("pandas._config.config·options")
    found = culprit_of(row, f"{text}    del config.options[key]\n")
    assert found.fed_at == ["train.py:3"]


def test_a_registry_with_a_bound_that_fills_is_no_leak() -> None:
    filling = library_row(
        "re·_cache", size=lambda s: s.step * 40_000, length=lambda s: min(s.step, 512)
    )
    report = analyse(Program(epochs=4, full_every=1).plant(filling).build())
    assert report.culprits == []
    assert any(d.rule == "declares_a_bound" for d in report.decisions)


@pytest.mark.parametrize("registered", [True, False])
def test_atexit_is_blamed_only_where_more_is_registered_with_it(registered: bool) -> None:
    held = Thing(
        "<held by native code>·function", lambda s: s.epochs_done * 4 * MIB, "object", "function",
        root=RootKind.NATIVE, user=False, count=lambda s: s.epochs_done,
    )  # fmt: skip
    program = Program(epochs=24, full_every=1).plant(held)
    program.gauge(gauge.registry("exit-handlers"), lambda s: 5 + s.epochs_done * registered)
    run = program.build()
    run.main.sources["/project/train.py"] = (
        f"{LOOP}atexit.register(save)\n    sys.addaudithook(hook)\n"
    )
    (found,) = (f for f in analyse(run).findings if f.kind == "native_held")
    assert found.fed_at == ["train.py:3" if registered else "train.py:4"]


def test_a_count_that_never_falls_tells_nothing_where_entries_are_taken_back() -> None:
    text = f"{LOOP}atexit.register(save)\n    atexit.unregister(save)\n"
    program = counted(
        lambda s: s.epochs_done * 5, lambda s: s.epochs_done * 9 * MIB, "exit-handlers"
    )
    assert registries_in(program, text) == []
