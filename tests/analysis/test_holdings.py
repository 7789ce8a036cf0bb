"""What memory held: a tree whose parts never exceed the whole, at censuses that matter."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_runs import KIB, MIB, Program, Thing

from leakscope.analysis import compare
from leakscope.analysis.holdings import join_retained, tree
from leakscope.analysis.holdings.tree import (
    MOST_BYTES,
    MOST_CENSUSES,
    MOST_NODES,
    CensusLook,
    fold,
    grow,
    grown_weights,
    retained_weights,
)
from leakscope.analysis.verdict.analyse import analyse
from leakscope.model.boundary import Boundary, BoundaryKind, comparable_key
from leakscope.model.census import Census, CensusRow, CensusScope, Content, RootKind
from leakscope.model.comparison import Comparison
from leakscope.model.record import OutOfMemoryRecord
from leakscope.model.report import Report
from leakscope.model.run import NodeKind, Retained, RetainedCensus

FEW = 12


def row(path: str, size: int, parent: str = "", **more: object) -> CensusRow:
    plain = {"name": path, "root": RootKind.LOCAL, "type": "list", "kind": "list"}
    return CensusRow(path=path, parent=parent, host_bytes=size, **(plain | more))


def look(*rows: CensusRow, full: bool = False, index: int = 0, **more: object) -> CensusLook:
    boundary = Boundary(index=index, kind=BoundaryKind.STEP, time_s=float(index), step=index)
    scope = CensusScope.FULL if full else CensusScope.FOCUSED
    plain = {"cutoff_bytes": 16 * KIB, "objects": 1, "heap_bytes": 0}
    return CensusLook(boundary, Census(scope=scope, rows=[*rows], **(plain | more)))


def retained_of(*looks: CensusLook) -> Retained:
    tree = grow(looks)
    censuses = [
        RetainedCensus(
            boundary=item.boundary, scope=item.census.scope, cutoff_bytes=0, bytes=columns
        )
        for item, columns in zip(looks, tree.bytes, strict=True)
    ]
    ends = {"first": 0, "last": len(looks) - 1, "shown": len(looks) - 1}
    return Retained(nodes=tree.nodes, censuses=censuses, taken=len(looks), **ends)


def sizes(retained: Retained, census: int = -1, device: str = "host") -> dict[str, int | None]:
    """By the labels on the way from the root what each node held."""
    names: list[str] = []
    for node in retained.nodes:
        above = names[node.parent] if node.parent >= 0 else ""
        names.append(f"{above}/{node.label or node.kind.value}")
    return dict(zip(names, retained.censuses[census].bytes[device], strict=True))


def reported(program: Program) -> Retained:
    retained = analyse(program.build()).retained
    assert retained is not None
    return retained


def leaking() -> Program:
    program = Program(epochs=8).leak("train()·seen", 40 * KIB).constant("main()·model", 30 * MIB)
    return program.local("validate()·preds", 900 * KIB)


def test_names_hang_below_their_owner_step_by_step() -> None:
    held_at = sizes(
        retained_of(
            look(
                row("main()·trainer", 9 * MIB, type="Trainer"),
                row("main()·trainer.log", 8 * MIB, "main()·trainer"),
                row("main()·trainer.log['loss']", 7 * MIB, "main()·trainer.log"),
                row("validate()·preds", 2 * MIB),
                heap_bytes=12 * MIB,
            )
        )
    )
    assert held_at == {
        "/whole": 12 * MIB,
        "/whole/main()": 9 * MIB,
        "/whole/main()/trainer": 9 * MIB,
        "/whole/main()/trainer/log": 8 * MIB,
        "/whole/main()/trainer/log/['loss']": 7 * MIB,
        "/whole/validate()": 2 * MIB,
        "/whole/validate()/preds": 2 * MIB,
    }


def test_a_row_whose_nearest_holder_has_no_row_hangs_below_the_next_one() -> None:
    held_at = sizes(retained_of(look(row("m·a", 5 * MIB), row("m·a.b.c[*]", 4 * MIB, "m·a.b.c"))))
    assert held_at["/whole/m/a/b.c[*]"] == 4 * MIB
    assert held_at["/whole"] == 5 * MIB


def test_contents_are_reported_by_type_and_never_beyond_what_the_container_holds() -> None:
    holds = [
        Content(type="numpy.ndarray", count=9, bytes=3 * MIB),
        Content(type="tuple", count=9, bytes=MIB),
    ]
    fitting = retained_of(look(row("f()·seen", 5 * MIB, holds=holds)))
    assert sizes(fitting)["/whole/f()/seen/numpy.ndarray"] == 3 * MIB
    beyond = retained_of(look(row("f()·seen", 2 * MIB, holds=holds)))
    assert sizes(beyond)["/whole/f()/seen/numpy.ndarray"] == 0


def test_items_of_which_a_census_names_only_some_count_whole() -> None:
    """A census looks at some of many items: a difference between two must not be of that."""
    holds = [Content(type="numpy.ndarray", count=300, bytes=9 * MIB)]
    some = row("f()·seen[*]", 4 * MIB, "f()·seen", type="numpy.ndarray")
    few = look(row("f()·seen", 10 * MIB, holds=holds), some)
    none = look(row("f()·seen", 10 * MIB, holds=holds), index=1)
    retained = retained_of(few, none)
    assert sizes(retained, 0)["/whole/f()/seen/[*]"] == 9 * MIB
    assert sizes(retained, 1)["/whole/f()/seen/[*]"] == 9 * MIB
    assert not any(grown_weights(retained, "host", 0, 1).widths)


def test_what_is_inside_of_items_is_unknown_where_a_census_names_too_few_of_them() -> None:
    holds = [Content(type="dict", count=300, bytes=9 * MIB)]
    seen = row("f()·seen", 10 * MIB, holds=holds)
    items = row("f()·seen[*]", 4 * MIB, "f()·seen", type="dict")
    inside = row("f()·seen[*]['x']", 3 * MIB, "f()·seen[*]")
    few = retained_of(look(seen, items, inside))
    assert sizes(few)["/whole/f()/seen/[*]"] == 9 * MIB
    assert sizes(few)["/whole/f()/seen/[*]/['x']"] is None
    all_items = row("f()·seen[*]", 9 * MIB, "f()·seen", type="dict")
    enough = retained_of(look(seen, all_items, inside))
    assert sizes(enough)["/whole/f()/seen/[*]/['x']"] == 3 * MIB


def test_contents_on_several_devices_are_reported_where_there_is_no_doubt() -> None:
    first = [Content(type="torch.Tensor", count=9, bytes=3 * MIB + 900)]
    two = [*first, Content(type="dict", count=9, bytes=900)]
    device = {"cuda:0": 3 * MIB}
    sure = retained_of(look(row("f()·seen", MIB, holds=first, device_bytes=device)))
    assert sizes(sure, device="cuda:0")["/whole/f()/seen/torch.Tensor"] == 3 * MIB
    assert sizes(sure)["/whole/f()/seen/torch.Tensor"] == 0
    doubtful = retained_of(look(row("f()·seen", MIB, holds=two, device_bytes=device)))
    assert sizes(doubtful, device="cuda:0")["/whole/f()/seen/torch.Tensor"] == 0


def test_what_a_focused_census_does_not_look_at_is_unknown_and_not_nothing() -> None:
    library = row("lib·cache", 3 * MIB, user=False, root=RootKind.LIBRARY)
    mine = row("main()·seen", MIB)
    focused = look(mine, heap_bytes=2 * MIB)
    full = look(mine, library, full=True, index=1, heap_bytes=90 * MIB, garbage_bytes=MIB)
    retained = retained_of(focused, full)
    assert sizes(retained, 0)["/whole/libraries/lib/cache"] is None
    assert sizes(retained, 1)["/whole/libraries/lib/cache"] == 3 * MIB
    assert sizes(retained, 1)["/whole/garbage, not collected yet"] == MIB
    change = grown_weights(retained, "host", 0, 1)
    assert change.bytes[0] == 0
    assert not any(change.widths)


def test_what_is_not_the_users_own_is_grouped_by_who_holds_it() -> None:
    native = row("<held by native code>·dict", MIB, user=False, root=RootKind.NATIVE)
    garbage = row("<garbage>·Node", MIB, user=False, root=RootKind.GARBAGE)
    held_at = sizes(retained_of(look(native, garbage, full=True, garbage_bytes=2 * MIB)))
    assert held_at["/whole/held by native code/dict"] == MIB
    assert held_at["/whole/garbage, not collected yet"] == 2 * MIB
    assert held_at["/whole/garbage, not collected yet/Node"] == MIB


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map(lambda s: "m·" + ".".join(s))


@st.composite
def censuses(draw: st.DrawFn) -> list[CensusLook]:
    """Rows with any sizes, whose holders may be missing, on two devices, at three censuses."""
    found = []
    for index in range(3):
        rows = []
        for path in draw(st.sets(PATHS, max_size=12)):
            above = path.rpartition(".")[0] if "." in path else ""
            size = draw(st.integers(0, 1 << 20))
            device = {"cuda:0": draw(st.integers(0, 1 << 20))} if draw(st.booleans()) else {}
            held_in = draw(st.integers(0, 1 << 20))
            holds = [Content(type=draw(st.sampled_from(["list", "dict"])), count=1, bytes=held_in)]
            is_user = draw(st.booleans())
            more = {"device_bytes": device, "holds": holds, "user": is_user}
            rows.append(row(path, size, above, **more))
        full = draw(st.booleans())
        found.append(look(*rows, full=full, index=index, heap_bytes=draw(st.integers(0, 1 << 22))))
    return found


@settings(deadline=None)
@given(censuses())
def test_children_never_hold_more_than_their_parent(looks: list[CensusLook]) -> None:
    tree = fold(grow(looks))
    for by_device in tree.bytes:
        for column in by_device.values():
            below = [0] * len(column)
            for node, size in zip(tree.nodes[1:], column[1:], strict=True):
                assert tree.nodes[node.parent].kind is not NodeKind.SMALLER
                below[node.parent] += size or 0
            assert all((size or 0) >= b for size, b in zip(column, below, strict=True))


@settings(deadline=None)
@given(censuses())
def test_growth_adds_up_to_the_difference_and_widths_to_all_that_changed(
    looks: list[CensusLook],
) -> None:
    retained = retained_of(*looks)
    change, before, after = (
        grown_weights(retained, "host", 0, 2),
        sizes(retained, 0),
        sizes(retained, 2),
    )
    ends = zip(before.values(), after.values(), strict=True)
    alike = looks[0].census.scope is looks[2].census.scope
    for place, (b, a) in enumerate(ends):
        if place or alike:
            assert change.bytes[place] == (None if b is None or a is None else a - b)
    below = [0] * len(change.widths)
    for node, width in zip(retained.nodes[1:], change.widths[1:], strict=True):
        below[node.parent] += width
    for width, inside, net in zip(change.widths, below, change.bytes, strict=True):
        assert width >= max(inside, abs(net or 0))


@pytest.mark.slow
@settings(deadline=None)
@given(censuses(), censuses())
def test_two_runs_joined_hold_what_each_held(
    first: list[CensusLook], second: list[CensusLook]
) -> None:
    before, after = retained_of(*first), retained_of(*second)
    joined = join_retained(before, after)
    assert joined is not None
    for census, run in zip(joined.censuses, (before, after), strict=True):
        same = next(c for c in run.censuses if c.boundary == census.boundary)
        for device, column in same.bytes.items():
            assert census.bytes[device][0] == column[0]
            below = [0] * len(joined.nodes)
            for node, size in zip(joined.nodes[1:], census.bytes[device][1:], strict=True):
                below[node.parent] += size or 0
            pairs = zip(census.bytes[device], below, strict=True)
            assert all((size or 0) >= inside for size, inside in pairs)


def test_growth_can_be_requested_between_any_two_censuses() -> None:
    program = leaking()
    measured = [m.boundary.index for m in program.build().main.measurements if m.census]
    assert [census.boundary.index for census in reported(program).censuses] == measured


@pytest.fixture
def few_kept(monkeypatch: pytest.MonkeyPatch) -> int:
    """Keep few censuses, as of a run with very many."""
    monkeypatch.setattr(tree, "MOST_CENSUSES", FEW)
    return FEW


def test_the_few_censuses_that_are_kept_hold_the_first_the_last_and_the_largest(
    few_kept: int,
) -> None:
    program = leaking()
    retained = reported(program)
    measured = [m for m in program.build().main.measurements if m.census]
    assert retained.taken == len(measured) > few_kept
    kept = [census.boundary.index for census in retained.censuses]
    assert kept == sorted(kept)
    assert len(kept) == few_kept
    assert {measured[0].boundary.index, measured[-1].boundary.index} <= {*kept}
    largest = max(measured, key=lambda m: sum(r.host_bytes for r in m.census.rows if not r.parent))
    assert largest.boundary.index in kept


def test_growth_is_reported_between_censuses_that_are_alike_by_default() -> None:
    retained = reported(leaking())
    first, last = retained.censuses[retained.first], retained.censuses[retained.last]
    assert first.scope is last.scope
    assert comparable_key(first.boundary) == comparable_key(last.boundary)
    assert last.boundary.epoch - first.boundary.epoch >= 4


def test_what_grows_has_a_node_and_its_growth_is_the_programs() -> None:
    retained = reported(leaking())
    change = grown_weights(retained, "host", retained.first, retained.last)
    seen = next(p for p, n in enumerate(retained.nodes) if n.path == "train()·seen")
    ends = [retained.censuses[p].boundary.step for p in (retained.first, retained.last)]
    assert change.bytes[seen] == pytest.approx((ends[1] - ends[0]) * (40 * KIB + 8), abs=KIB)


def test_every_culprit_has_a_node_and_a_census_at_its_height(few_kept: int) -> None:
    report = analyse(leaking().build())
    assert len(report.culprits) == 2
    assert report.retained is not None
    for culprit in report.culprits:
        place = next(p for p, n in enumerate(report.retained.nodes) if n.path == culprit.path)
        found = [retained_weights(report.retained, "host", c).bytes[place] for c in range(few_kept)]
        assert max(size or 0 for size in found) == culprit.total_bytes


def test_the_moment_at_which_memory_ran_out_is_kept() -> None:
    run = leaking().build()
    last = run.main.measurements[-1].boundary
    census = look(row("train()·seen", 99 * MIB)).census
    where = {"boundary": last.index, "time_s": last.time_s + 1.0, "phase": "train"}
    run.main.shortages.append(OutOfMemoryRecord(seen="observer", census=census, **where))
    retained = analyse(run).retained
    assert retained is not None
    assert retained.censuses[retained.shown].boundary.label == "memory ran out"
    assert sizes(retained)["/whole/train()/seen"] == 99 * MIB


def test_what_functions_held_is_shown_though_they_have_returned_at_the_end() -> None:
    """A phase may be ended by the end of the program, when its functions are gone."""
    program = Program(epochs=8, validation=0, inner=5).leak("train()·seen", 40 * KIB)
    run = program.build()
    measured = run.main.measurements
    end = next(m for m in reversed(measured) if m.boundary.kind is BoundaryKind.PHASE_END)
    assert end.census is not None
    end.census.rows.clear()
    retained = analyse(run).retained
    assert retained is not None
    assert retained.censuses[-1].boundary == end.boundary
    assert retained.shown == len(retained.censuses) - 2
    held_at = sizes(retained, retained.shown)["/whole/train()/seen"]
    assert held_at == 56 + 7 * 40 * (40 * KIB + 8)


def test_a_run_without_a_census_has_no_tree() -> None:
    run = leaking().build()
    plain = [msgspec.structs.replace(m.boundary) for m in run.main.measurements]
    run.main.measurements[:] = [
        type(m)(boundary, m.gauges)
        for m, boundary in zip(run.main.measurements, plain, strict=True)
    ]
    assert analyse(run).retained is None


def test_equal_recordings_give_equal_trees() -> None:
    assert reported(leaking()) == reported(leaking())


@pytest.mark.slow
def test_thousands_of_names_stay_small_and_nothing_of_them_is_lost() -> None:
    sides = [
        look(
            *(
                row(f"main()·cache{i // 50}.part{i}.items", (i + 1) * 20 * KIB + index, name="x")
                for i in range(4000)
            ),
            index=index,
        )
        for index in range(12)
    ]
    whole = grow(sides)
    wanted = "main()·cache0.part0.items"
    tree = fold(whole, {wanted})
    assert len(tree.nodes) < 2 * MOST_NODES
    assert any(node.path == wanted for node in tree.nodes)
    for place in (0, 1):
        assert tree.bytes[3]["host"][place] == whole.bytes[3]["host"][place]
    assert sum(node.count for node in tree.nodes) + len(tree.nodes) >= 4000
    nodes = len(msgspec.json.encode([tree.nodes, tree.bytes]))
    assert nodes < 400_000


def test_the_tree_of_300_censuses_of_which_few_are_kept_is_small(few_kept: int) -> None:
    program = Program(epochs=75, steps=20, inner=1, full_every=20)
    for i in range(40):
        program.leak(f"main()·owner{i}.log", (i + 1) * KIB)
    retained = reported(program)
    assert retained.taken >= 300
    assert len(retained.censuses) == few_kept
    assert len(msgspec.json.encode(retained)) < 200_000


def test_the_tree_of_as_many_censuses_as_are_kept_leaves_room_on_a_page() -> None:
    looks = [
        look(*(row(f"main()·part{i}", (i + 1) * 20 * KIB + n * KIB) for i in range(500)), index=n)
        for n in range(MOST_CENSUSES)
    ]
    tree = fold(grow(looks))
    assert len(tree.nodes) >= 400
    assert len(msgspec.json.encode([tree.nodes, tree.bytes])) < 2_000_000


def two(before: Report, after: Report) -> Comparison:
    return compare(before, after)


def test_two_runs_are_compared_at_their_last_censuses_that_are_alike() -> None:
    before = analyse(leaking().build())
    after = analyse(Program(epochs=8).constant("main()·model", 30 * MIB).build())
    retained = two(before, after).retained
    assert retained is not None
    first, last = retained.censuses
    assert first.scope is last.scope
    assert comparable_key(first.boundary) == comparable_key(last.boundary)
    assert first.boundary.step == last.boundary.step
    change = grown_weights(retained, "host", 0, 1)
    seen = next(p for p, n in enumerate(retained.nodes) if n.path == "train()·seen")
    model = next(p for p, n in enumerate(retained.nodes) if n.path == "main()·model")
    assert change.bytes[seen] == -(sizes(retained, 0)["/whole/train()/seen"] or 0)
    assert change.bytes[model] == 0


def test_a_run_compared_with_itself_changes_nowhere() -> None:
    report = analyse(leaking().build())
    retained = two(report, report).retained
    assert retained is not None
    assert not any(grown_weights(retained, "host", 0, 1).widths)


def test_an_older_report_without_a_tree_compares_without_one() -> None:
    report = analyse(leaking().build())
    older = msgspec.structs.replace(report, retained=None)
    assert two(older, report).retained is None


def test_what_one_run_names_and_the_other_added_up_is_no_difference() -> None:
    rows = [row(f"main()·part{i}", (i + 1) * 20 * KIB) for i in range(MOST_NODES + 50)]
    many, few = look(*rows), look(*rows[:40])
    small = fold(grow([many]))
    before = msgspec.structs.replace(
        retained_of(many),
        nodes=small.nodes,
        censuses=[msgspec.structs.replace(retained_of(many).censuses[0], bytes=small.bytes[0])],
    )
    joined = join_retained(before, retained_of(few))
    assert joined is not None
    change = grown_weights(joined, "host", 0, 1)
    smaller = next(p for p, n in enumerate(joined.nodes) if n.kind is NodeKind.SMALLER)
    added_up = sum((i + 1) * 20 * KIB for i in range(40))
    at = joined.censuses[1].bytes["host"][smaller]
    assert at == added_up
    assert change.bytes[0] == sum(r.host_bytes for r in rows[:40]) - sum(r.host_bytes for r in rows)


@pytest.mark.parametrize("kind", [Retained, Report])
def test_trees_survive_being_written_and_read(kind: type) -> None:
    report = analyse(leaking().build())
    value = report if kind is Report else report.retained
    assert msgspec.json.decode(msgspec.json.encode(value), type=kind) == value


def test_a_tensor_that_keeps_a_graph_is_known_as_one() -> None:
    graph = row("f()·total", MIB, type="torch.Tensor", kind="graph", graph_nodes=9)
    nodes = retained_of(look(graph, row("f()·x", MIB))).nodes
    assert [node.label for node in nodes if node.keeps_graph] == ["total"]


def test_sizes_made_to_overflow_are_cut_where_a_page_can_still_count_them() -> None:
    most = (1 << 63) - 1
    rows = [row(f"m·a{n}", most, shared_bytes={"host": most}) for n in range(40)]
    retained = retained_of(look(*rows, row("m·b", -most), heap_bytes=most))
    assert max(size or 0 for size in sizes(retained).values()) == MOST_BYTES
    assert sizes(retained)["/whole/m/b"] == 0
    assert msgspec.json.decode(msgspec.json.encode(retained), type=Retained) == retained


def test_rows_in_a_circle_of_parents_end_somewhere() -> None:
    retained = retained_of(look(row("m·a", MIB, "m·b"), row("m·b", MIB, "m·a")))
    assert len(retained.nodes) == 4


def test_what_grows_on_a_device_is_reported_there() -> None:
    thing = Thing("train()·seen", lambda s: s.step * MIB, device="cuda:0")
    retained = reported(Program().plant(thing))
    change = grown_weights(retained, "cuda:0", retained.first, retained.last)
    seen = next(p for p, n in enumerate(retained.nodes) if n.path == "train()·seen")
    assert (change.bytes[seen] or 0) > 100 * MIB
    assert (grown_weights(retained, "host", retained.first, retained.last).bytes[seen] or 0) < KIB
