"""Models are evaluated in finalizers, in callbacks of the collector and of weak references."""

import gc
import weakref

import torch
from driving import train

told = []


class Last:
    def __init__(self, model, x):
        self.model, self.x, self.me = model, x, self

    def __del__(self):
        told.append(round(float(self.model(self.x).sum()), 4))


def in_collection(phase, facts):
    if facts["generation"] == 2 and models:
        told.append((phase, round(float(models[-1](torch.ones(8, 16)).sum()), 4)))


models: list[torch.nn.Module] = []
gc.disable()


def drop(model, x):
    models.append(model)
    Last(model, x)
    last = Last(model, x)
    last.me = None
    weakref.finalize(last, lambda: told.append(round(float(model(x).mean()), 4)))
    del last
    gc.callbacks.append(in_collection)
    gc.collect()
    gc.callbacks.remove(in_collection)


train(in_epoch=drop)
print(told)
