"""The census: the heap's rows at one boundary by name; and which source files are a notebook's
cells or were installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import msgspec

from leakscope.model.boundary import Seconds, Whole
from leakscope.model.errors import ours

SHARED = "shared"
"""In :attr:`Census.payload_bytes`: host memory that other processes can map too."""
FILE = "file"
"""In :attr:`Census.payload_bytes`: mapped files, whose pages are no memory of the process."""


ROLES = (
    "parameters",
    "gradients",
    "optimizer_state",
    "buffers",
    "cache",
    "accumulation",
    "batch",
    "other",
    "graph",
)
"""Components of memory. What belongs to several counts for the first of them."""


class RootKind(str, Enum):
    """From where a path starts, most human first."""

    LOCAL = "local"
    """A local variable of a running function."""
    GLOBAL = "global"
    """A name in ``__main__`` or another module of the user's."""
    CLASS_ATTRIBUTE = "class_attribute"
    THREAD_LOCAL = "thread_local"
    GENERATOR = "generator"
    """A local variable of a suspended generator or coroutine."""
    LIBRARY = "library"
    """A name in the standard library or an installed package."""
    NATIVE = "native"
    """Held by native code only: more references than the walk found."""
    GARBAGE = "garbage"
    """Reached by no root: awaits the collector."""


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What a container holds directly, grouped by type."""

    type: str
    count: Whole
    bytes: Whole
    """What these retain, on all devices."""
    detail: str = ""
    """For arrays the commonest form, e.g. ``float32 (256, 4) on cpu``; where much of their memory
    can't be read any more, followed by how much: ``, 63.9 MiB unused``."""


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A source line and how much memory it allocated."""

    file: str
    line: Whole
    function: str = ""
    bytes: Whole = 0
    count: Whole = 0


class SampledBlock(NamedTuple):
    """A block of an object that happened to be sampled when it was allocated."""

    is_table: bool
    """Whether it is what a container made last to have room for more items."""
    lines: list[tuple[str, int]]
    """File and line of the user's frames that allocated it, the innermost first."""
    bytes: float
    blocks: float
    """How many bytes, and blocks of its size, it stands for."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The code that a path's first name belongs to: where to look for the lines that feed it."""

    kind: str
    """``function``, ``class`` or ``module``."""
    name: str
    """Qualified name: ``Trainer.validate``, ``Trainer``, ``__main__``."""
    file: str = ""
    line: Whole = 0
    """First line of the function or class; 0 for a module."""
    variable: str = ""
    """The variable, attribute or parameter of the owner from which the path goes on."""
    module: str = ""


class StepKind(str, Enum):
    """What stands at a step of a loop through autograd."""

    HOOK = "hook"
    """A hook of a tensor, a node of the graph or a module."""
    UNPACK_HOOK = "unpack_hook"
    """The hook that would unpack what a node saved."""
    FUNCTION = "function"
    TENSOR = "tensor"
    NODE = "node"
    """A node of the graph."""
    CONTEXT = "context"
    """The ``ctx`` of a custom function, which is a node too."""
    OBJECT = "object"
    GAP = "gap"
    """Further nodes, which are not listed."""


class LoopStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a loop; it refers to the next, the last to the first."""

    kind: StepKind
    name: str
    """Of a function its qualified name, of a node its type, of others what the step before calls
    it, or the type."""
    file: str = ""
    """Of a function: where it begins."""
    line: Whole = 0


class CensusRow(msgspec.Struct, frozen=True, kw_only=True):
    """All objects that share a path pattern: one object, or the varying elements of a container."""

    path: str
    """The full pattern from the root: ``main()·trainer.history[*]['pred']``."""
    name: str
    """As a person would say it: ``Trainer.history[*]['pred']``."""
    root: RootKind
    owner: Owner | None = None
    type: str
    """Qualified type of the objects: ``list``, ``torch.Tensor``, ``__main__.Trainer``."""
    kind: str
    """The type in general terms: ``list``, ``dict``, ``set``, ``deque``, ``tuple``, ``tensor``,
    ``graph`` (a tensor that keeps an autograd graph), ``array``, ``bytes``, ``str``, ``object``,
    ``module`` (nn.Module), ``optimizer``, ``function``, ``lru_cache``, ``queue``, ``image``,
    ``figure``, ``generator``, ``traceback``, ``compiled`` (what ``torch.compile`` keeps of a
    function), ``other``."""
    role: str = "other"
    """The component it is part of: ``parameters``, ``buffers``, ``gradients``,
    ``optimizer_state``, ``graph``, ``batch``, ``accumulation``, ``cache``, ``code``, ``other``."""
    user: bool = True
    """Whether the root belongs to the user's own code."""
    host_bytes: Whole
    """Retained bytes of host memory: what would be freed if these objects went. Autograd nodes,
    which can't be weighed, are counted with an estimate."""
    device_bytes: dict[str, Whole] = {}
    """Retained bytes per device other than the host, e.g. ``{"cuda:0": 4096}``."""
    shared_bytes: dict[str, Whole] = {}
    """Bytes per device (``host`` included) that are named through these objects but that others
    keep alive too. With the retained bytes they are all that is reached through this name first:
    no byte is counted under two names of one level."""
    recent_bytes: Whole | None = None
    """Of a library's in the first walk of the whole heap: what of the host bytes that are reached
    came since measuring began. None where that is unknown."""
    shared_with: list[str] = []
    """Paths of other growing rows that hold some of the same objects: letting go in one place is
    not enough."""
    also_named: list[str] = []
    """Other names of the same container, as a person would say them."""
    also_held_by: list[str] = []
    """Names, as a person would say them, of other places that hold the same contents, growing or
    not: emptying this one alone frees ``host_bytes`` and ``device_bytes`` only."""
    leak_share_bytes: Whole | None = None
    """Where it shares with others: its even part of every byte they reach between them, on all
    devices. None where nothing is shared."""
    exclusive_bytes: Whole | None = None
    """Where it shares with others: what it alone reaches, on all devices, so what would be freed if
    it let go and the others did not. None where nothing is shared."""
    count: Whole = 1
    """How many objects share the pattern."""
    length: Whole | None = None
    """Items in the containers together, where they have a length."""
    capacity: Whole | None = None
    """The bound that the container itself declares (``deque.maxlen``, ``lru_cache`` maxsize), or
    dynamo's limit of entries for a function."""
    hits: Whole | None = None
    """Of an ``lru_cache``: how many calls it has answered."""
    graph_nodes: Whole = 0
    """Autograd nodes among what is retained."""
    made: list[Whole] = []
    """Of a tensor that keeps a graph: the numbers of its oldest and youngest node, which torch
    gives in the order of making; empty where they aren't known."""
    unused_bytes: dict[str, Whole] = {}
    """Part of the retained bytes per device (``host`` included) that no tensor or array can read
    any more: a slice keeps the whole storage of what it was cut from."""
    cycle: list[str] = []
    """Of garbage: the circle that keeps it from being freed at once, a step each, such as
    ``Trainer.model`` and ``Model.trainer``."""
    loop: list[LoopStep] = []
    """Of what only native code holds: the loop through autograd by which it holds itself, where one
    was looked for and found."""
    copied_share: float | None = None
    """In a worker, of a container with many objects: the part of them, 0 to 1, that lies in memory
    of this process alone. What a forked worker inherited begins near 0 and is copied as it is
    looked at; what it made itself is its own from the beginning. None where that is unknown."""
    holds: list[Content] = []
    parent: str = ""
    """Path of the nearest row through which this one is named; empty under a root. All rows that
    retain this one are among the parents of its parents."""
    allocated_at: list[Site] = []
    """Where the contents were allocated; only in censuses taken inside a tracemalloc window."""
    inserted_at: list[Site] = []
    """The user's lines at which the container last made room for more items, as the block of its
    own table tells; only in censuses taken inside a tracemalloc window."""
    items_made_at: list[Site] = []
    """The user's lines that made the latest items, whatever hangs below them; only in censuses
    taken inside a tracemalloc window."""


