"""A sampled profile of native allocations: which library, function and line have memory live.

Symbols come from the library's file, which is read once for all addresses that are new in it; names
of C++, and of Rust as they were, are demangled by the C++ library that the process has loaded
anyway.

One block in 512 KiB of what ``malloc`` and ``mmap`` hand out is sampled, with its stack, and
followed until it is freed (``native/sampling.h``, ``docs/decisions/native-allocations.md``). What
is live at a moment is estimated from the samples, by stack; here stacks become rows: library,
function, and the user's line below which it happened.
"""

from __future__ import annotations

import bisect
import ctypes
import math
import os
import re
import sys
import sysconfig
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from leakscope.model.census import SampledBlock, package_paths
from leakscope.model.errors import OUR_FILES, ours
from leakscope.model.record import NativeAllocationsRecord, NativeKind, NativeOwner, NativeSite

try:
    from leakscope.probes import _sampling
except ImportError:  # no compiler, another C library, or a Python without the GIL
    _sampling = None  # type: ignore[assignment]


MOST_KNOWN = 20_000
"""Addresses whose names are kept; a program that loads and unloads libraries makes ever new ones.
Some 4 MB."""
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
_CLONE = re.compile(r"(\.(part|constprop|isra|cold|lto_priv|llvm)(\.\d+)?)+$")
_QUALIFIERS = re.compile(r"( const| volatile| &&?)+$")
_ABI = re.compile(r"\[abi:\w+\]")
_Read = TypeVar("_Read")


class Named(NamedTuple):
    """Where an address lies."""

    library: str
    """Name of the file; empty where there is none any more."""
    function: str


class NativeNames:
    """Names addresses of this process, once each, by ``_sampling.symbols`` or its like."""

    def __init__(self, symbols: Callable[[str, list[int]], dict[int, str | None]]) -> None:
        self._symbols = symbols
        self._known: dict[tuple[str, int], Named] = {}
        self._demangler: Demangler | None = None

    def __len__(self) -> int:
        return len(self._known)

    def name(
        self, addresses: Iterable[int], libraries: Iterable[tuple[str, int, int, int]]
    ) -> dict[int, Named]:
        """Return the names of return addresses, where the call lies right before each.

        Of ``libraries`` path, base, begin and end.
        """
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        loaded = sorted(libraries, key=lambda library: library[2])
        begins = [library[2] for library in loaded]
        places: dict[int, tuple[str, int]] = {}
        missing: dict[str, list[int]] = {}
        for address in set(addresses):
            at = bisect.bisect_right(begins, address - 1) - 1
            path, base, _, end = loaded[at] if at >= 0 else ("", 0, 0, 0)
            if at < 0 or address - 1 >= end:
                continue
            place = places[address] = (path or _program(), address - 1 - base)
            if place not in self._known:
                missing.setdefault(place[0], []).append(place[1])
        for path, offsets in missing.items():
            self._learn(path, sorted(set(offsets)))
        return {address: self._known[place] for address, place in places.items()}

    def _learn(self, path: str, offsets: list[int]) -> None:
        try:
            found = self._symbols(path, offsets)
        except ours(Exception):
            found = {}
        library = Path(path).name
        for offset in offsets:
            symbol = found.get(offset)
            function = self._readable(symbol) if symbol else f"+0x{offset:x}"
            self._known[path, offset] = Named(library, function)

    def _readable(self, symbol: str) -> str:
        if symbol.startswith("_R"):
            symbol = rust_path(symbol)
        elif symbol.startswith("_Z"):
            if self._demangler is None:
                self._demangler = Demangler()
            symbol = self._demangler(symbol)
        return shortened(symbol)


