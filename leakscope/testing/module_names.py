"""Names that calls add to the user's modules: ``globals()[f"result_{n}"] = result``.

Each is a variable of its own, so that no container gains anything: the namespace gets a row.
"""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from leakscope.heap import anatomy
from leakscope.heap.graph import Nodes
from leakscope.heap.ownership import Ownership
from leakscope.heap.rows import retained_on_host
from leakscope.heap.shallow import header_bytes, sizer_of
from leakscope.model.census import CensusRow, Content, RootKind

ADVICE = "Assign to the same name each time, or delete the names after use"
_NAMESPACE = "globals()"
_HOST = "host"


def is_namespace(row: CensusRow) -> bool:
    """Return whether a row is that of a module's names."""
    return row.path.endswith(f"·{_NAMESPACE}")


class ModuleNames:
    """Follows which names the user's modules have; it keeps the names and nothing else."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._first: dict[str, frozenset[str]] = {}
        """The names that each module had when it was first looked at."""

    def counts(self) -> dict[str, int]:
        """Return how many variables each of the user's modules has."""
        return {
            module: sum(1 for _ in _variables(names))
            for module, names in self._ownership.user_modules()
        }

    def rows(self, nodes: Nodes) -> Iterator[tuple[CensusRow, object]]:
        """Yield a row and the namespace of each module: how many variables, and what new ones
        keep, their names included.

        Where there are no more of them than at first, they were replaced, and keep nothing new.
        """
        weights = {
            id(obj): (retained_on_host(nodes, at), nodes.device_bytes[at])
            for at, obj in enumerate(nodes.objects)
            if nodes.parent[at] < 0 and nodes.selected[at]
        }
        for module, names in self._ownership.user_modules():
            variables = dict(_variables(names))
            first = self._first.setdefault(module, frozenset(variables))
            old = {id(value) for name, value in variables.items() if name in first}
            new = [name for name in variables if name not in first]
            if len(variables) <= len(first):
                new.clear()
            kept = {id(obj): obj for name in new for obj in (name, variables[name])}
            added = [obj for key, obj in kept.items() if key not in old]
            yield _row(module, len(variables), added, weights), names

    def forget(self) -> None:
        """Let go of the names."""
        self._first.clear()


def _variables(names: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield what a module's own code calls so: not its submodules, not what the interpreter adds.

    An import adds a submodule to its package, which ``sys.modules`` tells better.
    """
    for name, value in list(names.items()):
        if type(name) is not str or (name.startswith("__") and name.endswith("__")):
            continue
        if not anatomy.is_instance(value, types.ModuleType):
            yield name, value


def _row(
    module: str,
    variables: int,
    added: Iterable[object],
    weights: Mapping[int, tuple[int, dict[str, int]]],
) -> CensusRow:
    on_devices: dict[str, int] = defaultdict(int)
    by_type: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for obj in added:
        # What comes to less than a census tells of is known by itself alone.
        host, others = weights.get(id(obj)) or (_shallow(obj), {})
        held = by_type[anatomy.qualified_name(type(obj))]
        held[0] += 1
        for device, size in ((_HOST, host), *others.items()):
            on_devices[device] += size
            held[1] += size
    holds = [Content(type=name, count=n, bytes=size) for name, (n, size) in by_type.items()]
    spoken = _NAMESPACE if module == "__main__" else f"{module}.{_NAMESPACE}"
    return CensusRow(
        path=f"{module}·{_NAMESPACE}",
        name=spoken,
        root=RootKind.GLOBAL,
        type="dict",
        kind="dict",
        host_bytes=on_devices.pop(_HOST, 0),
        device_bytes=dict(on_devices),
        length=variables,
        holds=sorted(holds, key=lambda content: -content.bytes),
    )


def _shallow(obj: object) -> int:
    cls = type(obj)
    return int(sizer_of(cls)(obj)) + header_bytes(cls)
