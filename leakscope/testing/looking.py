"""Two ways of looking at the heap between rounds: a count that is cheap, and a census with names.

Both look at everything, libraries and what native code holds included: hooks, handlers and
registries of libraries are where tests leave things behind.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import gt
from typing import Any

from leakscope.heap import anatomy
from leakscope.heap.collector import without_collector
from leakscope.heap.definitions import Definitions
from leakscope.heap.graph import walk
from leakscope.heap.looking import request_from
from leakscope.heap.memory import reached_bytes
from leakscope.heap.ownership import ownership_under
from leakscope.heap.roles import Roles
from leakscope.heap.roots import Root, Roots, find_roots
from leakscope.heap.rows import Draft, RowMaker
from leakscope.model.census import Census, CensusRow, CensusScope, Owner, RootKind, Site
from leakscope.testing import made_classes
from leakscope.testing.allocating import sites_of
from leakscope.testing.exit_handlers import ExitHandlers
from leakscope.testing.module_names import ModuleNames
from leakscope.testing.reach import Reach
from leakscope.testing.runner import gathering, is_made_by_runner, is_of_runner, structure

_LEAST_CUTOFF, _MOST_CUTOFF = 128, 1024
_PART_OF_GROWTH = 8
"""What gathers less than this part of the growth of a round need not be named."""
_MOST_OBJECTS = 10_000


@dataclass(frozen=True)
class Given:
    """What a scenario works on, such as the fixtures of a test, and whose it is."""

    values: Mapping[str, object]
    owner: Owner | None = None
    reach: Reach = field(default_factory=Reach)


@dataclass(frozen=True)
class Count:
    """How much of everything there is, by kind: objects, bytes, and items of lists."""

    amounts: Mapping[str, int]
    bytes: int = 0
    """Of all kinds and on all devices."""

    def grown_since(self, before: Count) -> dict[str, int]:
        """Return by kind how much more there is than before."""
        more = ((k, now - before.amounts.get(k, 0)) for k, now in self.amounts.items())
        return {kind: gained for kind, gained in more if gained > 0}


class Looker:
    """Looks at the heap of this process, past itself and past what the test runner gathers."""

    def __init__(self, project_root: str, given: Given) -> None:
        self.project_root = project_root
        self._ownership = ownership_under(project_root)
        self._definitions = Definitions(self._ownership)
        self._given = given
        self._module_names = ModuleNames(self._ownership)
        self._exit_handlers = ExitHandlers(self._ownership)
        self._sizes: dict[str, tuple[int, int]] = {}
        self._growing: list[tuple[str, object]] = []
        """What was seen to grow. It keeps the user's objects only until it is asked for."""
        self._sites: dict[str, list[Site]] = {}
        self.class_paths: set[str] = set()
        """Under which classes stand that no module has a name for."""
        self.keeps: list[Any] = []
        """Objects of whoever asks, which are no part of the program."""

    def count(self) -> Count:
        """Return how much there is, garbage collected first; no names, so that it is cheap."""
        gc.collect()
        return without_collector(self._count)

    def census(self, growth_bytes: int) -> Census:
        """Return what has a name and retains a part of such growth, garbage collected first."""
        self._growing.clear()
        # What finalizers leave behind is garbage of the next generation.
        gc.collect()
        gc.collect()
        _forget_lookups()
        cutoff_bytes = min(max(growth_bytes // _PART_OF_GROWTH, _LEAST_CUTOFF), _MOST_CUTOFF)
        return without_collector(self._census, cutoff_bytes)

    def begin_sites(self) -> None:
        """Note what tracemalloc knows before the calls from which ``learn_sites`` learns."""
        self._exit_handlers.begin()

    def learn_sites(self) -> None:
        """Learn which lines made the latest items of what was seen to grow, and let go of it.

        A census under tracemalloc would take ten times as long: so this is asked before it.
        """
        sites = ((path, sites_of(held_by, self._ownership)) for path, held_by in self._gaining())
        self._sites = {path: found for path, found in sites if found}
        self._exit_handlers.learn()
        self._growing.clear()

    def _gaining(self) -> Iterator[tuple[str, object]]:
        for path, held_by in self._growing:
            is_of_classes = path in self.class_paths
            yield path, made_classes.latest_classes(self._ownership) if is_of_classes else held_by

    def forget(self) -> None:
        """Let go of everything."""
        self.keeps.clear()
        self._growing.clear()
        self._module_names.forget()

    @property
    def reach(self) -> Reach:
        """Which code the scenario is."""
        return self._given.reach

    @property
    def source_files(self) -> set[str]:
        """The user's source files that were seen to own something."""
        return set(self._definitions.files)

    def _count(self) -> Count:
        # First of all, for roots are lists too.
        hidden = gathering()
        items = _items(hidden)
        roots = find_roots(self._ownership, self._definitions, full=True)
        request = request_from(roots, full=True, own=[self, *self.keeps, *hidden])
        result = walk(replace(request, max_selected=1, count_types=True))
        amounts: dict[str, int] = dict(items)
        amounts["functions at exit"] = self._exit_handlers.count
        for module, names in self._module_names.counts().items():
            amounts[f"names {module}"] = names
        for total in result.types:
            name = anatomy.qualified_name(total.type)
            for what, amount in (("objects", total.count), ("bytes", total.bytes)):
                amounts[f"{what} {name}"] = amounts.get(f"{what} {name}", 0) + amount
            for device, amount in total.payload_bytes.items():
                key = f"{device} {name}"
                amounts[key] = amounts.get(key, 0) + amount
        return Count(amounts, result.heap_bytes + sum(result.payload_bytes.values()))

    def _census(self, cutoff_bytes: int) -> Census:
        hidden = gathering()
        roots = self._roots()
        request = replace(
            request_from(roots, full=True, own=[self, *self.keeps, *hidden]),
            barriers=structure(),
            keep_graph=True,
            cutoff_bytes=cutoff_bytes,
            max_selected=_MOST_OBJECTS,
        )
        result = walk(request)
        maker = RowMaker(result, roots, self._ownership, self._definitions)
        roles = Roles(result, maker)
        drafts = [draft for draft in maker.drafts() if not is_of_runner(draft.path)]
        seen: list[tuple[CensusRow, object]] = [
            (maker.row(draft, roles.of_draft), result.nodes.objects[_last(draft)])
            for draft in drafts
        ]
        seen += self._module_names.rows(result.nodes)
        before, self._sizes = self._sizes, {row.path: _size(row) for row, _ in seen}
        for row, held_by in seen:
            row.allocated_at[:] = self._sites.get(row.path, ())
            if before and any(map(gt, _size(row), before.get(row.path, (0, 0)))):
                self._growing.append((row.path, held_by))
        return Census(
            scope=CensusScope.FULL,
            rows=[*(row for row, _ in seen), self._exit_handlers.row()],
            cutoff_bytes=cutoff_bytes,
            objects=result.objects,
            heap_bytes=result.heap_bytes,
            payload_bytes=result.payload_bytes,
            walker=result.engine,
        )

    def _roots(self) -> Roots:
        """Return the roots: what is given has a name after globals, before running functions."""
        roots = find_roots(self._ownership, self._definitions, full=True)
        owner = self._given.owner
        spoken = owner.name if owner else "scenario"
        given = [
            Root(
                value,
                RootKind.LOCAL,
                f"{spoken}()·{name}",
                f"{spoken}.{name}",
                None if owner is None else _with_variable(owner, name),
            )
            for name, value in dict(self._given.values).items()
            if not (is_made_by_runner(value) or _is_ours(value))
        ]
        at = roots.user_count
        named = roots.named[:at]
        classes = [*made_classes.class_roots(self._ownership, self._definitions, named)]
        self.class_paths = {root.path for root in classes}
        return replace(
            roots,
            named=[*named, *given, *classes, *roots.named[at:]],
            user_count=at + len(given) + len(classes),
            stages=[*roots.stages, at],
        )


def _forget_lookups() -> None:
    """Have the interpreter let go of the names of attributes that it looked up last.

    Its cache of methods refers to some thousand (``Objects/typeobject.c``), now to these and now to
    those: so an object would seem to retain more of its own attributes' names from look to look.
    """
    for name in ("_clear_internal_caches", "_clear_type_cache"):  # the first since Python 3.13
        forget = getattr(sys, name, None)
        if forget is not None:
            forget()
            return


def _last(draft: Draft) -> int:
    return (draft.inner or draft.nodes)[-1]


def _size(row: CensusRow) -> tuple[int, int]:
    return reached_bytes(row), row.length or 0


def _is_ours(value: object) -> bool:
    return anatomy.module_name(type(value)).partition(".")[0] == "leakscope"


def _with_variable(owner: Owner, variable: str) -> Owner:
    return Owner(
        kind=owner.kind,
        name=owner.name,
        file=owner.file,
        line=owner.line,
        variable=variable,
        module=owner.module,
    )


def _items(hidden: Sequence[object]) -> Iterable[tuple[str, int]]:
    """Return how many items lists and deques have, past those that are hidden.

    Lists have room to spare, so that their bytes don't tell of each item.
    """
    past = {id(obj) for obj in hidden}
    in_lists = in_deques = 0
    for obj in gc.get_objects():
        cls = type(obj)
        if cls is list and id(obj) not in past:
            in_lists += len(obj)
        elif cls is deque:
            in_deques += len(obj)
    return ("items of lists", in_lists), ("items of deques", in_deques)
