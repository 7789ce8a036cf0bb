"""The index as a whole: damaged and moved files, ranking by evidence, excerpts, cost."""

from __future__ import annotations

import sysconfig
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakscope.analysis.source import SourceIndex
from leakscope.analysis.source.index import managed_names
from leakscope.model.census import CensusRow, Owner, RootKind, Site
from leakscope.model.path_pattern import Step, parse_path

SOURCE = """\
def validate(loader):
    preds = []
    for x in loader:
        preds.append(x)
        if x:
            preds.append(
                make(x)
            )
    return preds
"""


def row(path="validate()·preds", file="/p/train.py", **more) -> CensusRow:
    function = path.partition("()")[0]
    owner = Owner(
        kind="function", name=function, file=file, variable=parse_path(path).variable, line=1
    )
    return CensusRow(
        path=path,
        name=path,
        root=RootKind.LOCAL,
        owner=owner,
        type="list",
        kind="list",
        host_bytes=1,
        **more,
    )


def lines(index: SourceIndex, requested: CensusRow, **more) -> list[int]:
    return [line.line for line in index.feeding(requested.owner, requested, **more)]


def test_a_file_that_does_not_parse_has_no_lines() -> None:
    index = SourceIndex({"/p/train.py": "def f(:\n", "/p/bad.py": "\0", "/p/empty.py": ""})
    assert lines(index, row()) == []
    assert index.defined_at(row().owner, row()) is None


def test_a_broken_file_does_not_spoil_the_others() -> None:
    index = SourceIndex({"/p/bad.py": "def f(:\n", "/p/train.py": SOURCE})
    assert lines(index, row()) == [4, 6]


@pytest.mark.parametrize(
    "recorded", ["/p/train.py", "/elsewhere/p/train.py", "train.py", "./train.py", "p/train.py"]
)
def test_finds_a_file_recorded_under_another_path(recorded: str) -> None:
    assert lines(SourceIndex({recorded: SOURCE}), row()) == [4, 6]


def test_the_same_file_under_two_paths_answers_once() -> None:
    index = SourceIndex({"/p/train.py": SOURCE, "train.py": SOURCE}, "/p")
    found = index.feeding(row().owner, row())
    assert [index.location(f.file, f.line) for f in found] == ["train.py:4", "train.py:6"]


def test_of_two_files_of_one_name_the_nearer_path_answers() -> None:
    other = SOURCE.replace("for x", "while x:\n        pass\n    for x")
    index = SourceIndex({"/p/a/train.py": SOURCE, "/p/b/train.py": other})
    found = index.feeding(row(file="/p/b/train.py").owner, row(file="/p/b/train.py"))
    assert {line.file for line in found} == {"/p/b/train.py"}


def test_an_allocation_seen_on_a_line_puts_it_first() -> None:
    seen = row(allocated_at=[Site(file="/p/train.py", line=7, bytes=9)])
    assert lines(SourceIndex({"/p/train.py": SOURCE}), seen) == [6, 4]


def test_the_phase_decides_between_loops() -> None:
    text = """\
def main():
    out = []
    for x in train_loader:
        out.append(x)
    for x in val_loader:
        out.append(x)
"""
    index = SourceIndex({"/p/train.py": text})
    requested = row("main()·out")
    assert lines(index, requested, phase="validation") == [6, 4]
    assert lines(index, requested, phase="train") == [4, 6]


def test_a_statement_shows_its_first_line() -> None:
    found = SourceIndex({"/p/train.py": SOURCE}).feeding(row().owner, row())
    assert [line.text for line in found] == ["preds.append(x)", "preds.append("]
    assert {line.form for line in found} == {"append"}


def test_an_excerpt_marks_the_lines_and_stays_inside_the_file() -> None:
    index = SourceIndex({"/p/train.py": SOURCE}, "/p")
    excerpt = index.excerpt("/p/train.py", [4, 99], context=2)
    assert excerpt is not None
    assert (excerpt.file, excerpt.first_line, excerpt.marked) == ("train.py", 2, [4])
    assert excerpt.lines == SOURCE.splitlines()[1:6]
    assert index.excerpt("/p/train.py", [99]) is None
    assert index.excerpt("/p/unknown.py", [1]) is None


