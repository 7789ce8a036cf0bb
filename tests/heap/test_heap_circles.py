"""The circles that keep garbage from being freed at once, named as a person would."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from heap_programs import RunProgram, Taken, program_runner
from hypothesis import given
from hypothesis import strategies as st
from optional_torch import needs_torch
from payloads import ENGINES, seen
from reference_oracle.relations import Circles

from leakscope.model.census import CensusRow, CensusScope, RootKind

HEAD = """
class Payload:
    def __init__(self):
        self.data = bytearray(2_000_000)
"""
PROGRAM = (
    HEAD
    + """
class Model(Payload):
    def __init__(self, trainer):
        self.trainer = trainer
class Trainer(Payload):
    def __init__(self):
        super().__init__()
        self.model = Model(self)
Trainer()

class Listener:
    def __init__(self, bus):
        self.bus, self.inner = bus, [bytearray(1_500_000)]
class Bus(Payload):
    def __init__(self):
        super().__init__()
        self.listeners = {"first": [Listener(self)]}
Bus()

class Job(Payload):
    def __init__(self):
        super().__init__()
        self.callback = self.run
    def run(self):
        pass
Job()

class Hooked(Payload):
    pass
def attach(owner):
    def hook():
        return owner
    owner.hook = hook
attach(Hooked())

class Batch(Payload):
    pass
def step():
    batch = Batch()
    try:
        raise ValueError
    except ValueError as caught:
        error = caught
step()

class Result(Payload):
    pass
def fail():
    result = Result()
    raise KeyError
def outer():
    try:
        fail()
    except KeyError as caught:
        kept = caught
outer()

class Item(Payload):
    pass
def generate():
    item = Item()
    me = yield
    yield
running = generate()
next(running), running.send(running)
del running

class Held(Payload):
    pass
class Holder:
    def __init__(self):
        self.self, self.kept = self, [{"it": Held()}]
Holder()

class Node(Payload):
    def __init__(self):
        super().__init__()
        self.around, self.near = [[[self]]], self
Node()

class Alone(Payload):
    pass
alone = Alone()
look()
"""
)


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Garbage stays as long as the test lasts, and no older is there."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def cycle_of(taken: Taken, kind: str) -> list[str]:
    found = [row for row in taken.last.rows if row.type.endswith(kind)]
    assert len(found) == 1, sorted(row.name for row in taken.last.rows)
    return found[0].cycle


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_circles_are_named_by_their_steps(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_collection: None
) -> None:
    if engine == "reference":
        monkeypatch.setattr("leakscope.heap.graph._native", None)
    taken = program_runner(tmp_path)(PROGRAM, scope=CensusScope.FULL)
    garbage = {row.type: row for row in taken.last.rows if row.root == "garbage"}
    cycles = {_short(row): row.cycle for row in garbage.values() if row.cycle}
    step = ["frame of step()·error", "ValueError.__traceback__"]
    fail = ["frame of fail().f_back", "frame of outer()·kept", "KeyError.__traceback__"]
    expected = {
        "Trainer": ["Trainer.model", "Model.trainer"],
        "Bus": ["Bus.listeners['first'][*]", "Listener.bus"],
        "Job": ["Job.callback"],
        "Hooked": ["Hooked.hook", "attach.hook()⟨owner⟩"],
        "Batch": step,
        "Result": fail,
        "generator": ["generator generate()·me"],
        "Holder": ["Holder.self"],
        "Node": ["Node.near"],
    }
    assert {kind: cycles.get(kind) for kind in expected} == expected
    alone = taken.row("alone")
    assert alone.cycle == []
    assert alone.host_bytes > 2_000_000


def _short(row: CensusRow) -> str:
    return row.type.rpartition(".")[2]


def test_what_a_circle_holds_is_reported_by_it(
    run_program: RunProgram, no_collection: None
) -> None:
    """The collector knew the payload before the circle: it heads a row of its own."""
    taken = run_program(
        """
class Data:
    def __init__(self):
        self.bytes = bytearray(3_000_000)
class Ring:
    def __init__(self, data):
        self.ring, self.boxes = self, [(data, 1)]
Ring(Data())
look()
""",
        scope=CensusScope.FULL,
    )
    assert cycle_of(taken, ".Data") == ["Ring.ring"]


def test_little_garbage_is_not_looked_at(no_collection: None) -> None:
    ring: list[object] = [bytearray(200_000)]
    ring.append(ring)
    del ring
    assert not any(seen(ENGINES[-1], full=True).nodes.circle)
    requested = seen(ENGINES[-1], full=True, circle_bytes=100_000).nodes
    assert [type(requested.objects[circle[0]]) for circle in requested.circle if circle][:1] == [
        list
    ]


@needs_torch
def test_a_hook_that_holds_its_tensor(run_program: RunProgram, no_collection: None) -> None:
    taken = run_program(
        """
