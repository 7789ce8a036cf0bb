"""By its argument: ``objects`` keeps ever more small ones, so that full collections take ever
longer, ``collects`` calls the collector where much garbage lies, ``nothing`` does neither.
"""

import gc
import sys

import torch

kept = sys.argv[1]
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
index = {}


class Node:
    def __init__(self):
        self.itself = self
        self.payload = bytearray(4_000_000)


for _ in range(150):
    model(torch.randn(64, 64)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if kept == "objects":
        index.update((n, [n]) for n in range(len(index), len(index) + 16_000))
    if kept == "collects":
        Node()
        gc.collect()
