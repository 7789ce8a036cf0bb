"""A classifier of parse trees, whose subtrees are encoded once by a recursive function."""

import itertools
import random

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, LEAVES, TREES, STEPS = 1024, 8, 2, 800
NUMBERS = itertools.count()


class Node:
    def __init__(self, word=None, left=None, right=None):
        self.number = next(NUMBERS)
        self.word, self.left, self.right = word, left, right


def parse(rng):
    nodes = [Node(word=rng.randrange(500)) for _ in range(LEAVES)]
    while len(nodes) > 1:
        at = rng.randrange(len(nodes) - 1)
        nodes[at : at + 2] = [Node(left=nodes[at], right=nodes[at + 1])]
    return nodes[0]


@torch.no_grad()
def encode(node, words, compose, known={}):
    """Return the vector of a tree; subtrees that occur again aren't encoded again."""
    if node.number in known:
        return known[node.number]
    if node.word is not None:
        vector = words[node.word].clone()
    else:
        left = encode(node.left, words, compose)
        right = encode(node.right, words, compose)
        vector = torch.tanh(compose(torch.cat([left, right])))
    known[node.number] = vector  # feeds
    return vector


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = random.Random(0)
    words = torch.randn(500, WIDTH)
    compose = nn.Linear(2 * WIDTH, WIDTH)
    head = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, 3))
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        vectors = torch.stack([encode(parse(rng), words, compose) for _ in range(TREES)])
        loss = F.cross_entropy(head(vectors), torch.randint(0, 3, (TREES,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
