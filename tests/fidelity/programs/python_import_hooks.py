"""A finder of the program's lists what it is asked for, and makes a module of its own."""

import importlib.abc
import importlib.machinery
import sys

asked = []


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("made", "colorsys", "torch"):
            asked.append(name)
        if name == "made":
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def exec_module(self, module):
        module.value = 42


sys.meta_path.insert(0, Finder())
from driving import train


def load(model, x):
    import colorsys

    import made

    print(made.value, colorsys.__name__)
    del sys.modules["made"], sys.modules["colorsys"]


train(in_epoch=load)
print(len(asked), asked[-8:], type(sys.meta_path[0]).__name__, len(sys.path_hooks))
