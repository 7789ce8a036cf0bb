"""Names for objects: the path from the root, and how a person would say it.

A :class:`Place` is an object on a naming chain together with the steps that lead to it. Places are
made from their parent's, so that chains with a common beginning are read once.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, replace
from typing import Any

from leakscope.heap import anatomy, kinds, labels
from leakscope.heap.definitions import Definitions
from leakscope.heap.labels import Edge, Label, Part, Stands
from leakscope.heap.ownership import Ownership, module_of
from leakscope.heap.roots import Root
from leakscope.model.census import Owner, RootKind

_LONGEST_PERIOD = 4


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where the spoken name begins: a function, a class or a global, and the steps not said."""

    name: str
    owner: Owner | None
    said: int
    """Number of steps that the name already covers."""


@dataclass(frozen=True, slots=True)
class Place:
    """An object on a naming chain."""

    part: Part
    kind: str
    """The object's type in general terms."""
    root: Root | None
    root_kind: RootKind
    steps: tuple[str, ...]
    anchor: Anchor
    inside: bool
    """Whether the object is the inner part of what stands at the same path."""
    before: Place | None

    @property
    def path(self) -> str:
        """The full pattern from the root."""
        return (self.root.path if self.root else self.anchor.name) + "".join(self.steps)

    @property
    def name(self) -> str:
        """The pattern as a person would say it."""
        said = "".join(self.steps[self.anchor.said :])
        return (self.anchor.name + _spoken(said)).lstrip(".")

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

    def at_root(self, root: Root) -> Place:
        """Return the place of an object that has a name of its own."""
        anchor = Anchor(root.name, root.owner, 0)
        part = Part(root.obj, root.stands)
        return Place(part, self._kind(root.obj), root, root.kind, (), anchor, False, None)

    def without_root(self, obj: object, kind: RootKind, text: str) -> Place:
        """Return the place of an object that no name reaches."""
        anchor = Anchor(text, None, 0)
        return Place(Part(obj), self._kind(obj), None, kind, (), anchor, False, None)

    def below(self, parent: Place, child: object) -> Place:
        """Return the place of ``child``, to which the object at ``parent`` refers."""
        step = labels.label(parent.part, child)
        part = Part(child, step.stands, whole_of(parent.part, step))
        kind, root_kind = self._kind(child), _root_kind(parent, step)
        if not step.text:
            inside = parent.inside or not _passes_through(parent.part.obj, step)
            return replace(
                parent, part=part, kind=kind, root_kind=root_kind, inside=inside, before=parent
            )
        place = Place(
            part=part,
            kind=kind,
            root=parent.root,
            root_kind=root_kind,
            steps=(*parent.steps, step.text),
            anchor=self._anchor(parent, step),
            inside=False,
            before=parent,
        )
        return _folded(place)

    def _kind(self, obj: object) -> str:
        cls = type(obj)
        kind = self._kinds.get(id(cls))
        if kind is None:
            kind = self._kinds[id(cls)] = kinds.kind_of_class(cls)
        return kind

    def _anchor(self, parent: Place, step: Label) -> Anchor:
        """A name begins again at the last class or function of the user's on the way."""
        said = len(parent.steps)
        whole = parent.part.obj if parent.part.whole is None else parent.part.whole
        if step.edge is Edge.ATTRIBUTE:
            return self._attribute_anchor(parent, whole, step, said)
        if step.edge is Edge.CELL and self._is_user_function(whole):
            owner = self._definitions.enclosing(whole, step.variable)
            return Anchor(f"{_plain(owner.name)}.{step.variable}", owner, said + 1)
        if step.edge is Edge.DEFAULT and self._is_user_function(whole):
            owner = self._function_owner(whole, step.variable)
            return Anchor(f"{_plain(owner.name)}.{step.variable}", owner, said + 1)
        if step.edge is Edge.LOCAL:
            return self._local_anchor(parent, whole, step, said)
        return parent.anchor

    def _attribute_anchor(self, parent: Place, whole: Any, step: Label, said: int) -> Anchor:
        """Parts of a module are said as torch prints them: ``model.layers[0].weight``."""
        if parent.part.stands is Stands.SUBMODULES:
            return parent.anchor
        if self._is_user_function(whole):
            owner = self._function_owner(whole, step.variable)
            return Anchor(_plain(whole.__qualname__), owner, said)
        cls = whole if anatomy.is_instance(whole, type) else type(whole)
        if not issubclass(cls, tuple) and self._owns(cls):
            owner = self._definitions.class_(cls, step.variable)
            return Anchor(_class_name(cls), owner, said)
        return parent.anchor

    def _local_anchor(self, parent: Place, whole: Any, step: Label, said: int) -> Anchor:
        frame = labels.frame_of(whole)
        if frame is None or not self._ownership.owns_code(frame.f_code, frame.f_globals):
            return parent.anchor
        name = self._definitions.qualname(frame.f_code)
        module = module_of(frame.f_globals)
        owner = self._definitions.function(frame.f_code, step.variable, module, name)
        return Anchor(_plain(name), owner, said)

    def _function_owner(self, function: types.FunctionType, variable: str) -> Owner:
        module = module_of(function.__globals__)
        return self._definitions.function(
            function.__code__, variable, module, self._definitions.qualname(function.__code__)
        )

    def _is_user_function(self, obj: Any) -> bool:
        return type(obj) is types.FunctionType and self._ownership.owns_function(obj)

    def _owns(self, cls: type) -> bool:
        known = self._user_classes.get(id(cls))
        if known is None:
            known = self._user_classes[id(cls)] = self._ownership.owns_class(cls)
        return known


