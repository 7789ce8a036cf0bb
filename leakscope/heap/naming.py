"""Names for objects: the path from the root, and circles of references, as a person would say
them.

A :class:`Place` is an object on a naming chain together with the steps that lead to it. Places are
made from their parent's, so that chains with a common beginning are read once.

Each step begins at an object with a name of its own, such as an instance, a function or a frame;
dicts, cells and containers between two of them are part of the step. Nothing is called but torch's
and the interpreter's own accessors.
"""

from __future__ import annotations

import re
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from leakscope.heap import anatomy, contents, labels
from leakscope.heap.anatomy import without_locals
from leakscope.heap.labels import ChainPart, Edge, Facet, Label
from leakscope.heap.ownership import Definitions, Ownership, module_of
from leakscope.heap.roots import Root
from leakscope.model.census import Owner, RootKind

_LONGEST_PERIOD = 4


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where the name in reports begins: a function, a class or a global; and the steps left out."""

    name: str
    owner: Owner | None
    used: int
    """Number of steps that the name already covers."""


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An object on a naming chain."""

    part: ChainPart
    kind: str
    """The object's type in general terms."""
    root: Root | None
    root_kind: RootKind
    steps: tuple[str, ...]
    anchor: Anchor
    inside: bool
    """Whether the object is the inner part of what stands at the same path."""
    before: NamedObject | None

    @property
    def path(self) -> str:
        """The full pattern from the root."""
        return (self.root.path if self.root else self.anchor.name) + "".join(self.steps)

    @property
    def name(self) -> str:
        """The pattern as a person would say it."""
        rest = "".join(self.steps[self.anchor.used :]).replace("·", ".")
        return (self.anchor.name + _FUNCTION_OF_PROPERTY.sub("", rest)).lstrip(".")

    @property
    def owner(self) -> Owner | None:
        """The code to which the first name belongs."""
        return self.anchor.owner


class Naming:
    """Makes the places of one census."""

    def __init__(self, ownership: Ownership, definitions: Definitions) -> None:
        self._ownership = ownership
        self._definitions = definitions
        self._user_classes: dict[int, bool] = {}
        self._kinds: dict[int, str] = {}

    def at_root(self, root: Root) -> NamedObject:
        """Return the place of an object that has a name of its own."""
        anchor = Anchor(root.name, root.owner, 0)
        part = ChainPart(root.obj, root.facet)
        return NamedObject(part, self._kind(root.obj), root, root.kind, (), anchor, False, None)

    def without_root(self, obj: object, kind: RootKind, text: str) -> NamedObject:
        """Return the place of an object that no name reaches."""
        anchor = Anchor(text, None, 0)
        return NamedObject(ChainPart(obj), self._kind(obj), None, kind, (), anchor, False, None)

    def below(self, parent: NamedObject, child: object) -> NamedObject:
        """Return the place of ``child``, to which the object at ``parent`` refers."""
        step = labels.label(parent.part, child)
        part = ChainPart(child, step.facet, whole_of(parent.part, step))
        kind, root_kind = self._kind(child), _root_kind(parent, step)
        if not step.text:
            # A cell, or the method of an instance, merely leads to the child.
            merely_leads = step.facet is Facet.ITSELF and is_transparent(parent.part.obj)
            inside = parent.inside or not merely_leads
            return replace(
                parent, part=part, kind=kind, root_kind=root_kind, inside=inside, before=parent
            )
        steps, anchor = (*parent.steps, step.text), self._anchor(parent, step)
        return _folded(
            NamedObject(part, kind, parent.root, root_kind, steps, anchor, False, parent)
        )

    def _kind(self, obj: object) -> str:
        cls = type(obj)
        kind = self._kinds.get(id(cls))
        if kind is None:
            kind = self._kinds[id(cls)] = contents.kind_of_class(cls)
        return kind

    def _anchor(self, parent: NamedObject, step: Label) -> Anchor:
        """A name begins again at the last class or function of the user's on the way."""
        used = len(parent.steps)
        whole = parent.part.obj if parent.part.whole is None else parent.part.whole
        if step.edge is Edge.ATTRIBUTE:
            return self._attribute_anchor(parent, whole, step, used)
        if step.edge in (Edge.CELL, Edge.DEFAULT) and self._is_user_function(whole):
            is_cell = step.edge is Edge.CELL
            owner_of = self._definitions.enclosing if is_cell else self._function_owner
            owner = owner_of(whole, step.variable)
            return Anchor(f"{without_locals(owner.name)}.{step.variable}", owner, used + 1)
        if step.edge is Edge.LOCAL:
            return self._local_anchor(parent, whole, step, used)
        return parent.anchor

    def _attribute_anchor(self, parent: NamedObject, whole: Any, step: Label, used: int) -> Anchor:
        """Parts of a module are written as torch prints them: ``model.layers[0].weight``."""
        if parent.part.facet is Facet.SUBMODULES:
            return parent.anchor
        if self._is_user_function(whole):
            owner = self._function_owner(whole, step.variable)
            return Anchor(without_locals(whole.__qualname__), owner, used)
        is_class = anatomy.is_instance(whole, type)
        if is_class and parent.steps:  # made as the program runs: it goes by who keeps it
            return parent.anchor
        cls = whole if is_class else type(whole)
        if not issubclass(cls, tuple) and self._owns(cls):
            owner = self._definitions.class_(cls, step.variable)
            return Anchor(_class_name(cls), owner, used)
        return parent.anchor

    def _local_anchor(self, parent: NamedObject, whole: Any, step: Label, used: int) -> Anchor:
        frame = labels.frame_of(whole)
        if frame is None or not self._ownership.owns_code(frame.f_code, frame.f_globals):
            return parent.anchor
        owner = self._code_owner(frame.f_code, frame.f_globals, step.variable)
        return Anchor(without_locals(owner.name), owner, used)

    def _function_owner(self, function: types.FunctionType, variable: str) -> Owner:
        return self._code_owner(function.__code__, function.__globals__, variable)

    def _code_owner(self, code: types.CodeType, names: dict[str, Any], variable: str) -> Owner:
        name = self._definitions.qualname(code)
        return self._definitions.function(code, variable, module_of(names), name)

    def _is_user_function(self, obj: Any) -> bool:
        return type(obj) is types.FunctionType and self._ownership.owns_function(obj)

    def _owns(self, cls: type) -> bool:
        known = self._user_classes.get(id(cls))
        if known is None:
            known = self._user_classes[id(cls)] = self._ownership.owns_class(cls)
        return known


