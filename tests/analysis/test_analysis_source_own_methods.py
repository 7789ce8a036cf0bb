"""Which lines feed a container of a class that the user derived from a built-in one."""

from __future__ import annotations

import textwrap

import pytest

from leakscope.analysis.source import SourceIndex
from leakscope.model.census import CensusRow, Owner, RootKind

CALLER = """
def main():
    store = Store(8)
    for batch in loader:
        {call}
"""


def fed_at(text: str, kind: str = "list", base: str = "Store") -> list[str]:
    """Return the texts of the lines that are named, the likeliest first."""
    row = CensusRow(
        path="main()·store",
        name="main.store",
        root=RootKind.LOCAL,
        owner=Owner(kind="function", name="main", variable="store", file="/p/train.py"),
        type=f"__main__.{base}",
        kind=kind,
        host_bytes=1 << 20,
    )
    return [line.text for line in SourceIndex({"/p/train.py": text}).feeding(row.owner, row)]


def program(body: str, call: str, base: str = "list") -> str:
    methods = textwrap.indent(textwrap.dedent(body), "    ")
    return f"class Store({base}):\n{methods}\n{CALLER.format(call=call)}"


def test_a_method_that_the_program_calls_feeds_it_not_the_call() -> None:
    body = """
    def remember(self, item):
        self.append(item)
        if len(self) > self.capacity:
            self[:] = sorted(self, key=born)
    def sample(self, k):
        return random.sample(self[-self.capacity :], k)
    """
    text = program(body, "store.remember(batch); store.sample(3)")
    assert fed_at(text) == ["self.append(item)"]


@pytest.mark.parametrize("name", ["push", "put_in", "write"])
def test_neither_does_the_call_of_one_that_only_sounds_like_a_containers(name: str) -> None:
    body = f"""
    def {name}(self, item):
        super().append(item)
        while len(self) > self.capacity:
            self.popleft()
    """
    text = program(body, f"store.{name}(batch)", base="deque")
    assert fed_at(text, kind="deque") == ["super().append(item)"]


@pytest.mark.parametrize(
    "written",
    [
        "self[text] = counts",
        "super().__setitem__(text, counts)",
        "dict.__setitem__(self, text, counts)",
        "self.update({text: counts})",
    ],
)
def test_a_missing_key_is_made_by_the_class_itself(written: str) -> None:
    body = f"""
    def __missing__(self, text):
        counts = count(text)
        {written}
        return counts
    """
    text = program(body, "use(store[batch])", base="dict")
    assert fed_at(text, kind="dict") == [written]


def test_a_method_that_is_reached_through_another_feeds_it() -> None:
    body = """
    def remember(self, item):
        self._keep(item)
    def _keep(self, item):
        self.append(item)
    """
    assert fed_at(program(body, "store.remember(batch)")) == ["self.append(item)"]


def test_a_method_of_the_base_class_feeds_it() -> None:
    text = f"""
class Base(list):
    def remember(self, item):
        self.append(item)
class Store(Base):
    def remember(self, item):
        super().remember(item.cpu())
{CALLER.format(call="store.remember(batch)")}
"""
    assert fed_at(text) == ["self.append(item)"]


def test_a_method_of_the_base_class_that_is_replaced_does_not() -> None:
    text = f"""
class Base(list):
    def remember(self, item):
        self.append(item)
class Store(Base):
    def remember(self, item):
        self.insert(0, item)
{CALLER.format(call="store.remember(batch)")}
"""
    assert fed_at(text) == ["self.insert(0, item)"]


def test_a_method_that_is_only_called_on_another_of_its_class_does_not() -> None:
    text = """
class Store(list):
    def remember(self, item):
        self.append(item)
    def note(self, item):
        self.insert(0, item)
def main():
    store, notes = Store(), Store()
    for batch in loader:
        store.remember(batch)
        notes.note(batch)
"""
    assert fed_at(text) == ["self.append(item)"]


def test_lines_outside_the_class_feed_it_where_the_class_only_passes_them_on() -> None:
    body = """
    def append(self, item):
        super().append(item.cpu())
    """
    assert fed_at(program(body, "store.append(batch)")) == ["store.append(batch)"]


def test_another_list_that_the_class_fills_does_not_feed_it() -> None:
    body = """
    def remember(self, item):
        recent = []
        recent.append(item)
        self.append(item)
    """
    assert fed_at(program(body, "store.remember(batch)")) == ["self.append(item)"]


def test_where_no_call_of_a_method_is_found_any_may_feed_it() -> None:
    body = """
    def remember(self, item):
        self.append(item)
    """
    assert fed_at(program(body, "step(store)")) == ["self.append(item)"]


@pytest.mark.parametrize(
    ("written", "feeds"),
    [
        ("store[:] = store[-9:]", False),
        ("store[:] = [x for x in store if x]", False),
        ("store[:] = [grown(x) for x in store]", True),
        ("store[:] = [x for x in batch]", True),
        ("store[:3] = sorted(store)", True),
    ],
)
def test_what_only_rearranges_a_list_does_not_feed_it(written: str, feeds: bool) -> None:
    text = f"""
def main():
    store = []
    for batch in loader:
        store.append(batch)
        {written}
"""
    found = fed_at(text, base="list")
    assert found == ["store.append(batch)", *([written] if feeds else [])]
