"""A circle of references as a person would say it: ``Trainer.model``, ``Model.callbacks[*]``.

Each step begins at an object with a name of its own, such as an instance, a function or a frame;
dicts, cells and containers between two of them are part of the step. Nothing is called but torch's
and the interpreter's own accessors.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from leakscope.heap import anatomy, labels
from leakscope.heap.adapters.tensor import no_overrides, tensor_access
from leakscope.heap.labels import Edge, Label, Part, Stands
from leakscope.heap.naming import whole_of

_MOST_STEPS = 12
_LEADING = (
    dict,
    defaultdict,
    OrderedDict,
    list,
    deque,
    tuple,
    set,
    frozenset,
    types.CellType,
    types.MethodType,
    types.TracebackType,
    types.MappingProxyType,
)
"""What leads from one object with a name to the next."""
_UNTOLD: tuple[tuple[type, tuple[str, ...]], ...] = (
    (BaseException, ("__traceback__", "__context__", "__cause__", "args")),
    (types.FrameType, ("f_back",)),
    (type, ("__mro__", "__bases__")),
)
"""References that neither attributes nor items tell of, by accessors of the interpreter."""
_UNTOLD_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks", "_base", "grad_fn")


def steps_of(circle: list[Any], qualname: Callable[[types.CodeType], str]) -> list[str]:
    """Return the steps round a circle of objects, each of which refers to the next.

    Args:
        circle: the objects; the last refers to the first.
        qualname: returns the qualified name of a function by its code.

    """
    first = next((i for i, obj in enumerate(circle) if _speaks(obj)), 0)
    circle = circle[first:] + circle[:first]
    steps: list[str] = []
    part, said = Part(circle[0]), _subject(circle[0], qualname)
    rest = [*circle[1:], circle[0]]
    for place, obj in enumerate(rest):
        beyond = rest[place + 1] if place + 1 < len(rest) else obj
        step = _step(part, obj, beyond)
        said += step.text
        part = Part(obj, step.stands, whole_of(part, step))
        is_named = _speaks(obj) and step.stands is not Stands.FRAME  # that of its generator
        if is_named or place + 1 == len(rest):
            steps.append(said)
            part, said = Part(obj), _subject(obj, qualname)
    return steps if len(steps) <= _MOST_STEPS else []


def _speaks(obj: Any) -> bool:
    return not any(type(obj) is kind for kind in _LEADING)


def _subject(obj: Any, qualname: Callable[[types.CodeType], str]) -> str:
    if type(obj) is types.FrameType:
        return f"frame of {_plain(qualname(obj.f_code))}()"
    if labels.is_generator(obj):
        frame = labels.frame_of(obj)
        return f"generator {_plain(qualname(frame.f_code))}()" if frame else "generator"
    if type(obj) is types.FunctionType:
        return f"{_plain(obj.__qualname__)}()"
    cls = obj if anatomy.is_instance(obj, type) else type(obj)
    return anatomy.qualname(cls).rpartition("<locals>.")[2]


def _step(part: Part, obj: Any, beyond: Any) -> Label:
    """Return how a part refers to an object; a variable in a cell is known by what is in it."""
    if type(part.obj) is types.TracebackType:
        return labels.INSIDE
    is_frame = type(part.obj) is types.FrameType or labels.is_generator(part.obj)
    if is_frame and type(obj) is types.CellType:
        found = labels.label(part, beyond)
    else:
        found = labels.label(part, obj)
    if found.edge is Edge.LOCAL:
        return found._replace(text=f"·{found.variable}")
    if found.text or found.stands is not Stands.ITSELF:
        return found
    name = _untold(part.obj, obj) if part.stands is Stands.ITSELF else ""
    return labels.attribute(name) if name else found


def _untold(obj: Any, child: Any) -> str:
    access = tensor_access()
    if access is not None and anatomy.is_instance(obj, access.tensor):
        with no_overrides(access):
            return _name_of(obj, child, access.tensor, _UNTOLD_OF_TENSORS)
    for kind, names in _UNTOLD:
        if anatomy.is_instance(obj, kind):
            return _name_of(obj, child, kind, names)
    return ""


def _name_of(obj: Any, child: Any, kind: type, names: tuple[str, ...]) -> str:
    accessors = anatomy.class_dict(kind)
    for name in names:
        if name in accessors and accessors[name].__get__(obj) is child:
            return name
    return ""


def _plain(qualname: str) -> str:
    return qualname.replace("<locals>.", "")
