"""Remedies for what torch programs keep: slices, copies of weights, gradients, activations, layers.

Each with a look-alike that the remedy must keep away from.
"""

from __future__ import annotations

import dataclasses
import textwrap

import pytest
from synthetic_runs import KIB, Program

from leakscope.analysis import analyse
from leakscope.analysis.remedies import propose
from leakscope.analysis.remedies.context import CulpritContext
from leakscope.analysis.source import SourceIndex
from leakscope.model.census import CensusRow, Content, Owner, RootKind
from leakscope.model.report import Remedy

TENSORS = [Content(type="torch.Tensor", count=9, bytes=9000, detail="float32 (8, 4) on cpu")]


@dataclasses.dataclass(frozen=True)
class Kept:
    """A culprit called ``main.kept`` (or what ``attribute`` says) in a program."""

    text: str
    kind: str = "list"
    attribute: str = ""
    unit: str = "step"
    graph_nodes: int = 0
    unused: int = 0
    shared: int = 0
    length: int = 100

    def remedy(self) -> Remedy:
        owner_kind, _, name = self.attribute.rpartition(" ")
        owner, _, variable = name.partition(".")
        row = CensusRow(
            path=f"main()·thing.{variable}" if self.attribute else "main()·kept",
            name=name or "main.kept",
            root=RootKind.LOCAL,
            owner=Owner(
                kind=owner_kind or "function",
                name=owner or "main",
                variable=variable or "kept",
                file="/p/train.py",
            ),
            type=self.kind,
            kind=self.kind,
            host_bytes=1 << 20,
            unused_bytes={"host": self.unused} if self.unused else {},
            shared_bytes={"host": self.shared} if self.shared else {},
            graph_nodes=self.graph_nodes,
            holds=TENSORS,
            length=self.length,
        )
        sources = SourceIndex({"/p/train.py": textwrap.dedent(self.text)}, "/p")
        return propose(
            CulpritContext(
                row,
                growth="across",
                unit=self.unit,
                phase="train",
                feeding=sources.feeding(row.owner, row),
                sources=sources,
                items_per_unit=1.0,
            )
        )


def added(remedy: Remedy) -> list[str]:
    lines = (remedy.diff or "").splitlines()
    return [line[1:].strip() for line in lines if line[:1] == "+" and line[:3] != "+++"]


LOOP = """
def main(loader, model):
    kept = []
    for x, y in loader:
        out = model(x)
        {}
        loss.backward()
"""


@pytest.mark.parametrize(
    ("stored", "graph_nodes", "kept"),
    [
        ("out.detach()[:, 0]", 0, "out.detach()[:, 0].clone()"),
        ("out[0]", 0, "out[0].clone()"),
        ("out[:, 0]", 9, "out[:, 0].detach().clone()"),
        ("out[0].view(-1)", 0, "out[0].view(-1).clone()"),
    ],
)
def test_a_slice_that_keeps_the_whole_is_cloned(stored: str, graph_nodes: int, kept: str) -> None:
    text = LOOP.format(f"kept.append({stored})")
    remedy = Kept(text, graph_nodes=graph_nodes, unused=1_000_000).remedy()
    assert remedy.title == "Clone the slice before it is stored in main.kept"
    assert added(remedy) == [f"kept.append({kept})"]


def test_a_slice_that_reads_most_of_the_whole_is_no_matter() -> None:
    remedy = Kept(LOOP.format("kept.append(out[1:])"), unused=100_000).remedy()
    assert "Clone" not in remedy.title


def test_a_slice_behind_a_call_gets_no_diff() -> None:
    remedy = Kept(LOOP.format("kept.append(first(out))"), unused=1_000_000).remedy()
    assert remedy.title.startswith("Clone the slice")
    assert remedy.diff is None


@pytest.mark.parametrize(
    "stored",
    [
        "copy.deepcopy(model.state_dict())",
        "copy.deepcopy(model)",
        "{k: v.clone() for k, v in model.state_dict().items()}",
        "(epoch, model.state_dict())",
    ],
)
def test_copies_of_the_weights_are_called_so(stored: str) -> None:
    remedy = Kept(LOOP.format(f"kept.append({stored})"), unit="epoch").remedy()
    assert remedy.title == "Keep one copy of the weights in main.kept"
    assert remedy.diff is None