class Demangler:
    """``__cxa_demangle`` of the C++ library that is loaded; without one, names stay as they are."""

    def __init__(self) -> None:
        self._call: Any = None
        try:
            library = ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            call = library["__cxa_demangle"]  # as an attribute it would be a name of this class
            call.restype = ctypes.c_void_p
            call.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
            self._free = ctypes.CDLL(None).free
            self._free.restype = None
            self._free.argtypes = [ctypes.c_void_p]
            self._call = call
        except ours(OSError, AttributeError):
            pass

    def __call__(self, symbol: str) -> str:
        """Return the name that a symbol stands for."""
        if self._call is None:
            return symbol
        status = ctypes.c_int(0)
        text = self._call(symbol.encode(), None, None, ctypes.byref(status))
        if not text:
            return symbol
        name = ctypes.string_at(text).decode("utf-8", "replace")
        self._free(text)
        return name


def rust_path(symbol: str) -> str:
    """Return the function that a symbol of Rust's stands for, without arguments of types.

    Those that begin with ``_R`` (RFC 2603), which the demangler of C++ doesn't know. What isn't
    well formed stays as it is.
    """
    try:
        return _RustSymbol(symbol.removeprefix("_R")).path()
    except ours(IndexError, ValueError, RecursionError):
        return symbol


_BASE_62 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_UNNAMED = {"C": "{closure}", "S": "{shim}"}
_MOST_BACK = 50
"""References to what stands before in a symbol, of which one may lead to the next for ever."""


class _RustSymbol:
    """Reads a symbol from left to right; of types it tells the path alone."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._back = 0

    def path(self) -> str:
        tag = self._next()
        if tag == "C":
            return self._identifier()
        if tag == "N":
            namespace, outer, name = self._next(), self.path(), self._identifier()
            return f"{outer}::{_UNNAMED.get(namespace, name)}"
        if tag in "MXY":
            if tag != "Y":
                self._skip_number("s")  # which of several
                self.path()  # where the implementation stands
            of = self._type()
            if tag != "M":
                self.path()  # the trait
            return of
        if tag == "I":
            outer = self.path()
            self._until_end(self._argument)
            return outer
        if tag == "B":
            return self._again(self.path)
        raise ValueError(tag)

    def _type(self) -> str:
        tag = self._text[self._at]
        if tag in "CNMXYI":
            return self.path()
        self._at += 1
        if tag == "B":
            return self._again(self._type)
        if tag == "T":
            self._until_end(self._type)
        elif tag in "RQPOSA":
            self._skip_number("L")
            inner = self._type()
            if tag == "A":
                self._constant()
            return inner
        elif tag == "F":
            self._skip_number("G")  # of lifetimes
            self._takes("U")
            if self._takes("K") and not self._takes("C"):
                self._identifier()
            self._until_end(self._type)
            self._type()
        elif tag == "D":
            self._skip_number("G")
            bounds: list[str] = []
            self._until_end(lambda: bounds.append(self._bound()))
            self._takes("L")
            self._number()
            return bounds[0]
        elif not tag.islower():
            raise ValueError(tag)
        return tag

    def _bound(self) -> str:
        bound = self.path()
        while self._takes("p"):
            self._identifier()
            self._type()
        return bound

    def _argument(self) -> object:
        if self._takes("L"):
            return self._number()
        return self._constant() if self._takes("K") else self._type()

    def _constant(self) -> object:
        if self._takes("p"):
            return None
        if self._takes("B"):
            return self._again(self._constant)
        self._type()
        self._at = self._text.index("_", self._at) + 1
        return None

    def _identifier(self) -> str:
        self._skip_number("s")
        self._takes("u")
        begin = self._at
        while self._text[self._at].isdigit():
            self._at += 1
        length = int(self._text[begin : self._at])
        self._takes("_")
        self._at += length
        return self._text[self._at - length : self._at]

    def _skip_number(self, letter: str) -> None:
        if self._takes(letter):
            self._number()

    def _number(self) -> int:
        if self._takes("_"):
            return 0
        end = self._text.index("_", self._at)
        value = 0
        for digit in self._text[self._at : end]:
            value = value * 62 + _BASE_62.index(digit)
        self._at = end + 1
        return value + 1

    def _again(self, read: Callable[[], _Read]) -> _Read:
        self._back += 1
        if self._back > _MOST_BACK:
            raise ValueError(self._text)
        place = self._number()
        after, self._at = self._at, place
        found = read()
        self._at = after
        return found

    def _until_end(self, read: Callable[[], object]) -> None:
        while not self._takes("E"):
            read()

    def _next(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def _takes(self, letter: str) -> bool:
        is_there = self._text[self._at : self._at + 1] == letter
        self._at += is_there
        return is_there


def shortened(name: str) -> str:
    """Return a function's name without arguments, template arguments and what compilers append."""
    name = _RUST_HASH.sub("", _CLONE.sub("", name.split(" [clone ", maxsplit=1)[0]))
    name = _ABI.sub("", name)
    if "(" not in name and "<" not in name:
        return name
    kept: list[str] = []
    depth = 0
    text = name
    for mark, original in _MARKS.items():
        text = text.replace(original, mark)
    for letter in text:
        if letter in "(<":
            depth += 1
        elif letter in ")>":
            depth = max(depth - 1, 0)
        elif depth == 0:
            kept.append(letter)
    # What comes before the last space outside of brackets is the type that a template returns.
    plain = _QUALIFIERS.sub("", "".join(kept)).strip()
    if not re.search(r"operator (new|delete)(\[\])?$", plain):
        plain = plain.rpartition(" ")[2] or plain
    for mark, original in _MARKS.items():
        plain = plain.replace(mark, original)
    return plain or name