class HeadObjects(msgspec.Struct, frozen=True, kw_only=True):
    """New objects of one type to which somebody refers whom no walk can see: no name leads there,
    and they have more references than were found.
    """

    type: str
    count: Whole
    bytes: Whole
    """Host bytes that are reached through them first."""
    least_references: Whole
    most_references: Whole
    """How many such references one of them has."""


class WaitKind(str, Enum):
    """What waits."""

    TASK = "task"
    """A task of asyncio."""
    THREAD = "thread"


class WaitPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where some of a group wait."""

    count: Whole
    file: str
    """Of the innermost line of the user's; of a library's where there is none."""
    line: Whole
    function: str
    at: str = ""
    """The library's function that is called or awaited there, such as ``asyncio.sleep``; empty
    where it is not written in Python."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks or threads that are alive and run the same function."""

    kind: WaitKind
    name: str
    """The function: the outermost of the user's, ``Service.heartbeat``; else a library's."""
    file: str
    line: Whole
    """The first line of the function."""
    count: Whole
    lost: Whole = 0
    """How many of them nothing else can wake: nobody else refers to what they wait for."""
    places: list[WaitPlace] = []
    """Where they wait, the most frequent first."""

    @property
    def key(self) -> str:
        """What identifies the group between censuses, wherever the program's folder lies."""
        return f"{self.kind.value} {self.name} {self.file.rpartition('/')[2]}:{self.line}"


class CensusScope(str, Enum):
    """How much of the heap was walked."""

    FOCUSED = "focused"
    """What the user's own names reach; library, native and garbage rows are absent."""
    FULL = "full"


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """The heap at one boundary. Rows of one path are comparable between censuses.

    A path that is absent retained less than ``cutoff_bytes`` there, or did not exist. Rows under
    user roots mean the same in both scopes: everything that the user's names reach is theirs.
    """

    scope: CensusScope
    rows: list[CensusRow]
    cutoff_bytes: Whole
    objects: Whole
    """Objects walked."""
    heap_bytes: Whole
    """Shallow bytes of the Python objects walked, payloads excluded."""
    payload_bytes: dict[str, Whole] = {}
    """Bytes of tensor storages and buffers per device, ``host`` included. Of the host's, ``shared``
    is listed separately; rows and components count it as ``host``. ``file`` counts mapped files,
    which no row retains: they are not the process's memory."""
    graph_bytes: dict[str, Whole] = {}
    """The part of the payload that only autograd graphs hold, per device."""
    graph_truncated: bool = False
    """Whether more autograd nodes were alive than a walk enters: what keeps graphs is larger than
    its row says."""
    garbage_bytes: Whole | None = None
    """Unreached bytes awaiting the collector (host); in a focused census, those that are new."""
    elsewhere_bytes: Whole | None = None
    """Host bytes of what is new since the first census and no name of the user's reaches, garbage
    apart: libraries or native code hold it. None in the first, and where that is unknown."""
    elsewhere_types: dict[str, Whole] = {}
    """Of these, the heaviest by type; a storage counts for the tensor that leads to it."""
    elsewhere_sites: list[Site] = []
    """While allocations are traced: the user's lines below which the latest of these were made."""
    elsewhere_heads: list[HeadObjects] = []
    """Of what is new outside the user's names, its heads by type, the heaviest first: libraries or
    native code refer to them."""
    native_heads: list[HeadObjects] = []
    """In a full census: those of them to which native code alone refers."""
    frozen_gradient_bytes: dict[str, Whole] = {}
    """Gradients of parameters that don't require any, per device: no optimizer step reads them."""
    components: dict[str, dict[str, Whole]] = {}
    """Bytes by role, then by device (``host``, ``cuda:0``, …)."""
    pause_s: Seconds = 0.0
    """How long the whole process stood still."""
    collections: Whole | None = None
    """Collections of garbage that had been run by then, as the gauge counts them."""
    walker: str = "reference"
    """``native`` or ``reference``."""
    whole: bool = False
    """Of a full census: whether every object was walked. Others go on from what an earlier one has
    sealed: they look at what is new and at what changed, and their sums count the rest."""
    sealed: Whole = 0
    """Objects that are sealed after this census."""
    waiting: list[Waiting] = []
    """Tasks and threads that run the same function, the most numerous first."""
    native_bytes: Whole | None = None
    """Host bytes that only native code holds; None in a focused census."""
    drift_bytes: dict[str, int] | None = None
    """Where a whole census was taken to check those that go on from a seal: what such a one, taken
    at the same moment, counted more: of ``heap`` and ``native`` bytes, and of the ``row`` that
    differs most among those that both have. None in others."""


