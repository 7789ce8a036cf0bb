"""Weak references' callbacks, finalizers and the collector's own callbacks, all in their order."""

import gc
import weakref

from driving import train

told = []


class Node:
    def __init__(self, name):
        self.name, self.me = name, self

    def __del__(self):
        told.append(f"del {self.name}")


def collected(phase, facts):
    if facts["generation"] == 2:
        told.append(f"{phase} {facts['generation']}")


gc.callbacks.append(collected)
gc.disable()
thresholds, debug = gc.get_threshold(), gc.get_debug()


def drop(model, x):
    node = Node(len(told))
    weakref.finalize(node, told.append, "finalized")
    references.append(weakref.ref(node, lambda _: told.append("gone")))
    del node
    model(x)
    told.append(f"found {gc.collect() > 0}")
    told.append(f"alive {sum(r() is not None for r in references)}")


references: list[object] = []
train(in_epoch=drop, in_step=drop)
gc.freeze()
print(
    gc.get_freeze_count() > 0,
    gc.isenabled(),
    gc.get_threshold() == thresholds,
    gc.get_debug() == debug,
)
train(in_epoch=drop)
gc.unfreeze()
print(len(gc.callbacks), len(gc.garbage), len(told), told)
