"""Rounds of calls with looks at the heap between them: a count that is cheap, and a census with
names.

A clean scenario costs two counts. Only where there come to be more of something, twice, is the heap
named and are the rounds doubled: what one call leaves behind must grow with the calls, so that what
a round leaves, whatever its length, isn't taken for a leak.

Both look at everything, libraries and what native code holds included: hooks, handlers and
registries of libraries are where tests leave things behind. What the test runner itself gathers is
left out.
"""

from __future__ import annotations

import functools
import gc
import sys
import tracemalloc
import types
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import StringIO
from itertools import islice
from operator import gt, index
from types import GeneratorType
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex

import msgspec

from leakscope.heap import anatomy
from leakscope.heap.anatomy import locals_of
from leakscope.heap.graph import walk
from leakscope.heap.ownership import Definitions, Ownership, ownership_under
from leakscope.heap.pausing import standing_still
from leakscope.heap.roles import Roles
from leakscope.heap.roots import Root, Roots, find_roots, walk_request
from leakscope.heap.row_details import reached_bytes, traceback_of
from leakscope.heap.rows import Draft, RowMaker
from leakscope.model.census import Census, CensusRow, CensusScope, Owner, RootKind, Site
from leakscope.model.errors import LeakscopeError
from leakscope.model.text import to_bytes
from leakscope.testing import registries
from leakscope.testing.registries import ExitHandlers, ModuleNames

if TYPE_CHECKING:
    from leakscope.analysis.source import FeedingLine


_OWN, _ANY, _ELSEWHERE = range(3)


@dataclass(frozen=True)
class ScenarioCode:
    """The lines of a scenario, and those of others that don't run meanwhile."""

    own: types.CodeType | None = None
    elsewhere: Sequence[types.CodeType] = ()
    """Such as the other tests of the same file."""

    def likeliest_first(self, feeding: Iterable[FeedingLine]) -> list[FeedingLine]:
        """Return lines, the scenario's own first; others' only where there are none but these."""
        own = _extents([self.own] if self.own else [])
        elsewhere = _extents(self.elsewhere)
        ranks = {
            line: _OWN if _lies_in(line, own) else _ELSEWHERE if _lies_in(line, elsewhere) else _ANY
            for line in feeding
        }
        left = [line for line, rank in ranks.items() if rank != _ELSEWHERE] or list(ranks)
        return sorted(left, key=lambda line: ranks[line])


def code_of(scenario: object) -> types.CodeType | None:
    """Return the code that a callable runs, through partials and methods."""
    while isinstance(scenario, functools.partial):
        scenario = scenario.func
    function = scenario.__func__ if type(scenario) is types.MethodType else scenario
    return function.__code__ if type(function) is types.FunctionType else None


def tests_of(names: Iterable[object]) -> Iterator[types.CodeType]:
    """Yield the code of the tests among a module's values, those of its classes included."""
    for value in names:
        if type(value) is types.FunctionType and value.__name__.startswith("test"):
            yield value.__code__
        elif type(value) is type:
            yield from tests_of(f for f in vars(value).values() if type(f) is types.FunctionType)


_Extent = tuple[str, int, int]


def _extents(codes: Iterable[types.CodeType]) -> list[_Extent]:
    return [(code.co_filename, code.co_firstlineno, max(_code_lines(code))) for code in codes]


def _code_lines(code: types.CodeType) -> Iterator[int]:
    yield code.co_firstlineno
    yield from (line for *_, line in code.co_lines() if line is not None)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_lines(constant)


def _lies_in(line: FeedingLine, extents: Iterable[_Extent]) -> bool:
    return any(line.file == file and first <= line.line <= last for file, first, last in extents)


_LEAST_CUTOFF, _MOST_CUTOFF = 128, 1024
_PART_OF_GROWTH = 8
"""What gathers less than this part of the growth of a round need not be named."""
_MOST_OBJECTS = 10_000