OUTPUT_HISTORY = "the notebook's output history Out"
"""How the container is called in which IPython keeps what cells displayed."""
REMEDY = (
    "A cell's last expression is displayed and kept, as Out[3] and _3, until the kernel ends. End "
    "the line with a semicolon, or assign to a name and del it; Out.clear() or %reset -f out lets "
    "go of what is kept already."
)


def cells_of_shell() -> dict[str, int]:
    """Return the cells that IPython has run, by what it calls their code: the number of each."""
    shells = sys.modules.get("IPython.core.interactiveshell")
    kind = getattr(shells, "InteractiveShell", None)
    shell = getattr(kind, "_instance", None)
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", None)
    return numbers if isinstance(numbers, dict) else {}


PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
"""What the path of an installed source file has in it, mostly."""
_METADATA = ".dist-info"
_installed: dict[str, frozenset[str]] = {}


def is_installed(file: str) -> bool:
    """Return whether a source file was installed with a package.

    It lies in ``site-packages``, or where ``pip install --target`` put it: in a folder of
    ``sys.path`` that has pip's own records of it.
    """
    if any(part in file for part in PACKAGES):
        return True
    for folder in sys.path:
        if type(folder) is str and folder and file.startswith(folder.rstrip(os.sep) + os.sep):
            name = file[len(folder.rstrip(os.sep)) + 1 :].partition(os.sep)[0]
            if name in _installed_in(folder):
                return True
    return False


def package_paths(project_root: str = "") -> list[str]:
    """Return what the paths of source files begin with that were installed below a root, elsewhere
    than in ``site-packages``; by default below any.
    """
    root = project_root.rstrip(os.sep)
    beginnings = []
    for folder in sys.path:
        is_other = type(folder) is str and not any(part in f"{folder}{os.sep}" for part in PACKAGES)
        if is_other and folder.rstrip(os.sep) == root:
            beginnings += [os.path.join(root, name) for name in sorted(_installed_in(folder))]  # noqa: PTH118
        elif is_other and folder.startswith(root + os.sep) and _installed_in(folder):
            beginnings.append(folder.rstrip(os.sep) + os.sep)
    return beginnings


def _installed_in(folder: str) -> frozenset[str]:
    """Return the first parts of the paths that packages have in a folder."""
    found = _installed.get(folder)
    if found is None:
        found = _installed[folder] = frozenset(_first_parts(folder))
    return found


def _first_parts(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except ours(OSError):
        return
    for name in names:
        if not name.endswith(_METADATA):
            continue
        try:
            record = os.path.join(folder, name, "RECORD")  # noqa: PTH118
            with open(record, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
                yield from {line.partition("/")[0].partition(",")[0] for line in lines}
        except ours(OSError):
            continue  # not every installer leaves one
