"""What tools print is read as README.md says, and held against the truth in every right way."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "zoo"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "leaks"))

import leak_benchmark as benchmark
import readings
from corpus import feeding_lines
from published_truth import PAIRS
from readings import Accusation
from scorer import Known, add_up, mark

ROOT = benchmark.ROOT
TRUTH = Known(True, frozenset({"Jar.cookies"}), frozenset({"Cookie"}), frozenset({"crawl.py:7"}))
HEALTHY = Known(False)


def test_leakscope_is_read_without_its_notes_and_by_its_first_line():
    culprit = {"name": "Jar.cookies", "severity": "warning", "bytes_per_unit": 9.0}
    note = {**culprit, "severity": "note", "name": "quiet"}
    finding = {"kind": "native_held", "severity": "warning", "bytes_per_unit": None, "fed_at": []}
    lines = ["/x/crawl.py:7", "/x/crawl.py:9"]
    report = {"culprits": [{**culprit, "fed_at": lines}, {**note, "fed_at": []}]}
    found = readings.read_leakscope({**report, "findings": [finding]})
    assert [item.name for item in found] == ["Jar.cookies", "native_held"]
    assert found[0].lines == ("/x/crawl.py:7",)


def test_tracemalloc_accuses_lines_that_grew_by_a_mebibyte():
    grown = 'size_diff=4000000 count_diff=90\n  File "/x/crawl.py", line 7\n    get()\n'
    little = 'size_diff=4000 count_diff=9\n  File "/x/other.py", line 3\n    get()\n'
    less = 'size_diff=-4000000 count_diff=-9\n  File "/x/less.py", line 3\n    get()\n'
    (single,) = readings.read_tracemalloc(f"{grown}--\n{little}--\n{less}")
    assert single.lines == ("/x/crawl.py:7",)
    assert single.size == 4000000
    assert readings.read_tracemalloc("") == []


def test_objgraph_accuses_types_that_grow_at_each_look_after_the_first():
    looks = [
        "dict      90000    +90000\n",
        "Cookie     1200      +900\nlist   9000    +5000\n",
        "Cookie     1400      +200\n",
    ]
    found = readings.read_objgraph(looks)
    assert [(item.name, item.size) for item in found] == [("Cookie", 1100.0)]
    assert readings.read_objgraph(looks[:1]) == []


def test_pympler_accuses_types_whose_size_rises_at_each_look_after_the_first():
    head = "             types |   # objects |   total size\n=== | === | ===\n"
    looks = [
        head,
        head + "  <class 'jar.Cookie |  100 |   1.50 MB\n  <class 'dict |  5 | 700.00 KB\n",
        head + "  <class 'jar.Cookie |  100 |   1.50 MB\n  <class 'dict |  -5 | -700.00 KB\n",
    ]
    (single,) = readings.read_pympler(looks)
    assert (single.name, single.size) == ("Cookie", 3 * 2**20)


def test_guppy_accuses_kinds_of_the_table_that_are_large_enough():
    printed = (
        "Partition of a set of 14000 objects. Total size = 5000000 bytes.\n"
        " Index  Count   %     Size   % Cumulative  % Kind (class / dict of class)\n"
        "     0   9000  64  4000000  80   4000000  80 dict of jar.Cookie\n"
        "     1   5000  36    90000   2   4090000  82 str\n"
    )
    assert readings.read_guppy(printed) == [Accusation("Cookie", (), 4000000.0)]


def test_memray_accuses_stacks_but_not_what_imports_keep():
    imported = {"size": 9 * 2**20, "stack": ["a.py:1", "<frozen importlib._bootstrap>:241"]}
    leaked = {"size": 2 * 2**20, "stack": ["/lib/jar.py:90", "/x/crawl.py:7"]}
    little = {"size": 9000, "stack": ["/lib/jar.py:91"]}
    (single,) = readings.read_memray([little, imported, leaked])
    assert single.lines == ("/lib/jar.py:90", "/x/crawl.py:7")
    assert mark(TRUTH, [single]).first == ("line",)


def test_scalene_accuses_the_lines_that_it_lists_as_leaks_the_fastest_first():
    leaks = {"3": {"velocity_mb_s": 0.5}, "7": {"velocity_mb_s": 2.0}}
    found = readings.read_scalene({"files": {"/x/crawl.py": {"leaks": leaks}}})
    assert [item.name for item in found] == ["/x/crawl.py:7", "/x/crawl.py:3"]
    assert readings.read_scalene({}) == []


def test_a_tool_may_be_right_by_container_by_type_or_by_line():
    assert mark(TRUTH, [Accusation("Jar.cookies")]).first == ("container",)
    assert mark(TRUTH, [Accusation("Cookie")]).first == ("type",)
    assert mark(TRUTH, [Accusation("get", ("/elsewhere/crawl.py:7",))]).first == ("line",)
    assert mark(TRUTH, [Accusation("Jar", ("crawl.py:8",))]).first == ()


def test_a_wrong_container_isn_t_made_right_by_its_line():
    wrong = Accusation("Crawler.queue", ("crawl.py:7",), is_container=True)
    assert mark(TRUTH, [wrong]).first == ()
    assert not mark(TRUTH, [wrong]).within


def test_a_right_accusation_counts_among_the_first_three_alone():
    wrong, right = Accusation("dict"), Accusation("Cookie")
    assert mark(TRUTH, [wrong, wrong, right]).within
    assert not mark(TRUTH, [wrong, wrong, wrong, right]).within
    assert not mark(TRUTH, [wrong, right]).first


def test_sums_count_silence_accused_repairs_and_faults():
    marks = [
        mark(TRUTH, [Accusation("Jar.cookies", ("crawl.py:7",))], "leak"),
        mark(TRUTH, [], "clean"),
        mark(TRUTH, [], "inconclusive"),
        mark(TRUTH, [], fault="exit code 1"),
        mark(HEALTHY, [Accusation("Cookie")], "leak"),
        mark(HEALTHY, [], "clean"),
    ]
    s = add_up(marks)
    assert (s.leaking, s.first, s.container, s.line, s.within) == (4, 1, 1, 1, 1)
    assert (s.silent, s.called_clean, s.inconclusive, s.faults) == (3, 1, 1, 1)
    assert (s.repaired, s.accused) == (2, 1)


def test_each_pair_has_two_releases_a_program_and_a_line_that_feeds():
    programs = {path.stem for path in (ROOT / "tests" / "zoo" / "published").glob("*.py")}
    assert programs == set(PAIRS)
    for release in benchmark.releases():
        assert release.packages
        (leak,) = PAIRS[release.name].truth.leaks
        assert feeding_lines(release.program, leak)
    assert all(pair.leaking != pair.repaired for pair in PAIRS.values())


def test_the_manifest_lists_the_zoo_and_the_pairs_with_their_lines():
    data = json.loads(json.dumps(benchmark.manifest()))
    assert len(data["programs"]) > 300
    assert all((ROOT / item["program"]).exists() for item in data["programs"] + data["pairs"])
    assert all(pair["lines"] for pair in data["pairs"])


def test_stored_results_are_of_known_pairs_and_make_the_table():
    entries = json.loads(benchmark.RESULTS.read_text())
    compared = {name for name, p in PAIRS.items() if p.set_number in benchmark.COMPARED_SETS}
    assert {entry["pair"] for entry in entries} <= compared
    assert all(entry["version"] and entry["day"] for entry in entries)
    assert "leakscope" in benchmark.table(entries)
    page = (benchmark.HERE / "README.md").read_text()
    assert benchmark.table(entries) in page
    assert benchmark.pair_rows(entries) in page