_MARKS = {
    "\0": "(anonymous namespace)",
    "\1": "operator()",
    "\2": "operator<<",
    "\3": "operator<",
    "\4": "operator->",
}


def _program() -> str:
    try:
        return str(Path("/proc/self/exe").readlink())
    except ours(OSError):
        return sys.executable


INTERVAL_BYTES = 512 << 10
"""Mean number of bytes from one sample to the next; that of jemalloc and of Go."""
PYTHON_INTERVAL_BYTES = 128
"""The same for blocks of Python's own allocators, at first: a program that allocates much has fewer
of them sampled."""
_BLOCK_SECONDS = 4e-9
"""What following a block from its allocation to its free takes; ``benchmarks/native`` tells."""
_DRAW_SECONDS = 1e-6
"""What it takes to find the lines of one that is chosen."""
MOST_ROWS = 40
_MOST_SMALL_ROWS = 20
_MOST_PACKAGES = 32
"""Folders and names of packages installed below the project that are handed to C."""
LEAST_SHARE = 0.002
"""Rows below this part of all live bytes are summed up."""
RISEN = 1.05
"""A new height of resident memory is looked at when it is so many times the one looked at last:
a run sees as many of them as the logarithm of what it grows by."""
STACK_ROWS = 12

MOST_STACKS = 4096
_BYTES_PER_NAME = 200
_BYTES_PER_STACK = 600
_KINDS = (NativeKind.BLOCK, NativeKind.MAPPING)

_RUNTIMES = (
    "libc.so", "libc-2", "libstdc++", "libc++", "libgcc_s", "ld-linux", "libpthread", "libffi",
)  # fmt: skip
_PLUMBING = (
    "c10::alloc_cpu",
    "c10::DefaultCPUAllocator",
    "c10::StorageImpl",
    "c10::CPUCachingAllocator",
    "c10::intrusive_ptr",
    "c10::make_intrusive",
    "at::detail::empty_",
    "at::detail::_empty_",
    "std::",
    "__gnu_cxx::",
    "operator new",
    "posix_memalign",
    "aligned_alloc",
)
"""Functions that allocate on behalf of whoever calls them."""


class _Origin(IntEnum):
    """Whose a file of Python is, as ``native/sampling.h`` has it."""

    LIBRARY = 0
    STANDARD = 1
    WRAPPER = 2
    OWN = 3
    USER = 4
    IMPORT = 5


class _Place(NamedTuple):
    file: str
    line: int
    function: str
    origin: int


_AWAITED = "<awaited>"
"""As ``native/stacks.c`` has it, before the lines of a thread that waits for who allocates."""


class _SiteKey(NamedTuple):
    library: str
    function: str
    file: str
    line: int
    kind: int
    owner: NativeOwner
    is_awaited: bool


class _Stack(NamedTuple):
    key: _SiteKey
    caller: str
    functions: list[Named]


