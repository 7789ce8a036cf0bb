"""A snapshot of the heap answers the person who asks."""

from __future__ import annotations

import gc
import os
import pickle
import re
import subprocess
import sys
import textwrap
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optional_torch import needs_torch, torch
from test_heap_walk import ENGINES

import leakscope
from leakscope.heap import Snapshot, snapshot
from leakscope.model.census import RootKind

HERE = Path(__file__).parent
needs_native = pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built")


class TakeSnapshot:
    """Takes snapshots of these tests' names, and leads to nothing of pytest's."""

    def __init__(self, engine: str) -> None:
        self.engine = engine

    def __call__(self, **options: Any) -> Snapshot:
        return snapshot(project_root=HERE, full=False, engine=self.engine, **options)


@pytest.fixture(params=ENGINES)
def take(request: pytest.FixtureRequest) -> TakeSnapshot:
    return TakeSnapshot(request.param)


@pytest.fixture
def snap() -> Snapshot:
    """For questions about objects, which walk the heap again."""
    return snapshot(project_root=HERE, full=False)


class Payload:
    def __init__(self, size: int = 0) -> None:
        self.data = bytearray(size)


class Slim:
    __slots__ = ("item",)

    def __init__(self, item: Any) -> None:
        self.item = item


class HeavyPayload(Payload):
    pass


class Box:
    def __init__(self, item: Any) -> None:
        self.item = item


REGISTRY: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def empty_registry() -> Iterator[None]:
    yield
    REGISTRY.clear()


def weight(*objects: object) -> int:
    return sum(map(sys.getsizeof, objects))


def names(rows: Any) -> list[str]:
    return [row.name.rpartition(".")[2] for row in rows]


# What is big


def test_the_biggest_comes_first_with_what_it_retains(take: TakeSnapshot) -> None:
    small = [bytes(20_000)]
    large = [bytes(50_000 + i) for i in range(3)]
    rows = [row for row in take(least_bytes=16_384).biggest(1000) if "comes_first" in row.path]
    assert names(rows) == ["large", "large[*]", "small", "small[*]"]
    row = rows[0]
    assert row.path == "test_the_biggest_comes_first_with_what_it_retains()·large"
    assert (row.type, row.count, row.length) == ("list", 1, 3)
    assert row.host_bytes == weight(large, *large)
    assert rows[1].host_bytes == weight(*large)
    assert rows[1].count == 3
    assert rows[2].host_bytes == weight(small, *small)


def test_what_two_names_hold_is_shared_and_retained_by_neither(take: TakeSnapshot) -> None:
    shared = bytes(50_000)
    first, second = [shared, bytes(3_000)], [shared, bytes(4_000)]
    del shared
    found = take()
    for name, holder in (("first", first), ("second", second)):
        assert found.row(name).host_bytes == weight(holder, holder[1])
    assert found.row("first").shared_bytes == {"host": weight(first[0])}
    assert found.row("second").shared_bytes == {}  # it is reported once


def test_a_name_without_much_has_a_row_once_a_lower_limit_is_set(take: TakeSnapshot) -> None:
    little = [1.5]
    with pytest.raises(LookupError, match="least_bytes"):
        take().row("little")
    assert take(least_bytes=0, most_objects=100_000).row("little").host_bytes == weight(
        little, *little
    )


def test_without_anything_big_the_answer_says_so(take: TakeSnapshot) -> None:
    found = take(least_bytes=1 << 40)
    assert len(found.biggest()) == 0
    assert "None of your names retains" in repr(found.biggest())
    assert "None of your names retains" in repr(found)


def test_libraries_are_reported_on_request() -> None:
    found = snapshot(project_root=HERE)
    own, all_of_them = found.biggest(1000), found.biggest(1000, libraries=True)
    assert all(row.user for row in own)
    assert any(row.root is RootKind.LIBRARY for row in all_of_them)


def test_a_snapshot_says_when_not_all_was_named() -> None:
    held = [bytes(2000) for _ in range(200)]
    assert snapshot(project_root=HERE, most_objects=50).incomplete
    assert not snapshot(project_root=HERE).incomplete
    assert "raise most_objects" in repr(snapshot(project_root=HERE, most_objects=50))
    assert len(held) == 200


# The tree under a name


