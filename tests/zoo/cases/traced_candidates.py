"""An architecture search that rewrites each candidate's graph with torch.fx before it is tried."""

import operator
import random

import torch
from torch import fx, nn
from torch.nn import functional as F

WIDTH, BLOCKS, CLASSES, CANDIDATES = 24, 130, 6, 76
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh, "silu": F.silu}


class Block(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.bottleneck_projection = nn.Linear(WIDTH, WIDTH)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x):
        return x + 0.05 * self.activation(self.bottleneck_projection(x))


class Backbone(nn.Module):
    def __init__(self, choice):
        super().__init__()
        self.stem = nn.Linear(12, WIDTH)
        self.residual_encoder_blocks = nn.ModuleList(Block(name) for name in choice)

    def forward(self, x):
        x = self.stem(x)
        for block in self.residual_encoder_blocks:
            x = block(x)
        return x


class Candidate(nn.Module):
    """A deep and narrow net of blocks that a search has chosen."""

    def __init__(self, choice):
        super().__init__()
        self.feature_backbone = Backbone(choice)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(self.feature_backbone(x))


def fused(candidate):
    """Return the candidate with the scaled sums of its blocks made one operation."""
    traced = fx.symbolic_trace(candidate)
    for node in list(traced.graph.nodes):
        if node.op != "call_function" or node.target is not operator.add:
            continue
        left, right = node.args
        with traced.graph.inserting_after(node):
            scaled = right.args[0]
            new = traced.graph.call_function(torch.add, (left, scaled), {"alpha": 0.05})
        node.replace_all_uses_with(new)
        traced.graph.erase_node(node)
        traced.graph.erase_node(right)
    return fx.GraphModule(traced, traced.graph)


class Evolution:
    """Keeps the best choices and draws others close to them."""

    def __init__(self, seed, keep=6):
        self.random = random.Random(seed)
        self.keep = keep
        self.best = []

    def ask(self):
        if len(self.best) < self.keep:
            return [self.random.choice(list(ACTIVATIONS)) for _ in range(BLOCKS)]
        choice = list(self.random.choice(self.best)[1])
        for place in self.random.sample(range(BLOCKS), 12):
            choice[place] = self.random.choice(list(ACTIVATIONS))
        return choice

    def tell(self, loss, choice):
        self.best = sorted([*self.best, (loss, choice)], key=lambda one: one[0])[: self.keep]


def trial(choice, x, y):
    model = fused(Candidate(choice))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        return F.cross_entropy(model(x), y).item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(64, 12)
    y = (x @ torch.randn(12, CLASSES)).argmax(-1)
    evolution = Evolution(seed=0)
    for number in range(1, CANDIDATES + 1):
        choice = evolution.ask()
        loss = trial(choice, x, y)
        evolution.tell(loss, choice)
        if number % 5 == 0:
            best = evolution.best[0][0]
            print(f"candidate {number}: loss {loss:.3f}, best {best:.3f}", flush=True)


if __name__ == "__main__":
    main()