class _SiteSums:
    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.samples = 0
        self.estimate = self.chance = self.variance = self._largest = 0.0
        self.stack: list[Named] = []

    def add(self, row: _sampling.Row, stack: list[Named]) -> None:
        *_, samples, _seen, estimate, chance, variance = row
        self.samples += samples
        self.estimate += estimate
        self.chance += chance
        self.variance += variance
        if estimate > self._largest:
            self._largest = estimate
            self.stack = stack


class NativeProfile:
    """Samples from :meth:`start` to :meth:`stop`; one at a time in a process."""

    why_not = ""
    """Why nothing is sampled, as a sentence; empty while all is well or before it was tried."""
    samples_blocks = False
    """Whether blocks of Python's own allocators are sampled too."""

    def __init__(
        self, *, interval: float = INTERVAL_BYTES, project_root: str = "", seed: int | None = None
    ) -> None:
        self._interval = interval
        self._root = project_root
        self._seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self._pid = -1
        self._highest = 0
        self._places: dict[int, _Place] = {}
        self._names: NativeNames | None = None
        self._stacks: dict[int, _Stack] = {}
        """By the hash of kind, sites and addresses, which would take far more room."""
        self._libraries: list[tuple[str, int, int, int]] = []
        self._recorded: set[tuple[object, ...]] = set()

    def start(self) -> bool:
        """Begin to sample; return False where it can't be done, for the reason in ``why_not``."""
        built: object = _sampling
        if built is None:
            self.why_not = "It was not built: that needs a C compiler, glibc and a Python with GIL."
            return False
        why_not = _sampling.start(
            float(self._interval), self._seed & (2**64 - 1), _origins(self._root)
        )
        if why_not:
            self.why_not = f"{why_not[0].upper()}{why_not[1:]}."
            return False
        self.samples_blocks = _sampling.start_blocks(float(PYTHON_INTERVAL_BYTES))
        self._pid = os.getpid()
        self._recorded.clear()
        self._stacks.clear()
        self._names = NativeNames(_sampling.symbols)
        return True

    def stop(self) -> None:
        """Sample no more; what was sampled is forgotten."""
        if self._pid == os.getpid():
            _sampling.stop()
        self._pid = -1
        self.samples_blocks = False

    @property
    def is_running(self) -> bool:
        """Whether it samples in this process."""
        return self._pid == os.getpid() and bool(_sampling.state()["running"])

    @property
    def blocks_seconds(self) -> float:
        """Seconds by which following Python's blocks has slowed the program down, estimated."""
        if not self.samples_blocks or self._pid != os.getpid():
            return 0.0
        blocks = _sampling.state()["blocks"]
        followed: float = blocks["handed_out"] * _BLOCK_SECONDS
        return followed + float(blocks["drawn"]) * _DRAW_SECONDS

    def stop_blocks(self) -> None:
        """Sample Python's blocks no more."""
        if self._pid == os.getpid():
            _sampling.stop_blocks()
        self.samples_blocks = False

    @property
    def own_bytes(self) -> int:
        """Memory of its own that is resident; all of it in mappings, none in the C heap."""
        if self._pid != os.getpid() or self._names is None:
            return 0
        named = _BYTES_PER_NAME * len(self._names) + _BYTES_PER_STACK * len(self._stacks)
        return int(_sampling.state()["own_bytes"]) + named

    def record(
        self, boundary: int, resident: int, *, with_census: bool
    ) -> NativeAllocationsRecord | None:
        """Return what is live at a boundary: with a census, and at new heights of ``resident``."""
        if self._pid != os.getpid():
            return None
        is_highest = resident > self._highest * RISEN
        if not with_census and not is_highest:
            _sampling.update(False)
            return None
        self._highest = max(self._highest, resident)
        record = self.snapshot(boundary, is_highest=is_highest)
        record.sites = [self._once(site) for site in record.sites]
        return record

    def blocks_of(self, objects: list[object], addresses: list[int]) -> list[SampledBlock]:
        """Return the sampled ones among the blocks of objects, the tables of containers, and what
        lies at addresses; none that came from the interpreter's lists of free objects.
        """
        if self._pid != os.getpid():
            return []
        return [
            SampledBlock(bool(is_table), [self._place(s)[:2] for s in sites], size, blocks)
            for is_table, sites, size, blocks in _sampling.blocks_of(objects, addresses, deque)
        ]

    def _small_sites(self) -> list[NativeSite]:
        sums: dict[_Place, _SiteSums] = {}
        for sites, (samples, estimate, variance) in _sampling.blocks_live().items():
            place = self._place(sites[0])
            found = sums.setdefault(place, _SiteSums(""))
            found.samples += samples
            found.estimate += estimate
            found.chance += estimate
            found.variance += variance
        ranked = sorted(sums.items(), key=lambda item: -item[1].estimate)[:_MOST_SMALL_ROWS]
        return [
            _site(_SiteKey("", "", p.file, p.line, 0, NativeOwner.INTERPRETER, False), found)
            for p, found in ranked
        ]

    def _once(self, site: NativeSite) -> NativeSite:
        """Return a row without its stack if that was recorded before: stacks are most of a row."""
        key = (site.library, site.function, site.file, site.line, site.kind, site.owner)
        if key in self._recorded:
            return msgspec.structs.replace(site, stack=[])
        self._recorded.add(key)
        return site

    def snapshot(
        self,
        boundary: int = 0,
        *,
        is_highest: bool = False,
        most: int = MOST_ROWS,
        share: float = LEAST_SHARE,
    ) -> NativeAllocationsRecord:
        """Return what is live now, the largest rows first."""
        _sampling.update(False)
        rows = _sampling.live()
        sums = self._summed(rows)
        total = sum(row[5] for row in rows)
        ranked = sorted(sums.items(), key=lambda item: -item[1].estimate)
        chosen = [item for item in ranked[:most] if item[1].estimate >= share * total]
        by_owner: Counter[str] = Counter()
        for key, found in sums.items():
            by_owner[key.owner.value] += round(found.estimate)
        state = _sampling.state()
        return NativeAllocationsRecord(
            boundary=boundary,
            interval_bytes=round(state["interval"]),
            bytes=round(total),
            samples=sum(row[3] for row in rows),
            chance_bytes=round(sum(row[6] for row in rows)),
            deviation_bytes=round(math.sqrt(sum(row[7] for row in rows))),
            sites=[_site(key, found) for key, found in chosen],
            by_owner=dict(by_owner),
            small_sites=self._small_sites(),
            is_highest=is_highest,
            is_on=bool(state["running"]),
            taken=state["taken"],
            dropped=state["dropped"],
            unseen_frees=state["unseen_frees"],
            own_bytes=self.own_bytes,
        )

    def _summed(self, rows: Sequence[_sampling.Row]) -> dict[_SiteKey, _SiteSums]:
        self._learn(rows)
        sums: dict[_SiteKey, _SiteSums] = {}
        for row in rows:
            key, caller, stack = self._stacks[hash(row[:3])]
            if key not in sums:
                sums[key] = _SiteSums(caller)
            sums[key].add(row, stack)
        return sums

    def _learn(self, rows: Sequence[_sampling.Row]) -> None:
        """Find out what stacks are charged to, once each: most are alive at many censuses."""
        assert self._names is not None
        libraries = _sampling.libraries()
        if libraries != self._libraries:  # an address may be another library's now
            self._stacks.clear()
            self._libraries = libraries
        unknown = [row for row in rows if hash(row[:3]) not in self._stacks]
        if not unknown:
            return
        if len(self._stacks) + len(unknown) > MOST_STACKS:
            self._stacks.clear()
            unknown = list(rows)
        names = self._names.name({address for row in unknown for address in row[2]}, libraries)
        for row in unknown:
            stack = [names.get(address, _UNLOADED) for address in row[2]]
            place, is_awaited = self._charged(row[1])
            named, owner = _owner(stack, place)
            at = place.file, place.line
            key = _SiteKey(named.library, named.function, *at, row[0], owner, is_awaited)
            self._stacks[hash(row[:3])] = _Stack(key, place.function, stack)

    def _charged(self, sites: Sequence[int]) -> tuple[_Place, bool]:
        """Return the innermost line of the user's, and whether another thread waits there.

        Where leakscope allocated for itself it is a line of leakscope's.
        """
        places = [self._place(site) for site in sites]
        is_awaited = bool(places) and places[0].file == _AWAITED
        places = places[is_awaited:]
        ours = (_Origin.USER, _Origin.OWN)
        found = next((p for p in places if p.origin in ours), places[0] if places else _NOWHERE)
        return found, is_awaited and found is not _NOWHERE

    def _place(self, site: int) -> _Place:
        known = self._places.get(site)
        if known is None:
            found = _sampling.place(site)
            known = self._places[site] = _NOWHERE if found is None else _Place(*found)
        return known