def forest() -> dict[str, Any]:
    return {
        "heavy": [bytes(30_000 + i) for i in range(3)],
        "medium": {"inner": [bytes(40_000)]},
        "light": bytes(5_000),
    }


def test_a_tree_shows_what_lies_under_a_name_the_heaviest_first(take: TakeSnapshot) -> None:
    top = forest()
    tree = take().tree("top")
    assert tree.row is not None
    assert tree.row.path.endswith("()·top")
    steps = [child.row.path.removeprefix(tree.row.path) for child in tree.children if child.row]
    assert steps == ["['heavy']", "['medium']", "['light']"]
    inner = tree.children[1].children[0]
    assert inner.row is not None
    assert inner.row.path.endswith("['medium']['inner']")
    assert inner.row.host_bytes == weight(top["medium"]["inner"], *top["medium"]["inner"])


def test_a_tree_ends_at_its_depth_and_says_what_it_leaves_out(take: TakeSnapshot) -> None:
    top = forest()
    tree = take().tree("top", depth=1, n=1)
    (child,) = tree.children
    assert (child.children, child.omitted, child.omitted_bytes) == (
        (),
        1,
        weight(*top["heavy"]),
    )
    assert tree.omitted == 2
    inner = top["medium"]["inner"]
    assert tree.omitted_bytes == weight(top["light"], top["medium"], inner, *inner)
    assert "… 2 more rows" in repr(tree)


def test_the_tree_of_all_names_begins_at_each(take: TakeSnapshot) -> None:
    one, other = [bytes(30_000)], [bytes(20_000)]
    tree = take(least_bytes=16_384).tree(n=1000)
    assert tree.row is None
    paths = [child.row.path.rpartition("·")[2] for child in tree.children if child.row]
    assert {"one", "other"} <= set(paths)
    assert paths.index("one") < paths.index("other")
    assert one[0] != other[0]


@pytest.mark.parametrize(
    "text",
    [
        "test_a_row_goes_by_several_names()·box.item['list'][*]",
        "Box.item['list'][*]",
        "test_a_row_goes_by_several_names().box.item['list'][*]",
        "box.item['list'][*]",
        "box.item['list'][3]",
        "box.item['list'][-1]",
    ],
)
def test_a_row_goes_by_several_names(text: str) -> None:
    box = Box({"list": [bytes(9_000), bytes(9_001)]})
    row = snapshot(project_root=HERE, full=False).row(text)
    assert row.count == len(box.item["list"])


def test_an_unknown_name_is_refused_with_what_is_near(take: TakeSnapshot) -> None:
    history = [bytes(9_000)]
    with pytest.raises(LookupError, match=r"no row is called 'histori'.*near it: 'history'"):
        take().tree("histori")
    assert history


def test_a_name_of_several_rows_is_refused_with_their_paths(take: TakeSnapshot) -> None:
    def inner() -> Snapshot:
        held = [bytes(8_000)]
        assert held
        return take()

    held = [bytes(9_000)]
    with pytest.raises(LookupError, match=r"several rows.*inner\(\)·held"):
        inner().row("held")
    assert held


def test_an_object_is_no_name(snap: Snapshot) -> None:
    with pytest.raises(TypeError, match="path_to"):
        snap.row([])  # type: ignore[arg-type]


# The way to an object


def test_the_path_to_an_object_has_its_indices_and_keys(snap: Snapshot) -> None:
    box = Box([None, {"preds": deque([0, (1, Payload())])}])
    found = snap.path_to(box.item[1]["preds"][1][1])
    assert found.found
    assert found.path == (
        "test_the_path_to_an_object_has_its_indices_and_keys()·box.item[1]['preds'][1][1]"
    )
    assert found.also_held_by == ()
    assert [link.type for link in found.standing.links] == [
        f"{__name__}.Box", "list", "dict", "collections.deque", "tuple", f"{__name__}.Payload",
    ]  # fmt: skip


def test_keys_of_large_dicts_are_reported_where_they_are_plain(snap: Snapshot) -> None:
    large: dict[Any, Any] = {i: i for i in range(100)}
    large.update({(1, "b"): [1], 2.5: [2], Payload: [3], "k" * 100: [4]})
    last = list(large.values())[100:]
    ends = [snap.path_to(last[i]).path.partition("·large")[2] for i in range(4)]
    assert ends[:3] == ["[(1, 'b')]", "[2.5]", "[<type>]"]
    assert len(ends[3]) < 50


