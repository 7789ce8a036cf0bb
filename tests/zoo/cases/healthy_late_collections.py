"""Trains a tree-structured network on parsed formulas; cycles go when an epoch ends."""

import gc
import random

import torch
from torch import nn

EPOCHS, STEPS, BATCH, WIDTH = 8, 24, 6, 64
LEAVES = "abcdefgh"


class Node:
    """A part of a formula; knows what it is part of."""

    def __init__(self, symbol, parent=None):
        self.symbol, self.parent = symbol, parent
        self.parts = []
        self.state = None
        self.depth = 0 if parent is None else parent.depth + 1

    def add(self, symbol):
        part = Node(symbol, self)
        self.parts.append(part)
        return part

    def nodes(self):
        yield self
        for part in self.parts:
            yield from part.nodes()


def grow(node, dice, most=6):
    if node.depth < most and dice.random() < 0.85:
        node.symbol = dice.choice("&|^")
        for _ in range(2):
            grow(node.add("?"), dice, most)
    else:
        node.symbol = dice.choice(LEAVES)
    return node


def value(node, given):
    if not node.parts:
        return given[node.symbol]
    a, b = (value(part, given) for part in node.parts)
    return {"&": a & b, "|": a | b, "^": a ^ b}[node.symbol]


class TreeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.leaf = nn.Embedding(2, WIDTH)
        self.join = nn.ModuleDict({"&": self.joint(), "|": self.joint(), "^": self.joint()})
        self.out = nn.Linear(WIDTH, 1)

    @staticmethod
    def joint():
        return nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.Tanh())

    def encode(self, node, given):
        """Set the state of each part, the deepest first."""
        for part in node.parts:
            self.encode(part, given)
        if node.parts:
            pair = torch.cat([part.state for part in node.parts])
            node.state = self.join[node.symbol](pair)
        else:
            node.state = self.leaf.weight[given[node.symbol]]
        return node.state

    def forward(self, tree, given):
        return self.out(self.encode(tree, given)).squeeze(0)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gc.set_threshold(200000, 50, 50)  # collections in the midst of a step cost more than memory
    dice, model = random.Random(0), TreeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        total, deepest = 0.0, 0
        for _ in range(STEPS):
            losses = []
            for _ in range(BATCH):
                tree = grow(Node("?"), dice)
                given = {leaf: dice.randrange(2) for leaf in LEAVES}
                wanted = torch.tensor(float(value(tree, given)))
                losses.append(
                    nn.functional.binary_cross_entropy_with_logits(model(tree, given), wanted)
                )
                deepest = max(deepest, *(node.depth for node in tree.nodes()))
            loss = torch.stack(losses).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        gc.collect()
        print(f"epoch {epoch}: {total / STEPS:.4f}, {deepest} deep", flush=True)


if __name__ == "__main__":
    main()