def test_a_global_that_no_file_gives_a_value_is_of_no_known_type() -> None:
    source = """\
def validate(loader):
    global sink
    preds = []
    for x in loader:
        sink.append(x)
        preds.append(sink.make(x))
        sink.preds = preds
"""
    index = SourceIndex({"/p/train.py": source})
    owner = Owner(kind="class", name="Sink", file="/p/train.py", variable="preds", line=1)
    assert lines(index, row()) == [6]
    assert [line.line for line in index.feeding(owner, row())] == [6]


def test_an_owner_without_source_has_no_lines() -> None:
    index = SourceIndex({})
    assert index.feeding(row().owner, row()) == []
    assert index.feeding(None, row()) == []  # type: ignore[arg-type]


def test_windows_line_ends_count_lines_as_python_does() -> None:
    assert lines(SourceIndex({"/p/train.py": SOURCE.replace("\n", "\r\n")}), row()) == [4, 6]


@pytest.mark.parametrize(
    ("text", "root", "variable", "steps"),
    [
        ("__main__·cache['x']", "__main__", "cache", [("key", "'x'")]),
        ("T.run()·xs[*]['a.b']", "T.run()", "xs", [("any", "*"), ("key", "'a.b'")]),
        ("m·f⟨records⟩[0].x", "m", "f", [("cell", "records"), ("index", "0"), ("attr", "x")]),
        ("m·f(out=)", "m", "f", [("default", "out")]),
        ("main()·net._modules['head'].w", "main()", "net", [("attr", "head"), ("attr", "w")]),
        ("m·Config.cache", "m", "Config", [("attr", "cache")]),
        ("history", "", "history", []),
        ("m·d['it\\'s'][-1]", "m", "d", [("key", "'it\\'s'"), ("index", "-1")]),
    ],
)
def test_paths_are_taken_apart(text, root, variable, steps) -> None:
    path = parse_path(text)
    assert (path.root, path.variable) == (root, variable)
    assert list(path.steps) == [Step(*step) for step in steps]


@given(st.text(alphabet="ab·.[]()'\"*=⟨⟩0_", max_size=30))
def test_no_path_and_no_name_is_too_strange(text: str) -> None:
    index = SourceIndex({"/p/train.py": SOURCE})
    requested = row()
    owner = Owner(kind="class", name=text, file=text, variable=text)
    strange = CensusRow(
        path=text, name=text, root=RootKind.GLOBAL, owner=owner, type=text, kind="list",
        host_bytes=1,
    )  # fmt: skip
    index.feeding(owner, strange)
    index.feeding(requested.owner, strange)
    index.defined_at(owner, strange)


@pytest.mark.slow
def test_large_real_sources_are_indexed_in_seconds() -> None:
    """Forty modules of the standard library, and questions to the names that they bind."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(folder.glob("*.py"), key=lambda path: -path.stat().st_size)[:40]
    sources = {str(path): path.read_text(errors="replace") for path in files}
    start = time.process_time()
    index = SourceIndex(sources, str(folder))
    requested = 0
    for root in list(index.program.modules.values())[:40]:
        for cls in [c for c in root.children if c.kind == "class"][:3]:
            for attribute in list(cls.attributes)[:3]:
                owner = Owner(
                    kind="class", name=cls.qualname, file=root.module.file, variable=attribute
                )
                queried_row = CensusRow(
                    path=f"main()·thing.{attribute}", name=f"{cls.name}.{attribute}",
                    root=RootKind.LOCAL, owner=owner, type="list", kind="list", host_bytes=1,
                )  # fmt: skip
                index.feeding(owner, queried_row)
                assert index.defined_at(owner, queried_row) is not None
                requested += 1
    assert requested > 100
    assert time.process_time() - start < 40


TWO_WAYS = """\
def keep(preds, value):
    preds += [value]

def validate(loader):
    preds = []
    for x in loader:
        library.fill(preds, x)
        preds.append(x)
    return preds