def test_all_that_hold_an_object_are_reported(snap: Snapshot) -> None:
    wanted = Payload()
    REGISTRY["cache"] = [wanted]
    box = Box(wanted)
    found = snap.path_to(wanted)
    here = "test_all_that_hold_an_object_are_reported()"
    module = __name__
    assert found.path == f"{module}·REGISTRY['cache'][0]"
    assert set(found.also_held_by) == {f"{here}·wanted", f"{here}·box.item"}
    assert box.item is wanted


def test_the_variable_one_asks_with_can_be_left_out(snap: Snapshot) -> None:
    box = Box(Payload())
    wanted = box.item
    here = "test_the_variable_one_asks_with_can_be_left_out()"
    found = snap.path_to(wanted, ignoring="wanted")
    assert (found.path, found.also_held_by) == (f"{here}·box.item", ())
    with pytest.raises(LookupError, match=re.escape(f"can be ignored: {here}·wanted")):
        snap.path_to(wanted, ignoring=["other"])


def test_what_nothing_else_holds_has_no_path(snap: Snapshot) -> None:
    for found in (snap.path_to(Payload()), snap.path_to(f"text {len(REGISTRY)}")):
        assert not found.found
        assert (found.path, found.also_held_by) == ("", ())
        assert "only what asks for it" in repr(found) or "what asks for it" in repr(found)


def test_the_questions_own_frames_are_no_holders(snap: Snapshot) -> None:
    wanted = Payload()
    found = snap.path_to(wanted)
    assert found.also_held_by == ()
    assert "Nothing else refers to it." in repr(found)
    assert list(snap.dominators_of(wanted)) == []
    assert "Only the name" in repr(snap.dominators_of(wanted))


def test_of_a_long_chain_both_ends_are_reported(snap: Snapshot) -> None:
    head: list[Any] = []
    last = head
    for _ in range(3000):
        head = [head]
    found = snap.path_to(last, ignoring=["last"])
    assert "head[0]" in found.path
    assert "steps…" in found.path
    assert len(found.path) < 300
    assert found.also_held_by == ()
    while head:  # by hand: its deallocation would nest
        head = head[0]


@pytest.mark.parametrize("shared", [None, True, ..., NotImplemented])
def test_what_everybody_shares_is_not_looked_for(shared: object, snap: Snapshot) -> None:
    with pytest.raises(ValueError, match="everybody shares"):
        snap.path_to(shared)


# What keeps an object alive


def test_the_chain_of_dominators_leads_to_the_name(snap: Snapshot) -> None:
    box = Box({"a": [Payload()]})
    chain = snap.dominators_of(box.item["a"][0])
    here = "test_the_chain_of_dominators_leads_to_the_name()"
    assert [link.path for link in chain] == [
        f"{here}·box.item['a']",
        f"{here}·box.item",
        f"{here}·box",
    ]
    assert "Were" in repr(chain)


def test_letting_go_of_a_dominator_frees_the_object(snap: Snapshot) -> None:
    REGISTRY["x"] = Box(Payload())
    REGISTRY["y"] = REGISTRY["x"]
    REGISTRY["z"] = Box(Payload())
    through_two = snap.dominators_of(REGISTRY["x"].item)
    through_one = snap.dominators_of(REGISTRY["z"].item)
    assert [link.path.rpartition("·")[2] for link in through_two] == ["REGISTRY['x']", "REGISTRY"]
    watched = [weakref.ref(REGISTRY[key].item) for key in "xz"]
    assert through_one[0].path.endswith("REGISTRY['z']")
    del REGISTRY["z"]
    assert watched[1]() is None
    REGISTRY["x"].item = None  # the object at the path, whatever else refers to that
    assert watched[0]() is None


def test_what_two_objects_hold_neither_keeps_alive_alone(snap: Snapshot) -> None:
    REGISTRY["x"], REGISTRY["y"] = Box(Payload()), None
    REGISTRY["y"] = Box(REGISTRY["x"].item)
    assert [link.path for link in snap.dominators_of(REGISTRY["x"].item)] == [
        f"{__name__}·REGISTRY"
    ]


def test_a_running_functions_second_name_keeps_alive_too(snap: Snapshot) -> None:
    REGISTRY["x"] = Box([Payload()])
    alias = REGISTRY["x"]
    chain = snap.dominators_of(REGISTRY["x"].item[0])
    assert [link.path.rpartition("·")[2] for link in chain] == ["alias.item", "alias"]
    assert alias