import torch
def watch(weight):
    def hook(gradient):
        return weight
    weight.register_hook(hook)
watch(torch.nn.Parameter(torch.zeros(500_000)))
look()
""",
        scope=CensusScope.FULL,
    )
    assert cycle_of(taken, "Parameter") == ["Parameter._backward_hooks[*]", "watch.hook()⟨weight⟩"]


@needs_torch
def test_gradients_that_refer_to_their_own_graph(
    run_program: RunProgram, no_collection: None
) -> None:
    """What C++ keeps in a circle is no garbage: the collector can't free it."""
    taken = run_program(
        """
import torch
def train():
    weight = torch.nn.Parameter(torch.zeros(500_000))
    (weight ** 2).sum().backward(create_graph=True)
import warnings
warnings.simplefilter("ignore")
train()
look()
""",
        scope=CensusScope.FULL,
    )
    assert not [row for row in taken.last.rows if row.cycle]


ACCUMULATING = """
import torch
class Watch:
    def __init__(self):
        self.weight = torch.nn.Parameter(torch.zeros(500_000))
        self.node = self.weight.expand_as(self.weight).grad_fn.next_functions[0][0]
        self.node.register_hook(lambda *_: None if self else None)
        self.weight.exp().sum().backward()
"""


@needs_torch
def test_a_node_that_accumulates_and_whose_hook_refers_back_is_garbage(
    run_program: RunProgram, no_collection: None
) -> None:
    taken = run_program(f"{ACCUMULATING}\nWatch()\nlook()\n", scope=CensusScope.FULL)
    assert set(cycle_of(taken, "Watch")) == {
        "Watch.node",
        "AccumulateGrad[*]",
        "Watch.__init__.<lambda>()⟨self⟩",
    }
    (kept,) = (row for row in taken.last.rows if row.type.endswith("Watch"))
    assert kept.host_bytes > 2_000_000  # the weight


@needs_torch
def test_one_whose_graph_is_kept_is_not(run_program: RunProgram, no_collection: None) -> None:
    """C++ refers to the node then, and the collector doesn't see its hooks."""
    made = "watch = Watch()\nwatch.out = watch.weight.exp()\ndel watch\nlook()\n"
    taken = run_program(f"{ACCUMULATING}\n{made}", scope=CensusScope.FULL)
    assert not [row for row in taken.last.rows if row.cycle]
    native = [row for row in taken.last.rows if row.root is RootKind.NATIVE and row.loop]
    assert native
    assert native[0].host_bytes > 4_000_000


LEARNERS = """
import torch
def learn():
    layer = torch.nn.Linear(500, 500, bias=False, dtype=torch.float64)
    layer(torch.ones(1, 500, dtype=torch.float64)).square().sum().backward(create_graph=True)
for _ in range(3):
    learn()
    look()
"""


@needs_torch
def test_leaves_of_graphs_in_native_code_are_held_by_it_however_often_it_was_looked(
    run_program: RunProgram, no_collection: None
) -> None:
    """Torch keeps the Python object of each node that a walk has read."""
    taken = run_program(LEARNERS, scope=CensusScope.FULL)
    (held,) = (row for row in taken.last.rows if row.path.endswith("Parameter float64"))
    assert held.root is RootKind.NATIVE
    assert held.count == 3
    assert held.host_bytes > 6 * 500 * 500 * 8 - 1000


EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25)


def _distance(edges: list[tuple[int, int]], start: int) -> int:
    """Return the length of the shortest circle through a node; 0 where there is none."""
    reached, frontier, length = set[int](), {start}, 0
    while frontier:
        length += 1
        frontier = {b for a, b in edges if a in frontier} - reached
        if start in frontier:
            return length
        reached |= frontier
    return 0


@given(EDGES, st.integers(0, 9))
def test_circles_are_the_shortest_through_the_nearest(
    edges: list[tuple[int, int]], node: int
) -> None:
    targets = [(source, [b for a, b in edges if a == source]) for source in range(10)]
    circle = Circles(targets, plain=set(range(10))).of(node)
    turned = zip(circle, [*circle[1:], *circle[:1]], strict=True)
    assert set(turned) <= set(edges)
    own = _distance(edges, node)
    if own:
        assert circle[0] == node
        assert len(circle) == own
    above, behind = {node}, {node}
    while behind:
        behind = {a for a, b in edges if b in behind} - above
        on_circle = {a for a in behind if _distance(edges, a)}
        if on_circle and not own:
            assert circle[0] in on_circle
            assert len(circle) == _distance(edges, circle[0])
            return
        above |= behind
    assert bool(circle) is bool(own)


def test_attributes_are_followed_before_code() -> None:
    edges = [(0, [1, 2]), (1, [0]), (2, [0])]
    assert Circles(edges, plain={0, 2}).of(0) == [0, 2]
    assert Circles(edges, plain={0, 1}).of(0) == [0, 1]