def test_a_deep_copy_of_something_else_is_no_copy_of_the_weights() -> None:
    remedy = Kept(LOOP.format("kept.append(copy.deepcopy(batch))")).remedy()
    assert "weights" not in remedy.title


GRADIENTS = LOOP.format("kept.append({n: p.grad.clone() for n, p in model.named_parameters()})")


def test_gradients_that_nothing_reads_become_norms() -> None:
    remedy = Kept(GRADIENTS).remedy()
    assert remedy.title == "Keep the norms of the gradients in main.kept"
    assert added(remedy) == [
        "kept.append({n: p.grad.norm().item() for n, p in model.named_parameters()})"
    ]


def test_gradients_that_something_reads_are_left_as_they_are() -> None:
    remedy = Kept(GRADIENTS + "    draw(kept)\n").remedy()
    assert remedy.title == "Keep the norms of the gradients in main.kept"
    assert remedy.diff is None


def test_norms_of_gradients_are_no_gradients() -> None:
    assert "gradients" not in Kept(LOOP.format("kept.append(p.grad.norm())")).remedy().title


REPLAY = """
import random

class Replay:
    def __init__(self):
        self.kept = []

    def push(self, transition):
        self.kept.append(transition)

    def sample(self, n):
        return random.sample(self.kept, n)

def main():
    thing = Replay()
    while True:
        thing.push(step())
        learn(thing.sample(8))
"""


def test_a_replay_buffer_becomes_a_bounded_deque() -> None:
    remedy = Kept(REPLAY, attribute="class Replay.kept").remedy()
    assert remedy.title == "Bound Replay.kept with deque(maxlen=100_000)"
    assert added(remedy) == [
        "from collections import deque",
        "self.kept = deque(maxlen=100_000)",
    ]


def test_a_replay_buffer_that_is_sliced_can_be_no_deque() -> None:
    text = REPLAY + "        show(thing.kept[-5:])\n"
    remedy = Kept(text, attribute="class Replay.kept").remedy()
    assert remedy.title.startswith("Bound Replay.kept with deque")
    assert remedy.diff is None


HOOK = """
kept = {{}}

def store(name):
    def hook(module, inputs, output):
        {}
    return hook

def main(model, loader):
    for name, layer in model.named_modules():
        layer.{}(store(name))
    for x in loader:
        model(x)
"""


def hook_row(text: str) -> Remedy:
    return Kept(text, kind="dict", attribute="module __main__.kept").remedy()


def test_activations_that_a_hook_appends_are_to_be_overwritten() -> None:
    text = HOOK.format("kept[name].append(output.detach())", "register_forward_hook")
    remedy = hook_row(text)
    assert remedy.title == "Keep the last activation of each layer in __main__.kept"
    assert "train.py:11" in remedy.text
    assert remedy.diff is None


def test_a_callback_of_something_else_is_no_hook() -> None:
    text = HOOK.format("kept[name].append(output.detach())", "when_done")
    assert "activation" not in hook_row(text).title


HEADS = """
class Learner(nn.Module):
    def __init__(self):
        self.kept = nn.ModuleList()

    def grow(self):
        self.kept.append(nn.Linear(9, 9))

def main():
    thing = Learner()
    for task in tasks:
        thing.grow()
        fit(thing, task)
"""


def test_copies_of_a_model_among_modules_are_no_parts_to_be_made_before() -> None:
    text = HEADS.replace("nn.Linear(9, 9)", "copy.deepcopy(self.base).requires_grad_(False)")
    remedy = Kept(text, kind="module", attribute="class Learner.kept", unit="epoch").remedy()
    assert remedy.title == "Keep one copy of the weights in Learner.kept"


def test_modules_added_while_training_are_to_be_made_before() -> None:
    remedy = Kept(HEADS, kind="module", attribute="class Learner.kept", unit="epoch").remedy()
    assert remedy.title == "Create the modules of Learner.kept once, before the loop"
    assert "`self.kept.append(nn.Linear(9, 9))` at train.py:7" in remedy.text