def test_a_library_that_holds_an_object_too_is_no_secret(snap: Snapshot) -> None:
    box = Box([Payload()])
    textwrap.kept_by_the_test = box.item  # type: ignore[attr-defined]
    try:
        chain = snap.dominators_of(box.item[0])
        assert [link.path.partition("·")[2] for link in chain] == ["box.item"]
        assert snap.path_to(box.item).also_held_by == ("textwrap·kept_by_the_test",)
    finally:
        del textwrap.kept_by_the_test  # type: ignore[attr-defined]


def test_a_module_keeps_its_names_whoever_refers_to_them(snap: Snapshot) -> None:
    box = Box(vars(textwrap))
    textwrap.kept_by_the_test = [Payload()]  # type: ignore[attr-defined]
    try:
        chain = snap.dominators_of(box.item["kept_by_the_test"][0])
        assert [link.path.partition("·")[2] for link in chain] == [
            "box.item['kept_by_the_test']",
            "box.item",
        ]
    finally:
        del textwrap.kept_by_the_test  # type: ignore[attr-defined]


# Types


def test_objects_of_a_type_are_counted_and_found(take: TakeSnapshot) -> None:
    held = [Payload(5000) for _ in range(7)]
    found = take()
    for requested in (Payload, "Payload", f"{__name__}.Payload"):
        answer = found.of_type(requested)
        assert answer.count == 7
        assert [(h.row.name.rpartition(".")[2], h.count) for h in answer.holders] == [("held", 7)]
        assert names(answer.rows) == ["held[*]"]
    assert len(held) == 7


def test_a_types_bytes_are_those_of_its_objects_alone(take: TakeSnapshot) -> None:
    held = [Slim(bytes(9_000)) for _ in range(5)]
    assert take().of_type(Slim).bytes == weight(*held)


def test_subclasses_are_counted_on_request(take: TakeSnapshot) -> None:
    held = [Payload(), HeavyPayload(), HeavyPayload()]
    found = take()
    assert found.of_type(Payload).count == 1
    assert found.of_type(Payload, subclasses=True).count == 3
    assert found.of_type("Payload", subclasses=True).count == 3
    assert len(held) == 3


def test_a_base_class_without_objects_stands_for_its_subclasses(take: TakeSnapshot) -> None:
    held = HeavyPayload()
    found = take()
    assert found.of_type(Payload).count == 0
    assert found.of_type("Payload", subclasses=True).count == 1
    assert held


def test_an_unknown_type_is_refused_with_what_is_near(take: TakeSnapshot) -> None:
    held = Payload()
    with pytest.raises(LookupError, match=r"called 'Paiload' \(near it: 'Payload'"):
        take().of_type("Paiload")
    with pytest.raises(TypeError, match="ask for a class"):
        take().of_type(held)  # type: ignore[arg-type]


def test_types_are_ordered_by_bytes_or_by_count(take: TakeSnapshot) -> None:
    held = [bytearray(200_000_000), *(float(i) for i in range(200_000))]
    found = take()
    assert found.types(1)[0].type == "bytearray"
    assert found.types(1, by="count")[0].type == "float"
    assert found.types(1, by="count")[0].count >= 200_000
    with pytest.raises(ValueError, match="'bytes' or 'count'"):
        found.types(by="weight")
    assert held


def test_types_add_up_to_the_heap(take: TakeSnapshot) -> None:
    found = take()
    assert sum(row.count for row in found.type_rows) == found.objects
    payload = sum(found.payload_bytes.values())
    assert sum(row.total_bytes for row in found.type_rows) == found.heap_bytes + payload


# The difference


