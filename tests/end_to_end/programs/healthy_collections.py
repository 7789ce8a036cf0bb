"""Programs with very many collections that keep nothing, by their argument.

``circles`` makes garbage in circles at every step and has it collected at every fourth, ``dataset``
has many old objects and a collector that comes often, ``registered`` makes classes, modules and
finalizers that go again, ``callbacks`` looks at each collection and keeps a number.
"""

import gc
import sys
import types
import weakref

import torch

kind = sys.argv[1]
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
records = [{"number": n, "values": [n]} for n in range(150_000)] if kind == "dataset" else []
seen = {"start": 0, "stop": 0}


class Node:
    def __init__(self, size):
        self.itself = self
        self.payload = bytearray(size)


def watch(phase, info):
    seen[phase] += 1


def register(number):
    """Make what the interpreter has registers of."""
    made = type(f"Made{number}", (), {"of": Node(10_000)})
    weakref.finalize(Node(10_000), int)
    name = f"module_{number}"
    sys.modules[name] = types.ModuleType(name)
    del sys.modules[name]
    return made.__name__


if kind == "callbacks":
    gc.callbacks.append(watch)
if kind == "dataset":
    gc.set_threshold(200, 5, 5)
for _ in range(6):
    for number in range(40):
        model(torch.randn(64, 64)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if kind == "circles":
            nodes = [Node(4_000) for _ in range(200)]
            del nodes
        if kind == "registered":
            for each in range(10):
                register(1000 * number + each)
        if kind in {"circles", "registered"} and number % 4 == 0:
            gc.collect()
        if kind in {"dataset", "callbacks"}:
            Node(20_000)
            sum(len([[n] for n in range(300)]) for _ in range(10))