GROUPS = """
def main(model, loader, make):
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(9):
        optimizer.add_param_group({"params": make()})
        for x in loader:
            optimizer.step()
"""


def test_the_state_of_ever_more_groups_is_fed_by_adding_groups() -> None:
    row = Kept(GROUPS, kind="dict", attribute="function main.optimizer")
    assert row.remedy().title == "Add parameter groups once, before the loop"


LOSSES = """
class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.{}
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad * (ctx.x.abs() < ctx.limit), None

def main(loader, model):
    kept = []
    for x, y in loader:
        loss = model(x)
        loss.backward({})
        kept.append(loss)
"""


def test_a_kept_loss_says_what_backward_leaves_on_the_context() -> None:
    text = Kept(LOSSES.format("x = x", ""), graph_nodes=90).remedy().text
    assert "train.py:5 keeps `x` on ctx" in text
    assert "on ctx" not in Kept(LOSSES.format("limit = limit", ""), graph_nodes=90).remedy().text


def test_a_kept_loss_says_that_its_graph_was_retained() -> None:
    text = Kept(LOSSES.format("a = 1", "retain_graph=True"), graph_nodes=90).remedy().text
    assert "train.py:16 calls backward(retain_graph=True), which frees nothing of them" in text
    assert "retain_graph" not in Kept(LOSSES.format("a = 1", ""), graph_nodes=90).remedy().text


STATE = """
class Agent(nn.Module):
    def act(self, x):
        self.kept = self.cell(x, self.kept)
        return self.policy(self.kept).argmax(1)

def main():
    thing = Agent()
    for x in stream:
        thing.act(x)
"""


def test_a_state_that_outlives_its_function_is_cut_before_it_is_carried_on() -> None:
    row = Kept(STATE, kind="graph", attribute="class Agent.kept", graph_nodes=900)
    assert row.remedy().title == "Detach Agent.kept between batches"
    assert added(row.remedy()) == ["self.kept = self.kept.detach()"]


@pytest.mark.parametrize(("shared", "is_cut"), [(8 << 20, True), (1 << 10, False)])
def test_a_state_whose_graph_the_last_loss_keeps_too_is_cut(shared: int, is_cut: bool) -> None:
    """No graph counts for the state alone then, and its row is one of a plain tensor."""
    row = Kept(STATE, kind="tensor", attribute="class Agent.kept", shared=shared)
    assert (row.remedy().title == "Detach Agent.kept between batches") == is_cut


def test_a_state_that_gradients_are_computed_from_is_left_to_the_reader() -> None:
    text = STATE + "        thing.kept.sum().backward()\n"
    row = Kept(text, kind="graph", attribute="class Agent.kept", graph_nodes=900)
    assert row.remedy().diff is None


PENALTY = """
def main():
    kept = nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD(head.parameters(), 0.1)
    for x, y in loader:
        loss = loss_of(head(kept * x), y)
        optimizer.zero_grad()
        loss.backward(create_graph=True)
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("role", "graph_nodes", "lines", "is_listed"),
    [
        ("parameters", 9_000, ["train.py:8"], True),
        ("parameters", 0, [], False),
        ("other", 9_000, ["train.py:3"], False),
    ],
    ids=["a gradient with its graph", "a parameter that gets larger", "another tensor"],
)
def test_a_parameter_whose_gradient_keeps_graphs_is_fed_by_the_backward_that_makes_them(
    role: str, graph_nodes: int, lines: list[str], is_listed: bool
) -> None:
    program = Program(epochs=8).leak(
        "main()·kept",
        256 * KIB,
        kind="tensor",
        type="torch.nn.parameter.Parameter",
        role=role,
        graph_nodes=graph_nodes,
        owner=Owner(kind="function", name="main", variable="kept", file="/p/train.py"),
        name="main.kept",
    )
    run = program.build()
    run.main.sources["/p/train.py"] = PENALTY
    first = analyse(run).culprits[0]
    assert [line.rpartition("/")[2] for line in first.fed_at] == lines
    assert ("Set the gradient of main.kept to None" in first.remedy.title) is is_listed