def test_what_appeared_grew_shrank_and_vanished(take: TakeSnapshot) -> None:
    grows, shrinks, stays = [bytes(9_000)], [bytes(9_000), bytes(9_001)], [bytes(9_000)]
    REGISTRY["old"] = [bytes(9_000)]
    before = take()
    grows.extend(bytes(9_000 + i) for i in range(1, 5))
    shrinks.pop()
    del REGISTRY["old"]
    REGISTRY["new"] = [Payload(9_000)]
    after = take()
    found = after - before
    here = "test_what_appeared_grew_shrank_and_vanished()"
    registry = f"{__name__}·REGISTRY"
    grown = {change.path: change for change in found.grew}
    assert grown[f"{here}·grows"].items == 4
    assert grown[f"{here}·grows[*]"].count == 4
    assert grown[f"{here}·grows[*]"].bytes == weight(*grows[1:])
    assert {f"{here}·shrinks", f"{here}·shrinks[*]"} <= {change.path for change in found.shrank}
    assert f"{registry}['new']" in {change.path for change in found.appeared}
    assert {change.path for change in found.vanished} == {
        f"{registry}['old']",
        f"{registry}['old'][*]",
    }
    everywhere = (*found.appeared, *found.grew, *found.shrank, *found.vanished)
    assert f"{here}·stays" not in {change.path for change in everywhere}
    types = {change.type: change for change in found.types}
    assert types["bytes"].count == 4 - 1 - 1
    assert types[f"{__name__}.Payload"].count == 1
    assert found.heap_bytes == after.heap_bytes - before.heap_bytes
    assert len(stays) == 1


def test_the_difference_the_other_way_is_the_opposite(take: TakeSnapshot) -> None:
    held = [bytes(9_000)]
    first = take()
    held.append(bytes(9_001))
    other = take()
    there, back = other - first, first - other
    assert [change.path for change in there.grew] == [change.path for change in back.shrank]
    assert [c.bytes for c in there.grew] == [-c.bytes for c in back.shrank]
    assert there.objects == -back.objects


def test_an_item_that_was_swapped_for_another_is_no_growth(take: TakeSnapshot) -> None:
    held = [bytes(9_000)]
    before = take()
    held[0] = bytes(reversed(held[0]))
    found = take().difference(before)
    assert not [c for c in (*found.grew, *found.shrank) if "held" in c.path]


def test_snapshots_taken_differently_are_not_compared(take: TakeSnapshot) -> None:
    with pytest.raises(ValueError, match="least_bytes=512 and 1024"):
        take().difference(take(least_bytes=512))
    with pytest.raises(TypeError, match="with another"):
        take().difference([])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        take() - 1  # type: ignore[operator]


# What it leaves alone


def test_nothing_is_kept_alive(take: TakeSnapshot, snap: Snapshot) -> None:
    held = [Payload(9_000) for _ in range(3)]
    watched = [weakref.ref(item) for item in held]
    first = take()
    answers = [snap.path_to(held[0]), snap.dominators_of(held[1]), first.of_type(Payload)]
    second = take()
    changed = second - first
    del held
    assert [ref() for ref in watched] == [None] * 3
    assert len(answers) == 3
    assert changed


def test_a_snapshot_is_numbers_and_names_and_can_be_stored(take: TakeSnapshot) -> None:
    held = [Payload(9_000)]
    found = take()
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert repr(again - found).count("\n") == 0  # nothing changed
    assert held


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(enabled: bool, take: TakeSnapshot) -> None:
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        take()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_garbage_is_reported_and_not_collected() -> None:
    def make_ring() -> weakref.ref[Payload]:
        ring = Payload(3_000_000)
        ring.ring = ring  # type: ignore[attr-defined]
        return weakref.ref(ring)

    gc.collect()
    gc.disable()
    try:
        watched = make_ring()
        found = snapshot(project_root=HERE)
        assert watched() is not None
    finally:
        gc.enable()
    assert found.garbage_bytes is not None
    assert found.garbage_bytes >= 3_000_000
    assert "await the garbage collector" in repr(found)


def test_no_code_of_the_programs_runs(take: TakeSnapshot, snap: Snapshot) -> None:
    ran = []

    def fail(*args: object, **_: object) -> Any:
        ran.append(args)
        raise RuntimeError("code of the program's ran")

    hostile = dict.fromkeys(
        ["__getattribute__", "__eq__", "__len__", "__iter__", "__repr__", "__bool__", "__sizeof__"],
        fail,
    )
    kind = type("Hostile", (dict,), {**hostile, "__hash__": fail, "__class__": property(fail)})
    held = [kind(a=bytes(9_000)) for _ in range(2)]
    mapping: dict[Any, Any] = {i: i for i in range(100)}
    mapping[kind.__name__] = held[0]
    first = take()
    second = take()
    printed = [
        repr(first), first._repr_html_(), repr(second - first), repr(first.tree("held")),
        repr(first.of_type(kind)), repr(snap.path_to(held[0])), repr(snap.dominators_of(held[1])),
    ]  # fmt: skip
    assert not ran
    assert all(printed)
    assert first.of_type("Hostile").count == 2


