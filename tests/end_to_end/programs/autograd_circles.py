"""Circles of which a part is torch's, in C++: ``python FILE CASE leak|fixed FOLDER``.

A fixed twin does as much work and opens each circle, by detaching, a weak reference or remove().
What is healthy by itself has no twin: there the collector sees the whole circle.
"""

import os
import sys
import time
import warnings
import weakref

import torch
from torch import nn
from torch.nn.utils import parametrize

import leakscope

ROUNDS, PACE_S = 60, 0.02


def rounds():
    with leakscope.profile(boundaries="manual", out=sys.argv[3], budget=0.2) as scope:
        for number in scope.steps(range(ROUNDS)):
            began = time.perf_counter()
            yield number
            time.sleep(max(0.0, PACE_S - (time.perf_counter() - began)))


def batch():
    return torch.rand(16, 64)


class Memo:
    """Keeps what came of a layer, and wants to know its gradient."""

    def __init__(self, hidden, leaks):
        self.hidden = hidden if leaks else hidden.detach()
        hidden.grad_fn.register_prehook(self.seen)  # made here

    def seen(self, gradients):
        self.norm = gradients[0].norm()


def cached_output(leaks):
    layer = nn.Linear(64, 2048)
    for _ in rounds():
        hidden = layer(batch()).exp()
        Memo(hidden, leaks)
        hidden.sum().backward()


class Wrapper(nn.Module):
    """Keeps what the wrapped module is given and gives back, by a hook of that module's."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.handle = inner.register_full_backward_hook(
            lambda module, gradients, outer: self.note(outer)  # made here
        )

    def note(self, outer):
        self.last = outer

    def forward(self, x):
        self.out = self.inner(x)
        return self.out


def wrapper(leaks):
    for _ in rounds():
        wrapped = Wrapper(nn.Linear(64, 512))
        wrapped(batch().requires_grad_()).sum().backward()
        if not leaks:
            wrapped.handle.remove()
            del wrapped.out


def old_weight_norm(leaks):
    warnings.simplefilter("ignore")

    def penalised(layer):
        owner = (lambda: layer) if leaks else weakref.ref(layer)
        layer.weight.register_hook(lambda grad: grad + owner().weight_g.mean())  # made here

    for _ in rounds():
        layer = torch.nn.utils.weight_norm(nn.Linear(64, 512))
        out = layer(batch())
        penalised(layer)
        out.sum().backward()


class Symmetric(nn.Module):
    def __init__(self, leaks):
        super().__init__()
        self.leaks = leaks

    def forward(self, weight):
        out = weight.triu() + weight.triu(1).t()
        out.register_hook(lambda grad: grad + 0 * self.last.detach().mean())  # made here
        self.last = out if self.leaks else out.detach()
        return out


def parametrized(leaks):
    for _ in rounds():
        layer = nn.Linear(256, 256)
        parametrize.register_parametrization(layer, "weight", Symmetric(leaks))
        layer(torch.rand(16, 256)).sum().backward()


def after_accumulation(leaks):
    def watched(layer):
        owner = (lambda: layer) if leaks else weakref.ref(layer)

        def clipped(weight):
            owner().norm = weight.grad.norm()

        layer.weight.register_post_accumulate_grad_hook(clipped)  # made here

    for _ in rounds():
        layer = nn.Linear(64, 512)
        watched(layer)
        layer(batch()).sum().backward()


class Halved:
    """Keeps what a layer saves for backward in half precision; what it unpacks is like the result.

    A backward pass would let the saved tensors go, and the hook with them: here there is none.
    """

    def __init__(self, leaks):
        self.leaks = leaks

    def pack(self, tensor):
        return tensor.half()

    def unpack(self, packed):
        return packed.to(self.result.dtype)

    def run(self, layer, x):
        with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):  # made here
            out = layer(x).sigmoid()
        self.result = out if self.leaks else out.detach()
        return out


def saved_tensors(leaks):
    layer = nn.Linear(64, 2048)
    for _ in rounds():
        Halved(leaks).run(layer, batch())


class State:
    def __init__(self, model):
        self.model = model


def reduced(state, bucket):
    ended = torch.futures.Future()
    ended.set_result(bucket.buffer())
    return ended


def communication_hook(leaks):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "0")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    for _ in rounds():
        model = nn.parallel.DistributedDataParallel(nn.Linear(64, 512))
        state = State(model if leaks else weakref.ref(model))
        model.register_comm_hook(state, reduced)  # made here
        model(batch()).sum().backward()
    torch.distributed.destroy_process_group()


def module_hook(_):
    """A hook of a module that refers to it: Python's alone, and the collector's."""
    for _ in rounds():
        layer = nn.Linear(64, 2048)
        layer.register_forward_hook(lambda *_, owner=layer: None)
        layer(batch()).sum().backward()


def leaf_hook(_):
    """A hook of a leaf that refers to its module: the collector's, too."""
    for _ in rounds():
        layer = nn.Linear(64, 512)
        layer.weight.register_hook(lambda grad, owner=layer: None)
        layer(batch()).sum().backward()
        sorted([number] for number in range(2000))  # so many objects call the collector


torch.set_num_threads(1)
globals()[sys.argv[1]](sys.argv[2] == "leak")
