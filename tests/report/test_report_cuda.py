"""Snapshots of the CUDA allocator on a page, in the terminal and as JSON."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from cuda_samples import ALL, COMPARISON, EMPTY, EXPLANATION, FAILED, MIB
from hostile_text import ATTACKS, infested
from page_reader import read_page

from leakscope.model.device import MapBlock, MapSegment
from leakscope.model.explanation import Explanation, SnapshotComparison
from leakscope.report import render_json, render_snapshot_html, render_snapshot_text
from leakscope.report.device_map import MAP_NARROW, MAP_WIDE, draw_map


@pytest.mark.parametrize("shown", ALL.values(), ids=ALL)
def test_page_is_well_formed_and_loads_nothing(shown: Explanation | SnapshotComparison) -> None:
    seen = read_page(render_snapshot_html(shown))
    assert seen.unclosed == []
    assert len(seen.ids) == len(set(seen.ids))
    assert set(seen.labelled_by) <= set(seen.ids)
    assert all(link == "data:," or link[1:] in {*seen.ids, "main"} for link in seen.links)
    assert "default-src 'none'" in seen.policy


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("shown", [FAILED, COMPARISON], ids=["failed", "comparison"])
def test_foreign_names_never_become_markup(
    shown: Explanation | SnapshotComparison, attack: str
) -> None:
    harmless, seen = (read_page(render_snapshot_html(t)) for t in (shown, hostile(shown, attack)))
    assert seen.unclosed == []
    assert seen.tags == harmless.tags
    assert seen.attributes <= harmless.attributes | {"title"}
    assert len(seen.scripts) == len(harmless.scripts)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("shown", [FAILED, COMPARISON], ids=["failed", "comparison"])
def test_terminal_shows_foreign_names_without_their_escapes(
    shown: Explanation | SnapshotComparison, attack: str
) -> None:
    text = render_snapshot_text(hostile(shown, attack), width=80)
    assert not re.search(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\ud800-\udfff]", text
    )


@pytest.mark.parametrize("attack", ATTACKS)
def test_json_of_foreign_names_is_json(attack: str) -> None:
    json.loads(render_json(hostile(FAILED, attack)))


def hostile(
    shown: Explanation | SnapshotComparison, attack: str
) -> Explanation | SnapshotComparison:
    """Return a copy whose every text but our own words carries the attack."""
    tainted = infested(shown, attack)
    if isinstance(tainted, SnapshotComparison) and isinstance(shown, SnapshotComparison):
        pairs = zip(tainted.devices, shown.devices, strict=True)
        devices = [msgspec.structs.replace(d, kind=was.kind) for d, was in pairs]
        return msgspec.structs.replace(tainted, devices=devices)
    assert isinstance(tainted, Explanation)
    assert isinstance(shown, Explanation)
    pairs_of = zip(tainted.devices, shown.devices, strict=True)
    return msgspec.structs.replace(
        tainted,
        devices=[
            msgspec.structs.replace(d, memory_map=was.memory_map, subject=was.subject)
            for d, was in pairs_of
        ],
    )


@pytest.mark.parametrize("width", [40, 80, 100, 200])
@pytest.mark.parametrize("shown", ALL.values(), ids=ALL)
def test_tables_of_the_terminal_keep_to_its_width(
    shown: Explanation | SnapshotComparison, width: int
) -> None:
    lines = render_snapshot_text(shown, width=max(width, 80)).splitlines()
    assert max(len(line) for line in lines) <= max(width, 80)


def test_terminal_says_what_matters() -> None:
    text = render_snapshot_text(FAILED, width=100)
    assert text.startswith("✗ Capacity · 60 MiB live.")
    assert "requested by relu at /home/u/model.py:21" in text
    assert "✓ Make the batch 7 % smaller" in text
    assert "✗ expandable_segments:True (would not help)" in text
    assert "/home/u/model.py:20 forward › einsum" in text
    assert "! The history holds the unknown action 'x'." in text
    assert "\x1b" not in text
    assert "\x1b" in render_snapshot_text(FAILED, color=True)


def test_json_tells_its_schema_and_decodes_to_the_same() -> None:
    for shown in (EXPLANATION, FAILED, EMPTY):
        text = render_json(shown)
        assert json.loads(text)["schema_version"] == 1
        assert msgspec.json.decode(text, type=Explanation) == shown
    again = msgspec.json.decode(render_json(COMPARISON), type=SnapshotComparison)
    assert again == COMPARISON


def test_same_explanation_gives_the_same_page() -> None:
    assert render_snapshot_html(FAILED) == render_snapshot_html(FAILED)


@pytest.mark.parametrize("size", [MAP_WIDE, MAP_NARROW])
def test_map_covers_each_class_in_proportion_to_its_bytes(size: tuple[int, int]) -> None:
    sizes = {"weights": 300, "hole": 500, "optimizer": 200}
    blocks = [MapBlock(amount * MIB, kind) for kind, amount in sizes.items()]
    segment = MapSegment(stream=0, pool=(0, 0), is_small=False, size=1000 * MIB, blocks=blocks)
    svg = draw_map([segment], "m", size).svg
    widths = [
        sum(float(step) for step in re.findall(r"h(\d[\d.]*)", path))
        for path in re.findall(r'<path d="([^"]+)"', svg)
    ]
    total = sum(widths)
    # Paths are in the order of the classes' names: hole, optimizer, weights.
    assert [width / total for width in widths] == pytest.approx([0.5, 0.2, 0.3], abs=0.01)
    assert total == pytest.approx(size[0] * size[1], rel=0.01)


def test_map_parts_streams_and_pools() -> None:
    segments = [
        MapSegment(
            stream=stream, pool=pool, is_small=False, size=MIB, blocks=[MapBlock(MIB, "other")]
        )
        for stream, pool in ((0, (0, 0)), (0, (0, 2)), (7, (0, 0)))
    ]
    svg = draw_map(segments, "m", MAP_WIDE).svg
    assert re.findall(r'class="map-label">([^<]+)<', svg) == [
        "stream 0, default pool, large blocks",
        "stream 0, private pool (0, 2), large blocks",
        "stream 7, default pool, large blocks",
    ]