def test_two_snapshots_in_a_row_do_not_see_each_other(take: TakeSnapshot) -> None:
    kept = take()
    rows = kept.biggest()
    again = take()
    here = "test_two_snapshots_in_a_row_do_not_see_each_other()"
    assert not [row.path for row in again.rows if row.path.startswith(here)]
    assert len(rows) <= 20


@needs_native
def test_naming_makes_no_dict_of_an_objects_attributes(take: TakeSnapshot) -> None:
    box = Box(Payload(9_000))
    dicts = [o for o in gc.get_referents(box) if type(o) is dict]
    assert take().row("box.item.data").host_bytes >= 9_000
    assert [o for o in gc.get_referents(box) if type(o) is dict] == dicts


# Print


def answers() -> list[Any]:
    kind = type("<img src=x onerror=alert(1)>\x1b[31m\u202e", (), {})
    evil = kind()
    setattr(evil, "</td><script>alert('x')</script>&\n", [bytes(9_000)])
    first = snapshot(project_root=HERE, full=False)
    setattr(evil, "<b>", [bytes(90_000)])
    second = snapshot(project_root=HERE, full=False)
    return [
        first, first.biggest(), first.tree(), first.types(1000), first.of_type(kind),
        second - first, first.path_to(evil), first.path_to(vars(evil)["<b>"][0]),
        first.dominators_of(vars(evil)["<b>"][0]),
    ]  # fmt: skip


def test_nothing_of_the_programs_passes_unescaped_into_a_notebook() -> None:
    from html.parser import HTMLParser

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag in {"div", "p", "br", "strong", "table", "thead", "tbody", "tr", "th", "td"}
            assert {name for name, _ in attrs} <= {"class", "style", "title", "scope"}

    pages = [answer._repr_html_() for answer in answers()]
    for page in pages:
        Reader().feed(page)
        assert "\x1b" not in page
    assert any("&lt;script&gt;" in page for page in pages)


