"""Objects that answer everything with an exception or a trace of it, in globals and locals."""

import collections
import sys

from driving import train

told = []


class Hostile:
    def __init__(self):
        object.__setattr__(self, "big", bytearray(100_000))

    def _tell(self, *_, **__):
        told.append(sys._getframe().f_code.co_name)
        raise RuntimeError("hostile")

    __getattribute__ = __getattr__ = __setattr__ = __eq__ = __hash__ = __len__ = __bool__ = _tell
    __repr__ = __str__ = __iter__ = __sizeof__ = __dir__ = __call__ = __index__ = __contains__ = (
        _tell
    )
    __instancecheck__ = __subclasscheck__ = __reduce_ex__ = __format__ = __lt__ = __enter__ = _tell
    __class__ = property(_tell)
    __dict__ = property(_tell)
    __del__ = _tell


class Meta(type):
    def __getattribute__(cls, name):
        told.append(f"meta {name}")
        return super().__getattribute__(name)

    __eq__ = __len__ = __bool__ = __instancecheck__ = __repr__ = lambda *_: told.append("meta") or 0
    __hash__ = type.__hash__


class Odd(metaclass=Meta):
    pass


class List(list):
    __len__ = __iter__ = __getitem__ = __bool__ = __repr__ = lambda *_: told.append("list") or 0


class Dict(dict):
    __len__ = __iter__ = __getitem__ = keys = items = __repr__ = lambda *_: told.append("dict") or 0


class Deque(collections.deque):
    __len__ = __iter__ = __repr__ = lambda *_: told.append("deque") or 0


hostile = Hostile()
held = [Hostile() for _ in range(20)]
odd, odds = Odd, [Odd() for _ in range(20)]
many = List([bytes(50_000) for _ in range(5)])
names = Dict(a=bytearray(100_000))
last = Deque([bytes(50_000)])
told.clear()


def use(model, x):
    local, more = Hostile(), [Hostile() for _ in range(3)]
    model(x)
    model(x)
    print(len(told), sorted(set(told)))
    object.__setattr__(local, "other", more)
    kept.append(local)


kept: list[object] = []
train(in_epoch=use, in_step=lambda model, x: None)
print(len(told), sorted(set(told)))
import os

sys.stdout.flush()
os._exit(len(kept))