"""


def at(*numbers: int, **more) -> list[Site]:
    return [Site(file="/p/train.py", line=number, count=1, **more) for number in numbers]


def test_a_line_at_which_an_insertion_was_seen_comes_first() -> None:
    index = SourceIndex({"/p/train.py": TWO_WAYS})
    assert lines(index, row())[0] == 8
    assert lines(index, row(inserted_at=at(7)))[:2] == [7, 8]


def test_an_insertion_counts_for_the_whole_statement() -> None:
    index = SourceIndex({"/p/train.py": SOURCE})
    assert lines(index, row(inserted_at=at(7))) == [6, 4]


def test_an_insertion_in_a_file_without_source_names_no_line() -> None:
    elsewhere = [Site(file="/p/gone.py", line=3, count=1)]
    assert lines(SourceIndex({"/p/train.py": SOURCE}), row(inserted_at=elsewhere)) == [4, 6]


def test_of_several_lines_that_insert_the_one_of_most_bytes_comes_first() -> None:
    index = SourceIndex({"/p/train.py": SOURCE})
    heavy = [*at(4, bytes=10), *at(7, bytes=900)]
    seen = row(inserted_at=at(4), items_made_at=at(4, 7), allocated_at=heavy)
    assert lines(index, seen) == [6, 4]


def test_what_grows_inside_is_not_fed_where_its_items_once_came() -> None:
    index = SourceIndex({"/p/train.py": SOURCE})
    assert lines(index, row(inserted_at=at(7)), grows_inside=True) == [4, 6]


PASSED_ON = """\
def validate(loader):
    preds = []
    for x in loader:
        loss = small(x)
        features = large(x)
        preds.append(loss)
        preds.append(features.detach())
    return preds
"""


def test_a_line_that_passes_on_what_another_made_counts_with_its_bytes() -> None:
    index = SourceIndex({"/p/train.py": PASSED_ON})
    made = [*at(4, bytes=100), *at(5, bytes=9000), *at(6, bytes=5), *at(7, bytes=4)]
    seen = row(inserted_at=at(6), items_made_at=at(6, 7), allocated_at=made)
    assert lines(index, seen) == [7, 6]
    made = [*at(4, bytes=9000), *at(5, bytes=100), *at(6, bytes=5), *at(7, bytes=4)]
    seen = row(inserted_at=at(7), items_made_at=at(6, 7), allocated_at=made)
    assert lines(index, seen) == [6, 7]


OPTIMIZER = """\
class Learner:
    def __init__(self):
        self.optimizer = make()
    def begin_task(self):
        self.optimizer.add_param_group({"params": head()})
    def step(self):
        self.optimizer.step()

def main():
    learner = Learner()
    for task in range(9):
        learner.begin_task()
        learner.step()
"""


def test_a_step_fills_the_state_of_an_optimizer_but_does_not_feed_it() -> None:
    index = SourceIndex({"/p/train.py": OPTIMIZER})
    state = row("main()·learner.optimizer.state", inserted_at=at(7), role="optimizer_state")
    assert lines(index, state)[0] == 5


WRAPPED = """\
def main():
    data = first()
    for x in loader:
        model(data)
        data = Concat([data, x])
"""


def test_what_is_put_into_a_new_one_of_its_kind_grows_there() -> None:
    index = SourceIndex({"/p/train.py": WRAPPED})
    assert lines(index, row("main()·data.parts")) == [5]


def test_a_module_is_made_by_a_method_rather_than_by_calling_its_owner() -> None:
    text = """\
def main():
    model = build()
    for x in loader:
        model(x)
        model.add_adapter(x)
"""
    index = SourceIndex({"/p/train.py": text})
    queried = msgspec.structs.replace(row("main()·model.blocks.mix"), kind="module")
    assert lines(index, queried)[0] == 5


def test_a_call_is_named_by_what_it_adds() -> None:
    text = """\
def main():
    model = build()
    for layer in layers_of(model):
        model(layer)
        library.register_parametrization(layer, "weight", make())
"""
    index = SourceIndex({"/p/train.py": text})
    assert lines(index, row("main()·model.parametrizations.weight")) == [5]


MANAGED = """\
from multiprocessing import Manager, Process


def work(jobs, results):
    while True:
        number = jobs.get()
        results[number] = number ** 2


class Scan:
    def __init__(self, manager):
        self.names = [].copy()


def main():
    with Manager() as manager:
        jobs = manager.Queue()
        results = manager.dict()
        first = manager.list()
        first.append(0)
        for number in range(100):
            jobs.put(number)