def _root_kind(parent: NamedObject, step: Label) -> RootKind:
    """Generators and thread-locals are roots of their own kind, whoever refers to them."""
    if step.facet is Facet.THREADS:
        return RootKind.THREAD_LOCAL
    whole = parent.part.obj if parent.part.whole is None else parent.part.whole
    if step.edge is Edge.LOCAL and parent.root is not None and labels.is_generator(whole):
        return RootKind.GENERATOR
    return parent.root_kind


def whole_of(parent: ChainPart, step: Label) -> Any:
    """Return for whom the child stands in: parts of parts belong to the first whole."""
    if step.facet is Facet.ITSELF:
        return None
    return parent.obj if parent.whole is None else parent.whole


def is_transparent(obj: object) -> bool:
    """Say whether a person would name what the object leads to instead of the object."""
    return type(obj) is types.MethodType or type(obj) is types.CellType


def _folded(place: NamedObject) -> NamedObject:
    """Fold chains: ``.next.next`` is written once, at any length, and so are longer cycles."""
    steps = place.steps
    for period in range(1, min(_LONGEST_PERIOD, len(steps) // 2) + 1):
        tail = steps[-period:]
        if tail == steps[-2 * period : -period] and any(step != "[*]" for step in tail):
            earlier = _place_with(place.before, len(steps) - period)
            if earlier is not None and type(earlier.part.obj) is type(place.part.obj):
                return replace(earlier, part=place.part, kind=place.kind, before=place.before)
    return place


def _place_with(place: NamedObject | None, count: int) -> NamedObject | None:
    while place is not None and (len(place.steps) > count or place.inside):
        place = place.before
    return place if place is not None and len(place.steps) == count else None


_FUNCTION_OF_PROPERTY = re.compile(r"\.fget(?=$|[.\[⟨])")
"""Of a property its function is the property."""


def _class_name(cls: type) -> str:
    return anatomy.qualname(cls).rpartition("<locals>.")[2]


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
_HIDDEN_REFERENCES: tuple[tuple[type, tuple[str, ...]], ...] = (
    (BaseException, ("__traceback__", "__context__", "__cause__", "args")),
    (types.FrameType, ("f_back",)),
    (type, ("__mro__", "__bases__")),
)
"""References that neither attributes nor items show, by accessors of the interpreter."""
_HIDDEN_IN_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks", "_base", "grad_fn")


def steps_of(circle: list[Any], qualname: Callable[[types.CodeType], str]) -> list[str]:
    """Return the steps round a circle of objects, each of which refers to the next."""
    first = next((i for i, obj in enumerate(circle) if _speaks(obj)), 0)
    circle = circle[first:] + circle[:first]
    steps: list[str] = []
    part, subject = ChainPart(circle[0]), _subject(circle[0], qualname)
    rest = [*circle[1:], circle[0]]
    for place, obj in enumerate(rest):
        beyond = rest[place + 1] if place + 1 < len(rest) else obj
        step = _step(part, obj, beyond)
        subject += step.text
        part = ChainPart(obj, step.facet, whole_of(part, step))
        is_named = _speaks(obj) and step.facet is not Facet.FRAME  # that of its generator
        if is_named or place + 1 == len(rest):
            steps.append(subject)
            part, subject = ChainPart(obj), _subject(obj, qualname)
    return steps if len(steps) <= _MOST_STEPS else []


def _speaks(obj: Any) -> bool:
    return not any(type(obj) is kind for kind in _LEADING)


def _subject(obj: Any, qualname: Callable[[types.CodeType], str]) -> str:
    if type(obj) is types.FrameType:
        return f"frame of {without_locals(qualname(obj.f_code))}()"
    if labels.is_generator(obj):
        frame = labels.frame_of(obj)
        return f"generator {without_locals(qualname(frame.f_code))}()" if frame else "generator"
    if type(obj) is types.FunctionType:
        return f"{without_locals(obj.__qualname__)}()"
    return _class_name(obj if anatomy.is_instance(obj, type) else type(obj))


def _step(part: ChainPart, obj: Any, beyond: Any) -> Label:
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
    if found.text or found.facet is not Facet.ITSELF:
        return found
    name = _hidden_reference_name(part.obj, obj) if part.facet is Facet.ITSELF else ""
    return labels.attribute(name) if name else found


def _hidden_reference_name(obj: Any, child: Any) -> str:
    for kind, names in _HIDDEN_REFERENCES:
        if anatomy.is_instance(obj, kind):
            return labels.accessor_of(obj, child, kind, names)
    return labels.accessor_of_tensor(obj, child, _HIDDEN_IN_TENSORS)
