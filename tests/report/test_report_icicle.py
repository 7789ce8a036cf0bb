"""The icicle on the page: boxes that add up, words that tell, links both ways, little data."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from types import SimpleNamespace

import msgspec
import pytest
import rank_samples
import report_samples as samples
import retained_samples
from hypothesis import given, settings
from hypothesis import strategies as st
from page_reader import read_page
from retained_samples import MIB

from leakscope.analysis.holdings.tree import Weights, grown_weights, retained_weights
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import CensusScope
from leakscope.model.run import NodeKind, Retained, RetainedCensus, RetainedNode, RetainedProcess
from leakscope.report import render_comparison_html, render_html, render_json
from leakscope.report.culprits import culprit_views
from leakscope.report.icicle import (
    LEAST_SHARE,
    MOST_ROWS,
    REST,
    comparison_icicle,
    event_words,
    icicle_view,
    lay_out,
    process_words,
)


def view_of(retained: Retained) -> SimpleNamespace:
    view = icicle_view(retained, culprit_views(samples.leaking().culprits))
    assert view is not None
    return view


def figure(mode: str, view: SimpleNamespace | None = None) -> SimpleNamespace:
    figures = (view or view_of(retained_samples.retained())).figures
    return next(figure for figure in figures if figure.mode == mode)


def box(label: str, mode: str = "held") -> SimpleNamespace:
    return next(box for box in figure(mode).boxes if box.label == label)


def percent(text: str) -> float:
    return float(text.removesuffix("%"))


def test_a_box_is_as_wide_as_what_it_holds_and_stands_below_its_holder() -> None:
    trainer, boxes = box("trainer"), box("all_pred_boxes")
    assert boxes.row == trainer.row + 1
    assert boxes.left == trainer.left
    assert percent(boxes.width) == pytest.approx(100 * 400 / 510, abs=0.01)
    assert boxes.size.text == "400 MiB"
    assert box("all that your names reach").size.exact == f"{510 * MIB:,} bytes"


def test_a_box_of_growth_is_as_wide_as_what_changed_and_says_which_way() -> None:
    """300 MiB more in a list and 10 less in a model: 310 changed, 290 more in all."""
    boxes, model, whole = (
        box(label, "growth") for label in ("all_pred_boxes", "model", "all that your names reach")
    )
    assert percent(boxes.width) == pytest.approx(100 * 300 / 310, abs=0.01)
    assert percent(model.width) == pytest.approx(100 * 10 / 310, abs=0.01)
    assert (boxes.size.text, boxes.direction) == ("+300 MiB", "up")
    assert (model.size.text, model.direction) == ("−10 MiB", "down")
    assert whole.size.text == "+290 MiB"
    assert percent(whole.tint) < percent(boxes.tint)


def test_what_has_no_name_is_shown_as_that() -> None:
    rest = [box for box in figure("held").boxes if box.kind == REST]
    assert {box.label for box in rest} == {"not named"}
    assert sum(percent(box.width) for box in rest if box.row == 1) == pytest.approx(
        100 * (510 - 498) / 510, abs=0.01
    )


def test_what_was_added_up_says_of_how_many() -> None:
    assert box("40 smaller ones").size.text == "5 MiB"


def test_what_lies_below_nothing_but_specks_has_no_rest() -> None:
    nodes = [
        RetainedNode(kind=NodeKind.WHOLE),
        *(RetainedNode(kind=NodeKind.ROW, parent=0, label=str(n)) for n in range(3)),
    ]
    assert len(lay_out(nodes, Weights([10**9, 1, 1, 1], [10**9, 1, 1, 1]))) == 1


SIZES = st.lists(st.integers(-(1 << 30), 1 << 30), min_size=2, max_size=40)


@settings(deadline=None)
@given(st.data(), SIZES, st.booleans())
def test_boxes_never_overlap_and_never_reach_beyond_their_holder(
    data: st.DataObject, sizes: list[int], is_growth: bool
) -> None:
    parents = [-1] + [data.draw(st.integers(0, n - 1)) for n in range(1, len(sizes))]
    nodes = [
        RetainedNode(kind=NodeKind.ROW if n else NodeKind.WHOLE, parent=p, label=str(n))
        for n, p in enumerate(parents)
    ]
    before, after = [0] * len(sizes), [abs(size) for size in sizes]
    for place in range(len(sizes) - 1, 0, -1):
        after[parents[place]] += after[place]
        before[place] += max(0, -sizes[place])
        before[parents[place]] += before[place]
    censuses = [
        RetainedCensus(
            boundary=Boundary(index=n, kind=BoundaryKind.STEP, time_s=n),
            scope=CensusScope.FULL,
            cutoff_bytes=1,
            bytes={"host": column},
        )
        for n, column in enumerate((before, after))
    ]
    retained = Retained(nodes=nodes, censuses=censuses, taken=2, first=0, last=1, shown=1)
    weights = (
        grown_weights(retained, "host", 0, 1)
        if is_growth
        else retained_weights(retained, "host", 1)
    )
    laid = lay_out(nodes, weights)
    rows: dict[int, list[tuple[float, float]]] = {}
    for item in laid:
        assert item.row < MOST_ROWS
        assert item.width >= LEAST_SHARE
        rows.setdefault(item.row, []).append((item.left, item.left + item.width))
    for row, stretches in rows.items():
        stretches.sort()
        assert stretches[-1][1] <= 1 + 1e-9
        for (_, end), (begin, _) in pairwise(stretches):
            assert begin >= end - 1e-9
        above = rows.get(row - 1, [(0.0, 1.0)])
        for left, right in stretches:
            assert any(a - 1e-9 <= left and right <= b + 1e-9 for a, b in above)


def test_a_culprits_card_leads_to_its_box_and_the_box_to_the_card() -> None:
    page = render_html(samples.leaking())
    anchor = re.search(r'href="#(culprit-[0-9a-z-]+)-box"', page)
    assert anchor
    seen = read_page(page)
    assert f"{anchor[1]}-box" in seen.ids
    assert anchor[1] in seen.ids
    assert seen.links.count(f"#{anchor[1]}") > 2
    assert box("all_pred_boxes").mark is not None


def test_without_the_script_the_last_census_and_the_growth_are_read_as_text() -> None:
    text = read_page(render_html(samples.leaking())).text
    assert "4:00 end of validation, epoch 5" in text
    assert "1:00 end of validation, epoch 2 → 4:00 end of validation, epoch 5" in text
    assert "+300 MiB" in text
    assert "4 of 40 censuses are kept" in text


def test_kinds_of_census_are_distinguished() -> None:
    view = view_of(retained_samples.retained())
    assert [moment.endswith("whole heap") for moment in view.moments] == [False, False, True, False]
    assert any("what both saw is compared" in note for note in view.notes)
    unlike = msgspec.structs.replace(retained_samples.retained(), last=2)
    assert figure("growth", view_of(unlike)).boxes[0].label == "what both saw"


def test_of_several_processes_it_says_whose_memory_is_drawn() -> None:
    view = icicle_view(retained_samples.retained(), processes=3)
    assert view is not None
    assert view.notes[0].startswith("Of 3 processes this is the main one.")
    assert not view_of(retained_samples.retained()).notes[0].startswith("Of ")


def of_processes() -> SimpleNamespace:
    culprit = msgspec.structs.replace(
        samples.leaking().culprits[0], path=retained_samples.IN_WORKER, workers=1
    )
    elsewhere = [retained_samples.of_worker(0, 0), retained_samples.of_worker()]
    view = icicle_view(retained_samples.retained(), culprit_views([culprit]), 4, elsewhere)
    assert view is not None
    return view


def test_the_process_in_which_the_worst_culprit_grows_is_drawn_and_named() -> None:
    view = of_processes()
    assert view.processes == ["loader 1, worker 1", "main process", "loader 1, worker 0"]
    assert view.process == view.data["process"] == "loader 1, worker 1"
    assert figure("growth", view).total.text == "+60 MiB"
    assert next(box for box in figure("held", view).boxes if box.mark).label == "decoded"
    assert view.moments[-1] == "0:06 end of pass 3"
    assert view.notes[0].startswith("Of 4 processes this is loader 1, worker 1; 2 others can")


def test_every_process_is_there_for_the_script_and_as_a_table() -> None:
    view = of_processes()
    assert [tree["process"] for tree in view.data["elsewhere"]] == view.processes[1:]
    assert [table.process for table in view.tables] == view.processes
    names = [[row.name for row in table.rows] for table in view.tables]
    assert names[0] == names[2] == ["worker.dataset", "Frames.decoded"]
    assert "Trainer.all_pred_boxes" in names[1]


def test_a_rank_is_reported_by_its_number_and_so_are_its_workers() -> None:
    trains, loads = RetainedProcess(rank=3), RetainedProcess(rank=3, loader=1, worker=0)
    assert process_words(trains) == "rank 3"
    assert process_words(loads) == "rank 3, loader 1, worker 0"
    again = msgspec.structs.replace(loads, generation=4)
    assert process_words(again) == "rank 3, loader 1, worker 0, from pass 5 on"
    assert not process_words(RetainedProcess(), processes=1)


def test_ranks_lead_to_their_memory_where_it_is_on_the_page() -> None:
    def of(number: int) -> Retained:
        process = RetainedProcess(rank=number, pid=100 + number)
        return msgspec.structs.replace(retained_samples.retained(), process=process)

    report = rank_samples.report_of([rank_samples.rank(number) for number in range(3)], rank=1)
    reported = msgspec.structs.replace(report, retained=of(1), retained_elsewhere=[of(0)])
    seen = read_page(render_html(reported))
    links = [link for link in seen.links if link.startswith("#memory-of-")]
    assert links == ["#memory-of-1", "#memory-of-0"]
    assert {link[1:] for link in links} <= {*seen.ids}


def test_passes_are_those_of_the_loader_not_of_the_worker() -> None:
    theirs = retained_samples.of_worker()
    again = msgspec.structs.replace(theirs.process, generation=4)
    view = view_of(msgspec.structs.replace(theirs, process=again))
    assert view.moments == ["0:00 end of pass 5", "0:03 end of pass 6", "0:06 end of pass 7"]


def test_a_culprit_without_a_drawn_box_is_led_to_by_the_script_alone() -> None:
    first, *rest = samples.leaking().culprits
    grown = msgspec.structs.replace(first, path=retained_samples.IN_WORKER, workers=1)
    report = msgspec.structs.replace(
        samples.leaking(),
        culprits=[first, msgspec.structs.replace(grown, signature="w"), *rest],
        retained_elsewhere=[retained_samples.of_worker()],
    )
    page = render_html(report)
    assert 'href="#culprit-w-box" data-undrawn hidden' in page
    assert page.count("data-undrawn hidden") == 1


def test_graphs_that_were_not_counted_whole_are_reported() -> None:
    plain = retained_samples.retained()
    cut = [msgspec.structs.replace(census, truncated=True) for census in plain.censuses]
    view = view_of(msgspec.structs.replace(plain, censuses=cut))
    assert any("autograd nodes" in note for note in view.notes)


def test_the_comparison_shows_what_differs_between_both_runs() -> None:
    view = comparison_icicle(retained_samples.compared())
    assert view is not None
    assert view.moments == [
        "Before: end of validation, epoch 5",
        "After: end of validation, epoch 5",
    ]
    assert figure("growth", view).total.text == "−400 MiB"
    text = read_page(render_comparison_html(samples.comparison())).text
    assert "What memory holds, before and after" in text
    assert "−398 MiB" in text


def test_the_comparison_says_at_its_box_what_became_of_a_culprit() -> None:
    page = render_comparison_html(samples.comparison())
    link = re.search(r'href="#([^"]+)-box">Show in memory', page)
    assert link
    seen = read_page(page)
    assert {link[1], f"{link[1]}-box"} <= {*seen.ids}
    data = json.loads(seen.scripts[0][1])["icicles"]["memory"]
    assert data["marks"]["3"] == [link[1], "Fixed", "Fixed: Trainer.all_pred_boxes", "fixed"]


def test_reports_without_a_tree_have_no_such_section() -> None:
    report = msgspec.structs.replace(samples.leaking(), retained=None)
    page = read_page(render_html(report))
    assert "memory" not in page.ids
    assert "#memory" not in page.links
    assert not [link for link in page.links if link.endswith("-box")]


def test_the_script_gets_every_census() -> None:
    data = json.loads(read_page(render_html(samples.leaking())).scripts[0][1])
    tree = data["icicles"]["memory"]
    assert len(tree["parents"]) == len(tree["labels"]) == len(retained_samples.NODES)
    assert [census["bytes"]["host"][3] for census in tree["censuses"]] == [
        size * MIB for size in (10, 100, 200, 400)
    ]
    assert tree["censuses"][0]["bytes"]["host"][6] is None


def test_several_devices_are_a_choice_and_the_one_that_grew_is_shown() -> None:
    plain = retained_samples.retained()
    censuses = [
        msgspec.structs.replace(
            census,
            bytes=census.bytes
            | {"cuda:0": [None if size is None else size * n * 9 for size in census.bytes["host"]]},
        )
        for n, census in enumerate(plain.censuses)
    ]
    view = view_of(msgspec.structs.replace(plain, censuses=censuses))
    assert view.devices == ["host", "cuda:0"]
    assert view.device == "cuda:0"


def test_the_largest_tree_stays_small_on_the_page() -> None:
    """What an analysis keeps at most: 12,000 figures, and long names."""
    nodes = [
        RetainedNode(kind=NodeKind.WHOLE),
        *(
            RetainedNode(
                kind=NodeKind.ROW, parent=max(0, n - 40), label=f"attribute_with_a_name_{n}",
                name=f"Trainer.some.path.attribute_with_a_name_{n}", type="package.module.Type",
                path=f"main()·trainer.some.path.attribute_with_a_name_{n}",
            )
            for n in range(800)
        ),
    ]  # fmt: skip
    item = retained_samples.census(0, 10, whole=130)
    column: list[int | None] = [7_000_000_000 - 8_000_000 * n for n in range(801)]
    censuses = [msgspec.structs.replace(item, bytes={"host": column}) for _ in range(12)]
    many = Retained(nodes=nodes, censuses=censuses, taken=300, first=0, last=11, shown=11)
    with_tree = msgspec.structs.replace(samples.leaking(), retained=many)
    without = msgspec.structs.replace(samples.leaking(), retained=None)
    for render in (render_html, render_json):
        assert len(render(with_tree)) - len(render(without)) < 600_000


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (BoundaryKind.PHASE_BEGIN, "start of train, epoch 3"),
        (BoundaryKind.STEP, "train, step 30, epoch 3"),
        (BoundaryKind.BATCH, "train, batch 4, epoch 3"),
        (BoundaryKind.PHASE_END, "end of train, epoch 3"),
        (BoundaryKind.MARK, "after saving, epoch 3"),
    ],
)
def test_moments_are_reported_in_words(kind: BoundaryKind, words: str) -> None:
    where = {"phase": "train", "epoch": 2, "step": 30, "batch": 4, "label": "after saving"}
    assert event_words(Boundary(index=1, kind=kind, time_s=1.0, **where)) == words


def test_a_program_without_epochs_is_reported_by_its_steps() -> None:
    plain = retained_samples.retained()
    flat = [
        msgspec.structs.replace(census, boundary=msgspec.structs.replace(census.boundary, epoch=0))
        for census in plain.censuses
    ]
    moments = view_of(msgspec.structs.replace(plain, censuses=flat)).moments
    assert moments[1] == "1:00 end of validation, step 50"
    assert len(set(moments)) == len(moments)


def test_a_tensor_that_keeps_a_graph_says_so() -> None:
    plain = retained_samples.retained()
    nodes = [
        msgspec.structs.replace(node, type="torch.Tensor", keeps_graph=True)
        if node.label == "model"
        else node
        for node in plain.nodes
    ]
    boxes = figure("held", view_of(msgspec.structs.replace(plain, nodes=nodes))).boxes
    assert "Tensor, keeps an autograd graph" in {box.type for box in boxes}


def test_what_was_seen_at_neither_census_has_no_change_to_tell() -> None:
    plain = retained_samples.retained()
    place = next(n for n, node in enumerate(plain.nodes) if node.label == "model")

    def without(census: RetainedCensus) -> RetainedCensus:
        sizes = [0 if n == place else size for n, size in enumerate(census.bytes["host"])]
        return msgspec.structs.replace(census, bytes={"host": sizes})

    unseen = msgspec.structs.replace(plain, censuses=[without(census) for census in plain.censuses])
    row = next(row for row in view_of(unseen).tables[0].rows if row.name == "Trainer.model")
    assert {size.text for size in row.sizes} == {"–"}
    assert "unknown" not in row.sizes[-1].exact
    (table,) = view_of(plain).tables
    steady = next(row for row in table.rows if row.name == "Trainer.all_pred_boxes")
    assert steady.sizes[-1].text == "+300 MiB"