"""


def test_what_a_manager_keeps_has_the_programs_names_and_lines():
    found = managed_names(SourceIndex({"/p/scan.py": MANAGED}, "/p"))
    assert [(one.name, one.kind, one.made_at, one.filled_at) for one in found] == [
        ("first", "list", "scan.py:19", []),
        ("results", "dict", "scan.py:18", ["scan.py:7"]),
        ("jobs", "Queue", "scan.py:17", ["scan.py:22"]),
    ]


def test_without_a_manager_lists_are_nobodys_but_the_programs():
    text = MANAGED.replace("Manager", "Other")
    assert managed_names(SourceIndex({"/p/scan.py": text}, "/p")) == []


KEEPING = """\
class Shipper:
    def stream(self, name):
        found = self.streams[name] = zlib.compressobj(6)
        return found

    def context(self, url):
        found = ssl.create_default_context()
        found.minimum_version = 3
        self.contexts[url] = found

    def open(self, path):
        self.readers.append(av.open(path))

    def read(self, path):
        data = decode(path)
        self.digest.update(data)
        return data

    def both(self, path):
        image = decode(path)
        self.first.append(image)
        self.second.append(image)


    def __call__(self, path):
        self[path] = decode(path)

        def later():
            groups(path).append(decode(path))


def parse(texts):
    trees = []
    for text in texts:
        tree = etree.fromstring(text)
        trees.append(tree)
    total = total.add(tree)
"""


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (3, "Shipper.streams"),
        (7, "Shipper.contexts"),
        (12, "Shipper.readers"),
        (15, ""),
        (20, ""),
        (26, "Shipper"),
        (29, ""),
        (35, "trees"),
        (90, ""),
    ],
    ids=[
        "at once",
        "later",
        "as it is made",
        "read",
        "two",
        "the object itself",
        "a call's",
        "a local list",
        "no such line",
    ],
)
def test_the_container_that_gets_what_a_line_makes(line: int, name: str) -> None:
    assert SourceIndex({"/p/train.py": KEEPING}).kept_in("/p/train.py", line) == name


def test_native_memory_that_nobody_keeps_has_no_container() -> None:
    assert SourceIndex({}).kept_in("/p/train.py", 3) == ""


HANDING = """
import numpy as np
import arrow, codec, json, parser

class Record(codec.Model):
    name: str

class Own:
    def __init__(self, rows):
        self.rows = rows

def encode(batch):
    values = batch.tolist()
    content = {"rows": values, "text": json.dumps(values)}
    return codec.dumps(content, indent=1)

def columns(rng):
    parts = [rng.random() for _ in range(9)]
    return [("a", 1), *parts]

def table(rng):
    return arrow.table(columns(rng))

def count(rows):
    cells = rows.copy()
    total = len(cells) + sum(cells)
    kept.append(cells)
    return Own(cells), total

def store(path, text):
    parser.store(path, text=text)

def load(path):
    text = path.read_text()
    store(path, text)
    return Record(name=text)

def reduce(window):
    out = np.empty((3, 160))
    for row, function in zip(out, functions):
        function.reduce(window, out=row)
"""


@pytest.mark.parametrize(
    ("line", "takers"),
    [
        (13, [("codec.dumps", 15)]),
        (18, [("arrow.table", 22)]),
        (25, []),
        (34, [("parser.store", 31), ("Record", 36)]),
        (39, [("function.reduce", 41)]),
        (99, []),
    ],
    ids=["in a literal", "returned", "the program's own", "through a function", "items", "nowhere"],
)
def test_the_functions_of_libraries_that_get_what_a_line_makes(
    line: int, takers: list[tuple[str, int]]
) -> None:
    index = SourceIndex({"/p/train.py": HANDING}, "/p")
    found = index.handed_to("/p/train.py", line)
    assert sorted(found) == sorted((name, f"train.py:{at}") for name, at in takers)


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/opt/python/3.11.7/lib/python3.11/threading.py", "lib/python3.11/threading.py:9"),
        ("/usr/lib64/python3.12/site-packages/a/b.py", "lib/python3.12/site-packages/a/b.py:9"),
        ("/p/lib/other.py", "lib/other.py:9"),
        ("/elsewhere/lib/other.py", "/elsewhere/lib/other.py:9"),
    ],
)
def test_of_installed_files_the_folders_above_are_left_out(file: str, shown: str) -> None:
    assert SourceIndex({"/p/train.py": "x = 1\n"}, "/p").location(file, 9) == shown
