from __future__ import annotations

import pytest
from heap_programs import RunProgram

from leakscope.model.census import Census, CensusScope

pytest.importorskip("torch")

HEAD = """
import torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(128, 128) for _ in range(2)])
        self.norm = torch.nn.BatchNorm1d(128)
        self.head = torch.nn.Linear(128, 128)
    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(self.norm(x))
"""
WEIGHT = 128 * 128 * 4
PARAMETERS = 3 * (WEIGHT + 128 * 4) + 2 * 128 * 4
BUFFERS = 2 * 128 * 4 + 8


def test_parts_of_a_training_step_have_their_roles(run_program: RunProgram) -> None:
    census = run_program(
        HEAD
        + """
def train():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    images = torch.randn(32, 128)
    model(images).sum().backward()
    optimizer.step()
    look()
train()
"""
    ).last
    host = {role: devices["host"] for role, devices in census.components.items()}
    assert host["parameters"] == PARAMETERS
    assert host["gradients"] == PARAMETERS
    assert host["buffers"] == BUFFERS
    steps = 8 * 4
    assert host["optimizer_state"] == pytest.approx(2 * PARAMETERS + steps, rel=0.02)
    assert host["batch"] == 32 * 128 * 4


def test_components_add_up_to_payload_and_heap(run_program: RunProgram) -> None:
    census = run_program(
        HEAD
        + """
import numpy
def train():
    model = Net()
    outputs = [model(torch.randn(32, 128)) for _ in range(20)]
    arrays = [numpy.zeros(5000) for _ in range(20)]
    look()
train()
"""
    ).last
    assert _sum(census) == census.heap_bytes + sum(census.payload_bytes.values())
    graph = census.components["graph"]["host"]
    assert 20 * 4 * 32 * 128 * 4 <= graph <= sum(census.payload_bytes.values())
    assert census.components["accumulation"]["host"] >= 20 * (32 * 128 * 4 + 5000 * 8)


def _sum(census: Census) -> int:
    return sum(size for devices in census.components.values() for size in devices.values())


def test_a_sum_of_losses_is_a_graph_with_its_nodes(run_program: RunProgram) -> None:
    source = (
        HEAD
        + """
def train():
    model = Net()
    total = 0
    for _ in range(STEPS):
        total = total + model(torch.randn(32, 128)).mean()
    look()
train()
"""
    )
    ten = run_program(source.replace("STEPS", "10")).row("train.total")
    twenty = run_program(source.replace("STEPS", "20")).row("train.total")
    assert ten.kind == "graph"
    assert ten.role == "graph"
    per_step = (twenty.graph_nodes - ten.graph_nodes) / 10
    assert per_step == pytest.approx(twenty.graph_nodes / 20, rel=0.2)
    saved = 32 * 128 * 4 * 4  # input, two activations of relu, input of the head
    assert (twenty.host_bytes - ten.host_bytes) / 10 >= saved


def test_a_scalar_without_its_graph_is_no_row(run_program: RunProgram) -> None:
    taken = run_program(
        HEAD
        + """
def train():
    model = Net()
    total = 0
    for _ in range(10):
        total = total + model(torch.randn(32, 128)).mean().item()
    look()
train()
"""
    )
    assert "train.total" not in taken.names()


def test_losses_in_a_list_hold_their_graphs(run_program: RunProgram) -> None:
    taken = run_program(
        HEAD
        + """
class Trainer:
    def __init__(self):
        self.losses = []
        self.model = Net()
    def fit(self):
        for _ in range(10):
            self.losses.append(self.model(torch.randn(32, 128)).mean())
        look()
trainer = Trainer()
trainer.fit()
"""
    )
    row = taken.row("Trainer.losses")
    assert row.kind == "list"
    assert row.length == 10
    assert row.graph_nodes >= 10 * 4
    assert row.host_bytes >= 10 * 32 * 128 * 4 * 4
    assert taken.row("Trainer.losses[*]").kind == "graph"


def test_graphs_with_two_names_are_reported_under_one(run_program: RunProgram) -> None:
    """Neither the list nor the sum retains the graphs alone: what they share is reported once."""
    taken = run_program(
        HEAD
        + """
def train():
    model = Net()
    losses, total = [], 0
    for _ in range(10):
        loss = model(torch.randn(32, 128)).mean()
        losses.append(loss)
        total = total + loss
    del loss
    look()
train()
"""
    )
    rows = {row.name: row for row in taken.last.rows}
    shared = sum(
        rows[name].shared_bytes.get("host", 0) + rows[name].host_bytes
        for name in ("train.losses", "train.total")
        if name in rows
    )
    assert shared >= 10 * 32 * 128 * 4 * 4


def test_parameters_are_named_through_their_module(run_program: RunProgram) -> None:
    taken = run_program(
        HEAD
        + """
class Trainer:
    def __init__(self):
        self.model = Net()
        self.optimizer = torch.optim.Adam(self.model.parameters())
def main():
    trainer = Trainer()
    trainer.model(torch.randn(32, 128)).mean().backward()
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()
    look()
main()
"""
    )
    weight = taken.row("Trainer.model.layers[0].weight")
    assert weight.path == "main()·trainer.model.layers[0].weight"
    assert weight.role == "parameters"
    assert taken.row("Trainer.model.head.weight").host_bytes == pytest.approx(WEIGHT, rel=0.02)
    state = taken.row("Trainer.optimizer.state[*]['exp_avg']")
    assert state.role == "optimizer_state"
    assert state.count == 3
    assert taken.row("Trainer.optimizer").kind == "optimizer"