def test_text_is_aligned_plain_and_no_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = answers()
    for width in (50, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        for answer in found:
            lines = repr(answer).splitlines()
            assert not [line for line in lines if len(line) > width]
            assert not [c for c in "".join(lines) if c < " " or c in "\x7f\u202e"]


def test_sizes_read_well_and_are_exact_behind(take: TakeSnapshot) -> None:
    held = [bytearray(3 * 2**20)]
    found = take()
    row = found.row("held")
    assert row.host_bytes > 3 * 2**20
    assert "3 MiB" in repr(found.tree("held"))
    assert f"{row.host_bytes:,} bytes" in found.tree("held")._repr_html_()
    assert held


# Bad options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"project_root": "/no/such/folder"}, "no folder"),
        ({"least_bytes": -1}, "least_bytes"),
        ({"most_objects": 0}, "most_objects"),
        ({"engine": "fast"}, "engine is .*'reference'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        snapshot(**options)


def test_counts_start_at_one(snap: Snapshot) -> None:
    for ask in (snap.biggest, snap.types):
        with pytest.raises(ValueError, match="n is a number from 1 on"):
            ask(0)
    with pytest.raises(ValueError, match="depth is a number from 1 on"):
        snap.tree(depth=0)


# Where it is called


def run(*command: str, typed: str = "", cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        input=textwrap.dedent(typed),
        env={**os.environ, "PYTHONPATH": str(Path(leakscope.__file__).parents[1])},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_leakscope_does_not_import_the_heap(tmp_path: Path) -> None:
    source = """
        import sys
        import leakscope
        assert "leakscope.heap" not in sys.modules
        taken = leakscope.heap.snapshot()
        from leakscope.heap import snapshot
        assert leakscope.heap.snapshot is snapshot
        assert "torch" not in sys.modules
        print(taken.objects > 0)
    """
    assert run("-c", textwrap.dedent(source), cwd=tmp_path) == "True\n"


def test_in_the_interactive_shell_names_are_the_users(tmp_path: Path) -> None:
    printed = run(
        "-i",
        "-q",
        typed="""\
            import leakscope
            class Node:
                pass

            cache = {i: bytes(10_000) for i in range(50)}
            def fill():
                seen = [bytes(20_000) for _ in range(3)]
                return leakscope.heap.snapshot()

            node = Node()
            node.data = [0.5 * i for i in range(2000)]
            fill()
            fill().path_to(node.data)
            """,
        cwd=tmp_path,
    )
    for expected in ("__main__·cache\n", "fill()·seen\n", "__main__·node.data\n"):
        assert expected in printed
    assert "leakscope" not in printed


def test_in_a_notebook_cells_are_the_users(tmp_path: Path) -> None:
    printed = run(
        "-c",
        textwrap.dedent(
            """
            import leakscope
            cell = '''
            def train():
                history = [bytes(20_000) for _ in range(3)]
                return leakscope.heap.snapshot()
            Out = {3: [bytes(30_000)]}
            _ = _3 = Out[3]
            '''
            exec(compile(cell, "/tmp/ipykernel_17/425.py", "exec"))
            taken = train()
            print([row.path for row in taken.biggest() if row.kind == "list"])
            print(taken.path_to(Out[3]).also_held_by)
            """
        ),
        cwd=tmp_path,
    )
    paths, others = printed.splitlines()
    assert "'train()·history'" in paths
    assert "'__main__·Out[3]'" not in paths or "'__main__·_'" not in paths
    assert others == "('__main__·_', '__main__·_3')"


def test_a_script_is_its_own_project_wherever_it_is_started(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "part.py").write_text("kept = [bytes(50_000)]\n")
    (folder / "main.py").write_text(
        "import leakscope, part\n"
        "mine = [bytes(40_000)]\n"
        "for root in (None, '.', 'project'):\n"
        "    taken = leakscope.heap.snapshot(project_root=root)\n"
        "    print(root, sorted(r.name for r in taken.biggest() if r.kind == 'list'))\n"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run(str(folder / "main.py"), cwd=tmp_path).splitlines() == [
        "None ['mine', 'part.kept']",
        ". ['mine', 'part.kept']",
        "project ['mine', 'part.kept']",
    ]


def test_it_works_without_torch_and_numpy(tmp_path: Path) -> None:
    source = """
        import sys
        sys.modules["torch"] = sys.modules["numpy"] = None
        import leakscope
        held = [bytes(30_000)]
        taken = leakscope.heap.snapshot()
        print(taken.row("held").host_bytes > 30_000, taken.payload_bytes)
        print(taken.path_to(held[0]).path)
    """
    printed = run("-c", textwrap.dedent(source), cwd=tmp_path)
    assert printed.splitlines() == ["True {'host': 0}", "__main__·held[0]"]


# Tensors


@needs_torch
def test_tensors_are_weighed_with_their_storage(take: TakeSnapshot) -> None:
    history = [torch.zeros(5_000) for _ in range(4)]
    found = take()
    assert found.row("history").host_bytes >= 4 * 20_000
    assert found.payload_bytes["host"] >= 4 * 20_000
    answer = found.of_type(torch.Tensor)
    assert answer.count >= 4
    assert answer.payload_bytes["host"] >= 4 * 20_000
    assert "of tensor storage" in repr(answer)
    assert len(history) == 4


@needs_torch
def test_a_view_and_its_base_share_the_storage(take: TakeSnapshot) -> None:
    base = torch.zeros(50_000)
    views = [base[i:] for i in range(30)]
    found = take()
    assert found.row("base").shared_bytes["host"] >= 200_000
    assert found.row("views").host_bytes < 20_000
    assert len(views) == 30


@needs_torch
@pytest.mark.slow
def test_who_holds_a_weight_is_reported(snap: Snapshot) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    here = "test_who_holds_a_weight_is_reported()"
    found = snap.path_to(model[0].weight)
    assert found.path == f"{here}·model[0].weight"
    assert f"{here}·optimizer.param_groups[0]['params'][0]" in found.also_held_by
    assert [link.path for link in snap.dominators_of(model[0].weight)] == []
    assert optimizer


@needs_torch
def test_a_kept_loss_is_reported_with_the_graph_it_keeps(take: TakeSnapshot) -> None:
    weight_ = torch.ones(2_000, requires_grad=True)
    losses = [(weight_ * i).exp().sum() for i in range(3)]
    row = take().row("losses")
    assert row.graph_nodes >= 9
    assert row.host_bytes >= 3 * 8_000
    assert len(losses) == 3