@dataclass(frozen=True)
class KnownNames:
    """What a scenario works on, such as the fixtures of a test, and whose it is."""

    values: Callable[[], Mapping[str, object]] = dict
    """Returns what it works on now, by name."""
    owner: Owner | None = None
    reach: ScenarioCode = field(default_factory=ScenarioCode)


@dataclass(frozen=True)
class Count:
    """How much of everything there is, by kind: objects, bytes, and items of lists."""

    amounts: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    """Of all kinds and on all devices."""


class HeapSampler:
    """Looks at the heap of this process, past itself and past what the test runner gathers."""

    def __init__(self, project_root: str, known_names: KnownNames) -> None:
        self.project_root = project_root
        self._ownership = ownership_under(project_root)
        self._definitions = Definitions(self._ownership)
        self._known_names = known_names
        self._module_names = ModuleNames(self._ownership)
        self._exit_handlers = ExitHandlers(self._ownership)
        self._sizes: dict[str, tuple[int, int]] = {}
        self._growing: list[tuple[str, object]] = []
        """What was seen to grow. It keeps the user's objects only until it is read."""
        self._sites: dict[str, list[Site]] = {}
        self.class_paths: set[str] = set()
        """Under which classes stand that no module has a name for."""
        self.keeps: list[Any] = []
        """Objects of whoever asks, which are no part of the program."""

    def count(self) -> Count:
        """Return how much there is, garbage collected first; no names, so that it is cheap."""
        gc.collect()
        return standing_still(self._count)

    def census(self, growth_bytes: int) -> Census:
        """Return what has a name and retains a part of such growth, garbage collected first."""
        self._growing.clear()
        # What finalizers leave behind is garbage of the next generation.
        gc.collect()
        gc.collect()
        _forget_lookups()
        cutoff_bytes = min(max(growth_bytes // _PART_OF_GROWTH, _LEAST_CUTOFF), _MOST_CUTOFF)
        return standing_still(self._census, cutoff_bytes)

    def begin_sites(self) -> None:
        """Note what tracemalloc knows before the calls from which ``learn_sites`` learns."""
        self._exit_handlers.begin()

    def learn_sites(self) -> None:
        """Learn which lines made the latest items of what was seen to grow, and let go of it.

        A census under tracemalloc would take ten times as long: so this comes before it.
        """
        self._sites = {}
        for path, holders in self._growing:
            is_of_classes = path in self.class_paths
            gaining = registries.latest_classes(self._ownership) if is_of_classes else holders
            found = sites_of(gaining, self._ownership)
            if found:
                self._sites[path] = found
        self._exit_handlers.learn()
        self._growing.clear()

    def forget(self) -> None:
        """Let go of everything."""
        self.keeps.clear()
        self._growing.clear()
        self._module_names.forget()

    @property
    def reach(self) -> ScenarioCode:
        """Which code the scenario is."""
        return self._known_names.reach

    @property
    def source_files(self) -> set[str]:
        """The user's source files that were seen to own something."""
        return set(self._definitions.files)

    def _count(self) -> Count:
        # First of all, for roots are lists too.
        hidden = gathering()
        items = _items(hidden)
        roots = find_roots(self._ownership, self._definitions, full=True)
        request = walk_request(roots, full=True, own=[self, *self.keeps, *hidden])
        result = walk(replace(request, max_selected=1, count_types=True))
        amounts = Counter(items)
        amounts["functions at exit"] = self._exit_handlers.count
        for module, names in self._module_names.counts().items():
            amounts[f"names {module}"] = names
        for total in result.types:
            name = anatomy.qualified_name(total.type)
            amounts[f"objects {name}"] += total.count
            amounts[f"bytes {name}"] += total.bytes
            for device, amount in total.payload_bytes.items():
                amounts[f"{device} {name}"] += amount
        return Count(amounts, result.heap_bytes + sum(result.payload_bytes.values()))

    def _census(self, cutoff_bytes: int) -> Census:
        hidden = gathering()
        roots = self._roots()
        request = replace(
            walk_request(roots, full=True, own=[self, *self.keeps, *hidden]),
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
        for row, holders in seen:
            row.allocated_at[:] = self._sites.get(row.path, ())
            if before and any(map(gt, _size(row), before.get(row.path, (0, 0)))):
                self._growing.append((row.path, holders))
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
        owner = self._known_names.owner
        shown = owner.name if owner else "scenario"
        own_roots = [
            Root(
                value,
                RootKind.LOCAL,
                f"{shown}()·{name}",
                f"{shown}.{name}",
                None if owner is None else msgspec.structs.replace(owner, variable=name),
            )
            for name, value in self._known_names.values().items()
            if anatomy.module_name(type(value)).partition(".")[0] not in (*_RUNNERS, "leakscope")
        ]
        at = roots.user_count
        named = roots.named[:at]
        classes = [*registries.class_roots(self._ownership, self._definitions, named)]
        self.class_paths = {root.path for root in classes}
        return replace(
            roots,
            named=[*named, *own_roots, *classes, *roots.named[at:]],
            user_count=at + len(own_roots) + len(classes),
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


def _items(hidden: Sequence[object]) -> dict[str, int]:
    """Return how many items lists and deques have, past those that are hidden.

    Lists have room to spare, so that their bytes don't grow with each item.
    """
    past = {id(obj) for obj in hidden}
    in_lists = in_deques = 0
    for obj in gc.get_objects():
        cls = type(obj)
        if cls is list and id(obj) not in past:
            in_lists += len(obj)
        elif cls is deque:
            in_deques += len(obj)
    return {"items of lists": in_lists, "items of deques": in_deques}


STEPS = 20
WARMUP = 3
ALLOW = "0 B"
DOUBLINGS = (1, 2, 4)
"""How many times the steps each named round is long."""

_ALIKE = 0.4
"""What one counted round brings of what the other does: tables grow in jumps."""


@dataclass(frozen=True)
class Plan:
    """How often a scenario is called, and what it may leave behind."""

    steps: int
    """Calls of a round; of the last one four times as many."""
    warmup: int
    """Calls before the first look."""
    allow_bytes: float
    """Growth per call that is no fault."""
    ignore: tuple[str, ...]
    """Patterns of names or paths that may grow."""


def to_plan(
    steps: SupportsIndex = STEPS,
    warmup: SupportsIndex = WARMUP,
    allow: str | float = ALLOW,
    ignore: str | Iterable[str] = (),
) -> Plan:
    """Return a plan.

    Raises:
        LeakscopeError: a number is out of its range, or ``allow`` is no size.

    """
    calls = _to_count(steps, "steps", least=1)
    warm = _to_count(warmup, "warmup", least=0)
    allowed: Any = to_bytes(allow) if isinstance(allow, str) else allow
    is_number = isinstance(allowed, (int, float)) and not isinstance(allowed, bool)
    if not is_number or not 0 <= allowed < float("inf"):
        raise LeakscopeError(
            f"allow is a size such as '0 B' or '4 KB', not {allow!r}.", slug="no-size"
        )
    return Plan(calls, warm, float(allowed), _to_patterns(ignore))


def _to_patterns(ignore: object) -> tuple[str, ...]:
    patterns = tuple(ignore) if isinstance(ignore, Iterable) else (None,)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise LeakscopeError(f"ignore is a list of names, not {ignore!r}.", slug="no-pattern")
    return (ignore,) if isinstance(ignore, str) else patterns


def _to_count(value: SupportsIndex, name: str, *, least: int) -> int:
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise LeakscopeError(
            f"{name} is a whole number from {least} on, not {value!r}.", slug="no-number"
        )
    return number


@dataclass
class Rounds:
    """Calls of one scenario, and what was seen between them."""

    looker: HeapSampler
    plan: Plan
    _has_looked: ClassVar[bool] = False
    calls: int = 0
    """Calls begun so far."""
    censuses: list[tuple[int, Census]] = field(default_factory=list)
    """Censuses by the number of calls before them; none where nothing was worth naming."""
    is_over: bool = False
    _last: Count = field(default_factory=Count)
    _grown: dict[str, int] = field(default_factory=dict)
    """How much more there was after the last round of what grew in each so far, by about as
    much."""
    _gained: int = 0
    """Bytes by which everything together grew in the last counted round."""

    def __iter__(self) -> Generator[int, None, None]:
        """Yield the number of each call while there is something to find out."""
        self.looker.keeps = [self]
        yield from self._round(self.plan.warmup)
        if (yield from self._grows_twice()):
            self._take_census()
            for times in DOUBLINGS[:-1]:
                yield from self._round(times * self.plan.steps)
                self._take_census()
            with traced():
                self.looker.begin_sites()
                yield from self._round(DOUBLINGS[-1] * self.plan.steps)
                self.looker.learn_sites()
            self._take_census()
        self.is_over = True

    def forget(self) -> None:
        """Let go of all that was seen."""
        self.censuses.clear()
        self.looker.forget()
        self._last = Count()

    def _grows_twice(self) -> Generator[int, None, bool]:
        """Return whether there is more of some kind after a round, and after another again."""
        if not Rounds._has_looked:
            # The first look of a process imports, and fills caches of ours.
            Rounds._has_looked = True
            self.looker.count()
        # Each count is taken inside of the loop, or what the loop itself needs would have grown.
        for turn in range(3):
            if turn:
                yield from self._round(self.plan.steps)
            self._count(is_first=not turn)
            if turn and not self._grown:
                return False
        return True

    def _count(self, *, is_first: bool) -> None:
        before, self._last = self._last, self.looker.count()
        self._gained = self._last.bytes - before.bytes
        more = self._last.amounts - before.amounts
        earlier, self._grown = self._grown, {} if is_first else more
        if earlier:
            both = ((kind, n, earlier.get(kind, 0)) for kind, n in more.items())
            self._grown = {k: n for k, n, was in both if min(n, was) >= _ALIKE * max(n, was)}

    def _round(self, calls: int) -> Iterator[int]:
        for _ in range(calls):
            self.calls += 1
            yield self.calls

    def _take_census(self) -> None:
        self.censuses.append((self.calls, self.looker.census(self._gained)))


_FRAMES = 4
_SAMPLES = 3
_MOST_ITEMS = 200


@contextmanager
def traced() -> Iterator[None]:
    """Trace allocations meanwhile; where the program does so itself, leave that alone."""
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start(_FRAMES)
    try:
        yield
    finally:
        if not was_tracing:
            tracemalloc.stop()


def sites_of(holder: object, ownership: Ownership) -> list[Site]:
    """Return the user's lines that made the latest items of a holder, or else itself.

    All lines of a stack count, for the one that made an item need not be the one that kept it; the
    innermost come first.
    """
    items = gc.get_referents(holder)
    if not isinstance(holder, list | tuple):
        # Those tell the collector of their last item first (Objects/listobject.c).
        items.reverse()
    # A cache keeps its items in a dict of its own.
    inner = [item for cache in items if type(cache) is dict for item in gc.get_referents(cache)]
    latest = [*islice(items, _MOST_ITEMS), *islice(reversed(inner), _MOST_ITEMS)]
    if type(holder) is dict:
        # The collector doesn't track keys that are all strings.
        latest += islice(reversed(holder), _MOST_ITEMS)
    stacks = list(
        islice(filter(None, (_allocated_at(item, ownership) for item in latest)), _SAMPLES)
    )
    stacks = stacks or [_allocated_at(holder, ownership)]
    ranks: dict[tuple[str, int], int] = {}
    for stack in stacks:
        for rank, line in enumerate(stack):
            ranks[line] = min(rank, ranks.get(line, rank))
    ordered = sorted(ranks, key=lambda line: ranks[line])
    return [
        Site(file=file, line=line, count=len(ordered) - rank, bytes=len(ordered) - rank)
        for rank, (file, line) in enumerate(ordered)
    ]


def _allocated_at(obj: object, ownership: Ownership) -> list[tuple[str, int]]:
    return [(file, line) for file, line in traceback_of(obj) if ownership.owns_file(file)]


_RUNNERS = frozenset({"_pytest", "pluggy", "xdist", "execnet", "__channelexec__", "pytest_timeout"})
"""Packages, and the name under which execnet runs the worker of xdist."""
_GATHERING = frozenset({
    "_pytest.logging", "_pytest.capture", "_pytest.recwarn", "_pytest.monkeypatch",
    "_pytest.junitxml",
})  # fmt: skip
"""Modules whose objects keep what a test printed, logged, patched or reported until it ends."""
_STRUCTURE = frozenset({
    "_pytest.config", "_pytest.fixtures", "_pytest.main", "_pytest.nodes", "_pytest.python",
    "_pytest.runner", "_pytest.unittest",
})  # fmt: skip
"""Modules whose objects are the tests themselves, and lead to the values of their fixtures."""
_RUNNING = ("_pytest.runner", "SetupState")
"""The class that knows the test that is running, and all that it is part of."""
_OF_THE_RUNNING = ("user_properties", "_report_sections", "stash")
_RECORDING = ("_pytest.warnings", "catch_warnings_for_item")
"""The generator whose ``log`` gets the warnings of a test."""


def is_of_runner(path: str) -> bool:
    """Return whether a path begins in a running function or a module of the test runner."""
    return path.partition(".")[0].partition("·")[0] in _RUNNERS


def gathering() -> list[object]:
    """Return the objects that gather until the running test ends, wherever names lead to them."""
    found: list[object] = []
    for obj, home in _with_homes():
        if home[0] in _GATHERING:
            _settle(obj)
            # Its lists too, for others refer to those past it.
            found += [obj, *(v for v in _attributes(obj).values() if type(v) is list)]
        elif home == _RUNNING:
            found += _kept_of_tests(obj)
        elif type(obj) is GeneratorType:
            found += _recorded(obj)
    return found


def structure() -> list[object]:
    """Return the objects that are the tests: a ``conftest`` may have a name for each of them.

    What a fixture gathers lies behind them, and such a name would say nothing of it.
    """
    return [obj for obj, (module, _) in _with_homes() if module in _STRUCTURE]


def _with_homes() -> Iterator[tuple[object, tuple[str, str]]]:
    """Yield the collector's objects with the module and the name of their classes."""
    homes: dict[int, tuple[str, str]] = {}
    for obj in gc.get_objects():
        cls = type(obj)
        home = homes.get(id(cls))
        if home is None:
            home = homes[id(cls)] = (anatomy.module_name(cls), anatomy.qualname(cls))
        yield obj, home


def _attributes(obj: object) -> dict[str, object]:
    return anatomy.instance_dict(obj) or {}


def _kept_of_tests(running: object) -> Iterator[object]:
    for node in list(_attributes(running).get("stack", ())):  # type: ignore[call-overload]
        kept = _attributes(node)
        yield from (kept[name] for name in _OF_THE_RUNNING if name in kept)


def _recorded(generator: GeneratorType) -> list[object]:  # type: ignore[type-arg]
    frame = generator.gi_frame
    if frame is None or frame.f_code.co_name != _RECORDING[1]:
        return []
    if frame.f_globals.get("__name__") != _RECORDING[0]:
        return []
    return [value for name, value in locals_of(frame) if name == "log" and value is not None]


def _settle(gatherer: object) -> None:
    """Let the text stream of a log handler write its pieces into its buffer.

    Until it is first read from it keeps them in a list that only the collector knows of
    (``Modules/_io/stringio.c``), which would pass for one that native code holds.
    """
    stream = _attributes(gatherer).get("stream")
    if type(stream) is StringIO and not stream.closed and stream.tell():
        stream.read(0)