_UNLOADED = Named("", "")
_NOWHERE = _Place("", 0, "", _Origin.LIBRARY)


def _site(key: _SiteKey, found: _SiteSums) -> NativeSite:
    return NativeSite(
        library=key.library,
        function=key.function,
        file=key.file,
        line=max(key.line, 0),
        caller=found.caller,
        kind=_KINDS[key.kind],
        owner=key.owner,
        is_awaited=key.is_awaited,
        bytes=round(found.estimate),
        samples=found.samples,
        chance_bytes=round(found.chance),
        deviation_bytes=round(math.sqrt(found.variance)),
        stack=[f"{named.library}!{named.function}" for named in found.stack[:STACK_ROWS]],
    )


def _owner(stack: list[Named], place: _Place) -> tuple[Named, NativeOwner]:
    """Return the function that a stack is charged to, and who keeps books of what it allocated."""
    requester = next((named for named in stack if not _is_plumbing(named)), None)
    requester = requester or (stack[0] if stack else _UNLOADED)
    if place.origin == _Origin.OWN:
        return requester, NativeOwner.LEAKSCOPE
    first = next((named for named in stack if not named.library.startswith(_RUNTIMES)), requester)
    if first.function.startswith(("c10::alloc_cpu", "c10::DefaultCPUAllocator")):
        return requester, NativeOwner.TENSOR
    if "_multiarray_umath" in first.library:
        return requester, NativeOwner.ARRAY
    if first.library.startswith(("libpython3", "python3")) or first.library == "python":
        return requester, NativeOwner.INTERPRETER
    return requester, NativeOwner.LIBRARY


