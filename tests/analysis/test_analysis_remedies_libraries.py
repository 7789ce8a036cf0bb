"""Remedies where a bound of one's own would be wrong: libraries' objects, heaps, bounds that stand.

Each with a look-alike that the remedy must keep away from.
"""

from __future__ import annotations

import dataclasses
import textwrap

import msgspec
import pytest

from leakscope.analysis.remedies import propose
from leakscope.analysis.remedies.context import CulpritContext
from leakscope.analysis.source import SourceIndex
from leakscope.model.census import CensusRow, Content, Owner, RootKind, Site
from leakscope.model.report import Remedy


def row_at(path: str, kind: str, type_name: str = "", **more: object) -> CensusRow:
    return CensusRow(
        path=path,
        name=path.partition("·")[2],
        root=RootKind.LOCAL,
        type=type_name or kind,
        kind=kind,
        host_bytes=1 << 20,
        **more,
    )


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, the path of its culprit, and what the census says of what holds it."""

    text: str
    path: str
    kind: str = "list"
    holder: str = ""
    """Type of the object through whose attribute the culprit is named."""
    inside: tuple[CensusRow, ...] = ()
    unused: int = 0
    growth: str = "across"
    cls: str = ""
    inserted_at: int = 0
    """The line at which an insertion was seen."""
    unit: str = "epoch"
    type: str = ""

    def remedy(self) -> Remedy:
        variable = self.path.partition("·")[2].partition(".")[0]
        owner = Owner(kind="function", name="main", variable=variable, file="/p/train.py")
        if self.cls:
            attribute = self.path.rpartition(".")[2]
            owner = Owner(kind="class", name=self.cls, variable=attribute, file="/p/train.py")
        row = row_at(
            self.path,
            self.kind,
            self.type,
            owner=owner,
            length=100,
            unused_bytes={"host": self.unused} if self.unused else {},
            inserted_at=[Site(file="/p/train.py", line=self.inserted_at, count=9)]
            if self.inserted_at
            else [],
        )
        above = [row_at(f"main()·{variable}", "object", self.holder)] if self.holder else []
        sources = SourceIndex({"/p/train.py": textwrap.dedent(self.text)}, "/p")
        return propose(
            CulpritContext(
                row,
                growth=self.growth,
                unit=self.unit,
                phase="train",
                feeding=sources.feeding(owner, row),
                sources=sources,
                items_per_unit=1.0,
                above=above,
                inside=self.inside,
            )
        )


ENGINE = "ignite.engine.engine.Engine"
REARMED = Program(
    """
    def main():
        trainer = Engine(step)
        for epoch in range(9):
            trainer.add_event_handler(Events.STARTED, make(epoch))
    """,
    "main()·trainer._event_handlers[*]",
    holder=ENGINE,
)


def test_handlers_of_a_librarys_object_are_to_be_added_once_or_removed() -> None:
    remedy = REARMED.remedy()
    assert remedy.title == "Call trainer.add_event_handler once, or take back what it adds"
    assert "It belongs to Engine of ignite" in remedy.text
    assert "trainer.remove_event_handler(…)" in remedy.text
    assert "deque" not in remedy.text
    assert remedy.diff is None


def test_of_an_unknown_library_no_call_is_invented() -> None:
    remedy = dataclasses.replace(REARMED, holder="bus.core.Bus").remedy()
    assert "It belongs to Bus of bus" in remedy.text
    assert "remove_event_handler" not in remedy.text
    assert "(remove, detach, unregister)" in remedy.text


def test_what_a_library_gathers_of_a_call_that_registers_nothing_is_to_be_given_less() -> None:
    remedy = Program(
        """
        def main():
            model = build()
            for epoch in range(9):
                model.fit(batches)
        """,
        "main()·model.history['similarity']",
        holder="keras.src.models.functional.Functional",
    ).remedy()
    assert remedy.title == "Give Functional less to keep"
    assert "`model.fit(batches)`" in remedy.text


@pytest.mark.parametrize(
    ("holder", "path", "text"),
    [
        ("__main__.Engine", REARMED.path, REARMED.text),
        ("engines.Engine", REARMED.path, f"class Engine: ...\n{textwrap.dedent(REARMED.text)}"),
        (
            ENGINE,
            REARMED.path,
            """
            def main():
                trainer = Engine(step)
                trainer._event_handlers = {"started": []}
                for epoch in range(9):
                    trainer.add_event_handler("started", make(epoch))
            """,
        ),
        (
            ENGINE,
            REARMED.path,
            """
            def main():
                trainer = Engine(step)
                setattr(trainer, "_event_handlers", {})
                for epoch in range(9):
                    trainer.add_event_handler("started", make(epoch))
            """,
        ),
        (
            ENGINE,
            "main()·trainer.losses",
            """
            def main():
                trainer = Engine(step)
                trainer.losses = []
                for epoch in range(9):
                    trainer.losses.append(step())
                print(sum(trainer.losses))
            """,
        ),
        ("list", "main()·trainer[*]", REARMED.text),
    ],
    ids=["the user's class", "the user's module", "bound", "set", "public", "no object"],
)
def test_what_the_user_may_bound_is_no_librarys(holder: str, path: str, text: str) -> None:
    remedy = Program(text, path, holder=holder).remedy()
    assert "no bound can be set" not in remedy.text


STACKED = Program(
    """
    def main():
        with contextlib.ExitStack() as at_end:
            for epoch in range(9):
                at_end.callback(write, predict())
    """,
    "main()·at_end._exit_callbacks",
    kind="deque",
    holder="contextlib.ExitStack",
)


def test_a_list_of_the_programs_that_an_application_keeps_under_a_key_is_bounded_by_it() -> None:
    remedy = Program(
        """
        def main():
            app = Application()
            app["states"] = []
            while True:
                app["states"].append(read())
        """,
        "main()·app._state['states']",
        holder="aiohttp.web_app.Application",
        inserted_at=6,
    ).remedy()
    assert remedy.title == "Bound or empty app._state['states']"


def test_an_exit_stack_is_to_be_closed_not_bounded() -> None:
    remedy = STACKED.remedy()
    assert remedy.title == "Open the ExitStack in each epoch, or close it there"
    assert "with contextlib.ExitStack() as at_end:" in remedy.text
    assert "at_end.close()" in remedy.text
    assert "maxlen" not in remedy.text


@pytest.mark.parametrize("unit", ["minute", "request"])
def test_an_exit_stack_of_a_program_without_rounds_is_closed_when_its_work_is_done(
    unit: str,
) -> None:
    remedy = dataclasses.replace(STACKED, unit=unit).remedy()
    assert remedy.title == "Close the ExitStack when the work that opened it is done"


def test_a_deque_of_ones_own_is_bounded_as_ever() -> None:
    remedy = dataclasses.replace(STACKED, path="main()·at_end", holder="").remedy()
    assert "ExitStack" not in remedy.title


HEAP = """
    import heapq
    def main():
        hard = []
        for step in range(9):
            heapq.heappush(hard, (loss(step), step))
        print(heapq.{read}(10, hard))
    """


def test_a_heap_keeps_its_largest_by_heappushpop() -> None:
    remedy = Program(HEAP.format(read="nlargest"), "main()·hard").remedy()
    assert remedy.title == "Keep the N largest of hard with heapq.heappushpop"
    assert "deque" not in remedy.text
    assert "other sign" not in remedy.text


def test_a_heap_of_which_the_smallest_are_read_is_to_be_turned_round() -> None:
    remedy = Program(HEAP.format(read="nsmallest"), "main()·hard").remedy()
    assert "train.py:7 reads the smallest (nsmallest)" in remedy.text
    assert "other sign" in remedy.text


def test_a_heap_that_is_emptied_too_slowly_is_reported_as_such() -> None:
    text = HEAP.format(read="nlargest").replace("print", "heapq.heappop(hard)\n        print")
    assert "Something does take items out" in Program(text, "main()·hard").remedy().text


@pytest.mark.parametrize(
    "taken",
    ["timer = heapq.heappop(timers)", "heapq.heappop(timers)[1]()", "timers[0][0] <= now()"],
)
def test_of_a_heap_that_is_served_in_order_only_what_is_no_longer_needed_goes(taken: str) -> None:
    """The smallest of a queue is due next: it must not make room for later ones."""
    text = f"""
    import heapq
    def main():
        timers = []
        for step in range(9):
            heapq.heappush(timers, (now() + step, make(step)))
            {taken}
    """
    remedy = Program(text, "main()·timers").remedy()
    assert remedy.title == "Take entries out of timers that are no longer needed"
    assert "heapq.heapify(timers)" in remedy.text
    assert "heappushpop" not in remedy.text


def test_of_a_threads_own_values_the_threads_are_the_matter() -> None:
    text = """
    import threading
    own = threading.local()
    def main():
        own.scratch = bytearray(4096)
    """
    program = Program(text, "__main__·own", kind="other", type="_thread._local")
    assert program.remedy().title == "End the threads that have values in own, or delete these"


WRAPPED = """
    class App:
        def __init__(self):
            self.handler = answer
        def refresh(self, settings):
            self.handler = {made}
    def main():
        app = App()
        for step in range(9):
            app.refresh(step)
    """


@pytest.mark.parametrize(
    ("made", "is_wrapped"),
    [("with_log(self.handler, settings)", True), ("with_log(answer, settings)", False)],
)
def test_a_function_is_wrapped_once(made: str, is_wrapped: bool) -> None:
    remedy = Program(
        WRAPPED.format(made=made), "main()·app.handler", kind="function", cls="App"
    ).remedy()
    title = "Wrap the original, not what app.handler is already"
    assert (remedy.title == title) == is_wrapped


def test_a_handler_added_by_a_function_that_the_line_calls_is_added_once() -> None:
    text = """
    import logging
    def main():
        for step in range(9):
            log = logger_of("jobs", logging.handlers.MemoryHandler(30))
            log.info("job %d", step)
    """
    records = (row_at("logging·x", "object", "logging.LogRecord"),)
    program = Program(text, "logging·Logger.manager.loggerDict['jobs'].handlers", inside=records)
    remedy = dataclasses.replace(program, inserted_at=5).remedy()
    assert remedy.title == "Add the log handler once"
    assert remedy.diff is None


def test_a_heap_of_something_else_is_no_matter() -> None:
    text = HEAP.format(read="nlargest").replace("hard, (", "other, (") + "    hard.append(1)\n"
    assert "heap" not in Program(text, "main()·hard").remedy().title


RING = """
    class Ring:
        def __init__(self, capacity):
            self.capacity, self.items = capacity, []
        def __len__(self):
            return len(self.items)
        def push(self, item):
            {body}
        def sample(self, n):
            return random.sample(self.items, n)
    def main():
        ring = Ring(5400)
        for step in range(9):
            ring.push(step)
    """
GUARDED = {
    "below": "if len(self.items) < self.capacity:\n                self.items.append(item)",
    "mirrored": "if self.capacity > len(self.items):\n                self.items.append(item)",
    "own length": "if len(self) < self.capacity:\n                self.items.append(item)",
    "full": "if len(self.items) >= self.capacity:\n                self.items[0] = item\n"
    "            else:\n                self.items.append(item)",
    "left early": "if len(self.items) == self.capacity:\n                return\n"
    "            self.items.append(item)",
    "evicted": "self.items.append(item)\n            if len(self.items) > self.capacity:\n"
    "                self.items.pop(0)",
    "evicted before": "while len(self.items) >= self.capacity:\n                del self.items[0]\n"
    "            self.items.append(item)",
}


def ring(body: str) -> Remedy:
    text = RING.format(body=body)
    return Program(text, "main()·ring.items", cls="Ring").remedy()


def test_a_length_that_is_to_equal_a_number_before_entries_go_is_no_bound() -> None:
    body = "self.items.append(item)\n            if len(self.items) == self.capacity:\n"
    assert not ring(body + "                self.items.pop(0)").bound


@pytest.mark.parametrize("body", GUARDED.values(), ids=GUARDED)
def test_no_bound_is_made_up_next_to_one_that_stands_in_the_source(body: str) -> None:
    remedy = ring(body)
    assert remedy.title == "Lower self.capacity if ring.items takes too much"
    assert remedy.bound.startswith("self.capacity at ")
    assert "deque" not in remedy.text
    assert remedy.diff is None


def test_a_number_that_stands_in_the_source_is_a_bound() -> None:
    body = GUARDED["below"].replace("self.capacity", "50_000")
    assert ring(body).title == "Lower 50000 if ring.items takes too much"


LOOPED = (
    "for step in item:\n                if len(self.items) < step:\n"
    "                    self.items.append(item)"
)


@pytest.mark.parametrize(
    "body",
    [
        "self.items.append(item)",
        "if len(item) < self.capacity:\n                self.items.append(item)",
        "if len(self.items) > self.capacity:\n                self.items.append(item)",
        "if len(self.items) >= 0:\n                self.items.append(item)",
        "if len(self.items) > 1000:\n                print(1)\n            self.items.append(item)",
        "if len(self.items) < 10 * len(item):\n                self.items.append(item)",
        LOOPED,
        "self.capacity *= 2\n            " + GUARDED["below"],
    ],
    ids=["none", "another's length", "above", "always", "shown", "computed", "a loop's", "raised"],
)
def test_what_does_not_bound_is_no_bound(body: str) -> None:
    assert not ring(body).title.startswith("Lower")


def test_a_look_up_takes_nothing_out() -> None:
    text = """
        def main():
            cache = {}
            for key in keys:
                if len(cache) > 500:
                    found = cache.get(key)
                cache[key] = compute(key)
        """
    title = Program(text, "main()·cache", kind="dict").remedy().title
    assert not title.startswith("Lower")
    emptied = text.replace("found = cache.get(key)", "cache.popitem()")
    remedy = Program(emptied, "main()·cache", kind="dict").remedy()
    assert remedy.title == "Lower 500 if cache takes too much"


CARD = """
    def main():
        card = []
        for epoch in range(9):
            logits, accuracy = evaluate()
            card.append({stored})
    """
ARRAY = row_at("main()·card[*]['logits']", "array", "numpy.ndarray", unused_bytes={"host": 1000})
TENSOR = row_at("main()·card[*][0]", "tensor", "torch.Tensor", unused_bytes={"host": 1000})


@pytest.mark.parametrize(
    ("stored", "inside", "copied"),
    [
        ('{"accuracy": accuracy, "logits": logits[:4]}', (ARRAY,), '"logits": logits[:4].copy()}'),
        ("(logits[:4], accuracy)", (TENSOR,), "(logits[:4].clone(), accuracy)"),
    ],
)
def test_of_a_record_the_part_that_keeps_the_whole_is_copied(stored, inside, copied) -> None:
    text = CARD.replace("{stored}", stored)
    remedy = Program(text, "main()·card", inside=inside, unused=1 << 20).remedy()
    assert remedy.diff is not None
    assert copied in remedy.diff
    assert remedy.diff.count("\n+ ") == 1


def test_an_array_is_copied_and_a_tensor_cloned() -> None:
    text = CARD.replace("{stored}", "cut(logits)")
    array = Program(text, "main()·card", inside=(ARRAY,), unused=1 << 20).remedy()
    assert array.title == "Copy the slice before it is stored in card"
    assert ".copy() copies the part" in array.text
    assert "clone" not in array.text
    tensor = Program(text, "main()·card", inside=(TENSOR,), unused=1 << 20).remedy()
    assert tensor.title == "Clone the slice before it is stored in card"
    assert ".clone() copies the part" in tensor.text


def test_a_column_of_a_table_is_copied() -> None:
    series = row_at("main()·card[*]", "object", "pandas.Series", unused_bytes={"host": 1000})
    text = CARD.replace("{stored}", 'table["a"].iloc[:20]')
    remedy = Program(text, "main()·card", inside=(series,), unused=1 << 20).remedy()
    assert remedy.title == "Copy the slice before it is stored in card"
    assert remedy.diff is not None
    assert 'table["a"].iloc[:20].copy()' in remedy.diff


def test_what_is_of_no_known_type_is_reported_both_ways() -> None:
    text = CARD.replace("{stored}", '{"logits": logits[:4]}')
    holds = row_at("main()·card[*]", "dict", unused_bytes={"host": 1000})
    holds = dataclasses.replace(Program(text, "main()·card", unused=1 << 20), inside=(holds,))
    remedy = holds.remedy()
    assert ".clone() of a tensor or .copy() of an array copies the part" in remedy.text
    assert remedy.diff is None


def test_only_what_keeps_the_whole_tells_how_it_is_copied() -> None:
    whole = row_at("main()·card[*]['ids']", "tensor", "torch.Tensor")
    text = CARD.replace("{stored}", "cut(logits)")
    remedy = Program(text, "main()·card", inside=(whole, ARRAY), unused=1 << 20).remedy()
    assert ".copy() copies the part" in remedy.text


def library_row(kind: str, **more: object) -> CensusRow:
    row = row_at("somelib·gathered", kind, length=900, user=False, **more)
    return msgspec.structs.replace(row, root=RootKind.LIBRARY, name="somelib.gathered")


def of_library(row: CensusRow) -> Remedy:
    sources = SourceIndex({}, "/project", {})
    return propose(
        CulpritContext(row, growth="across", unit="step", phase="", feeding=[], sources=sources)
    )


@pytest.mark.parametrize(("hits", "never"), [(0, True), (7, False)])
def test_a_librarys_cache_is_to_be_cleared(hits: int, never: bool) -> None:
    remedy = of_library(library_row("lru_cache", capacity=1024, hits=hits))
    assert remedy.title == "Call somelib.gathered.cache_clear() now and then"
    assert ("has never answered one" in remedy.text) is never


def test_a_librarys_registry_is_to_be_given_less_though_no_line_is_known() -> None:
    remedy = of_library(library_row("dict"))
    assert remedy.title == "Register once, or take back what somelib.gathered keeps"
    assert "newer release" in remedy.text


def remedy_at(path: str, kind: str, **more: object) -> Remedy:
    return propose(
        CulpritContext(
            msgspec.structs.replace(row_at(path, kind, **more), root=RootKind.LIBRARY),
            growth="across",
            unit="epoch",
            phase="train",
            feeding=[],
            sources=SourceIndex({}, "/p"),
            items_per_unit=1.0,
        )
    )


@pytest.mark.parametrize("metaclass", ["type", "abc.ABCMeta", "torch._C._TensorMeta"])
def test_classes_that_are_made_again_and_again_are_to_be_made_once(metaclass: str) -> None:
    holds = [Content(type=metaclass, count=7, bytes=28 << 20)]
    remedy = remedy_at("__main__·registry", "dict", holds=holds)
    assert remedy.title == "Make each class in registry once"
    assert "It holds 7 classes that were made while the program ran, 4 MiB each." in remedy.text


def test_what_holds_instances_holds_no_classes() -> None:
    holds = [Content(type="__main__.Metadata", count=7, bytes=28 << 20)]
    assert "class" not in remedy_at("__main__·registry", "dict", holds=holds).title


def test_modules_that_are_loaded_under_numbered_names_are_to_be_loaded_once() -> None:
    remedy = remedy_at("plugin_*·table", "tensor")
    assert remedy.title.startswith("Load plugin_* once, or take each out of sys.modules")
    assert "Load" not in remedy_at("plugin·table", "tensor").title