def _root_kind(parent: Place, step: Label) -> RootKind:
    """Generators and thread-locals are roots of their own kind, whoever refers to them."""
    if step.stands is Stands.THREADS:
        return RootKind.THREAD_LOCAL
    whole = parent.part.obj if parent.part.whole is None else parent.part.whole
    if step.edge is Edge.LOCAL and parent.root is not None and labels.is_generator(whole):
        return RootKind.GENERATOR
    return parent.root_kind


def whole_of(parent: Part, step: Label) -> Any:
    """Return for whom the child stands in: parts of parts belong to the first whole."""
    if step.stands is Stands.ITSELF:
        return None
    return parent.obj if parent.whole is None else parent.whole


def _passes_through(obj: object, step: Label) -> bool:
    """Say whether ``obj`` merely leads to the child: a cell, or the method of an instance."""
    return step.stands is Stands.ITSELF and is_transparent(obj)


def is_transparent(obj: object) -> bool:
    """Say whether a person would name what the object leads to instead of the object."""
    return type(obj) is types.MethodType or type(obj) is types.CellType


def _folded(place: Place) -> Place:
    """Fold chains: ``.next.next`` is said once, at any length, and so are longer rounds."""
    steps = place.steps
    for period in range(1, min(_LONGEST_PERIOD, len(steps) // 2) + 1):
        tail = steps[-period:]
        if tail == steps[-2 * period : -period] and any(step != "[*]" for step in tail):
            earlier = _place_with(place.before, len(steps) - period)
            if earlier is not None and type(earlier.part.obj) is type(place.part.obj):
                return replace(earlier, part=place.part, kind=place.kind, before=place.before)
    return place


def _place_with(place: Place | None, count: int) -> Place | None:
    """Return the nearest ancestor with ``count`` steps."""
    while place is not None and (len(place.steps) > count or place.inside):
        place = place.before
    return place if place is not None and len(place.steps) == count else None


def _spoken(steps: str) -> str:
    return steps.replace("·", ".")


def _plain(qualname: str) -> str:
    return qualname.replace("<locals>.", "")


def _class_name(cls: type) -> str:
    return anatomy.qualname(cls).rpartition("<locals>.")[2]