def _is_plumbing(named: Named) -> bool:
    return named.library.startswith(_RUNTIMES) or named.function.startswith(_PLUMBING)


def _origins(project_root: str) -> list[tuple[str, int]]:
    """Return prefixes of files and whose they are; the first that fits decides.

    As for what has names, the user's are those below the project's root that were not installed
    there, and a notebook's cells.
    """
    origins = [(f"{OUR_FILES}capture{os.sep}", _Origin.WRAPPER), (OUR_FILES, _Origin.OWN)]
    roots = [project_root, os.path.realpath(project_root)] if project_root else []
    users = [(f"{root.rstrip(os.sep)}{os.sep}", _Origin.USER) for root in dict.fromkeys(roots)]
    if "-packages" in project_root:  # a program that is installed itself
        origins += users
    if project_root:
        installed = package_paths(project_root)[:_MOST_PACKAGES]
        origins += [(beginning, _Origin.LIBRARY) for beginning in installed]
    for name in ("stdlib", "platstdlib"):
        path = sysconfig.get_path(name)
        for folder in {path, os.path.realpath(path)}:
            origins += [
                (f"{folder}{os.sep}{installed}{os.sep}", _Origin.LIBRARY)
                for installed in ("site-packages", "dist-packages")
            ]
            origins.append((f"{folder}{os.sep}", _Origin.STANDARD))
    if project_root:
        cells = (os.path.join(tempfile.gettempdir(), "ipykernel_"), _Origin.USER)  # noqa: PTH118
        origins += [*users, cells, (os.sep, _Origin.LIBRARY)]
    return [(prefix, int(origin)) for prefix, origin in origins]