def test_bounded_containers_declare_their_capacity(run_program: RunProgram) -> None:
    taken = run_program(
        """
import functools, queue
from collections import deque
import torch
@functools.lru_cache(maxsize=50)
def load_frame(index):
    return torch.zeros(5000)
@functools.lru_cache(maxsize=None)
def load_all(index):
    return torch.zeros(5000)
ring = deque(maxlen=7)
jobs = queue.Queue(maxsize=9)
for i in range(5):
    load_frame(i), load_all(i), ring.append(torch.zeros(5000)), jobs.put(torch.zeros(5000))
load_frame(0), load_frame(3)
look()
"""
    )
    found = {name: taken.row(name) for name in ("load_frame", "load_all", "ring", "jobs")}
    assert {name: row.capacity for name, row in found.items()} == {
        "load_frame": 50,
        "load_all": None,
        "ring": 7,
        "jobs": 9,
    }
    assert {row.length for row in found.values()} == {5}
    assert [row.hits for row in found.values()] == [2, 0, None, None]
    assert {row.role for row in found.values()} == {"cache"}
    assert [row.kind for row in found.values()] == ["lru_cache", "lru_cache", "deque", "queue"]
    assert taken.last.components["cache"]["host"] >= 20 * 5000 * 4


def test_a_list_of_an_nn_module_is_no_buffer(run_program: RunProgram) -> None:
    taken = run_program(
        HEAD
        + """
model = Net()
model.outputs = [torch.zeros(5000) for _ in range(20)]
look()
"""
    )
    assert taken.row("Net.outputs").role == "accumulation"
    assert taken.last.components["buffers"]["host"] == BUFFERS


def test_contents_are_described_by_their_commonest_form(run_program: RunProgram) -> None:
    taken = run_program(
        """
import torch
class Trainer:
    def __init__(self):
        self.boxes = [torch.zeros(256, 64) for _ in range(6)]
trainer = Trainer()
look()
"""
    )
    kept = taken.row("Trainer.boxes").holds[0]
    assert (kept.type, kept.count) == ("torch.Tensor", 6)
    assert kept.detail == "float32 (256, 64) on cpu"
    assert kept.bytes == pytest.approx(6 * 256 * 64 * 4, rel=0.02)


def test_full_and_focused_censuses_agree_on_the_users_rows(run_program: RunProgram) -> None:
    source = (
        HEAD
        + """
class Trainer:
    def __init__(self):
        self.history = [{"pred": torch.zeros(5000)} for _ in range(10)]
        self.model = Net()
def main():
    trainer = Trainer()
    batch = torch.zeros(8000)
    look()
main()
"""
    )
    focused = run_program(source).last
    full = run_program(source, scope=CensusScope.FULL).last
    sizes = {row.path: row.host_bytes for row in focused.rows if row.user}
    assert sizes == pytest.approx(
        {row.path: row.host_bytes for row in full.rows if row.user}, rel=0.001
    )
    assert focused.garbage_bytes is None
    assert full.garbage_bytes is not None


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_parameters_of_globals_are_named_through_the_module(
    engine: str, run_program: RunProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "reference":
        monkeypatch.setattr("leakscope.heap.graph._native", None)
    taken = run_program(
        HEAD
        + """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
model(torch.randn(32, 128)).mean().backward()
optimizer.step()
look()
"""
    )
    assert taken.row("model.head.weight").role == "parameters"
    assert not [name for name in taken.names() if "keys()" in name]
    assert taken.row("optimizer.state[*]['momentum_buffer']").count == 3


def test_what_libraries_gather_is_no_accumulation(run_program: RunProgram) -> None:
    source = """
        history = [str(i) * 50 for i in range(2_000)]
        look()
    """
    focused = run_program(source).last.components["accumulation"]["host"]
    full = run_program(source, scope=CensusScope.FULL).last.components["accumulation"]["host"]
    assert full == pytest.approx(focused, rel=0.05)


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_gradients_of_frozen_parameters_are_reported(
    engine: str, run_program: RunProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "reference":
        monkeypatch.setattr("leakscope.heap.graph._native", None)
    source = (
        HEAD
        + """
model = Net()
model(torch.randn(32, 128)).mean().backward()
FREEZE
look()
"""
    )
    frozen = source.replace("FREEZE", "model.layers.requires_grad_(False)")
    assert run_program(frozen).last.frozen_gradient_bytes == {"host": 2 * (WEIGHT + 128 * 4)}
    assert run_program(source.replace("FREEZE", "")).last.frozen_gradient_bytes == {}
    let_go = source.replace("FREEZE", "model.zero_grad(); model.requires_grad_(False)")
    assert run_program(let_go).last.frozen_gradient_bytes == {}


def test_gradients_in_one_storage_are_frozen_together_or_not(run_program: RunProgram) -> None:
    """Of a bucket that has gradients of both kinds the whole is needed."""
    source = """
import torch
first, second = (torch.nn.Parameter(torch.zeros(5000)) for _ in range(2))
bucket = torch.zeros(10_000)
first.grad, second.grad = bucket[:5000], bucket[5000:]
first.requires_grad_(False)
look()
second.requires_grad_(False)
look()
"""
    taken = run_program(source)
    assert [census.frozen_gradient_bytes for census in taken.censuses] == [{}, {"host": 40_000}]
