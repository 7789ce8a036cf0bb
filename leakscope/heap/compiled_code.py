"""What ``torch.compile`` keeps: the entries of dynamo's cache, by the function that was compiled;
Inductor's processes and captured graphs.

Dynamo hangs a list of entries on each code object that it has compiled: guards, the compiled
bytecode and, as a global of the module, what that calls (torch/_dynamo/cache_size.py,
torch/csrc/dynamo/extra_state.cpp). A code object shows nobody what hangs on it, so that all of it
would be held by native code only. Read is what dynamo offers for looking at it; no guard is
evaluated and nothing is compiled. Versions differ: what one doesn't have is left out.

Each code object has a limit of its own. Functions that are made from one ``def`` share their code;
what ``exec`` makes doesn't.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from mmap import PAGESIZE
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from leakscope.heap.anatomy import attempt, instance_dict
from leakscope.model.errors import ours
from leakscope.model.record import CapturedGraphs, CompiledFunction

MARK = "torch.compile"
"""Where paths of compiled code begin, as ``torch.compile·criterion``."""
DEFAULT_LIMIT = 8
USUAL_CAP = 256
"""What torch allows for a code object at most (``accumulated_recompile_limit``). A program that has
raised the limit beyond has taken the bound away."""
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")
_MADE_GLOBALS = ("__compiled_fn_", "__resume_at_")
"""Names that dynamo gives to what compiled bytecode calls, among the globals of its module."""
_AROUND_MODULES = "torch/_dynamo/external_utils.py"
_MOST_CODES = 5000
_MOST_SIZES = 2
MOST_FUNCTIONS = 200


class CachedCode(NamedTuple):
    """A code object that has entries in dynamo's cache."""

    code: CodeType
    entries: list[Any]

    def parts(self) -> Iterator[Any]:
        """Yield the objects of its entries through which a walk finds all the others."""
        for entry in self.entries:
            guards = attempt(getattr, entry, "guard_manager") or attempt(getattr, entry, "check_fn")
            if guards is not None:
                yield guards
            compiled = attempt(getattr, entry, "code")
            names = _globals_of(guards)
            for name in compiled.co_names if type(compiled) is CodeType else ():
                if is_made_by_dynamo(name) and name in names:
                    yield names[name]


def _globals_of(guards: object) -> dict[str, Any]:
    scope = (instance_dict(guards) or {}).get("global_scope")
    names = scope.get("G", scope) if type(scope) is dict else None
    return names if type(names) is dict else {}


class Limits(NamedTuple):
    """How many entries dynamo allows."""

    each: int
    """For a code object whose guards name no module."""
    together: int
    """For a code object, whatever its guards name."""
    is_error: bool
    """Whether a program fails there; else what was compiled is used where it fits, and the rest
    runs as it is."""

    @property
    def bound(self) -> int | None:
        """The bound of one code object, None where the program has taken it away."""
        return self.each if self.each <= USUAL_CAP else None


def is_made_by_dynamo(name: str) -> bool:
    """Return whether a global was not written by the user, but by dynamo."""
    return name.startswith(_MADE_GLOBALS)


def spoken_name(name: str, file: str = "") -> str:
    """Return how the function is called; of what goes on behind a graph break, from which line."""
    if file.endswith(_AROUND_MODULES):
        return "torch.nn modules"
    found = _RESUMED.fullmatch(name)
    return f"{spoken_name(found[1])} from line {found[2]}" if found else name


def compiled_code() -> list[CachedCode]:
    """Return the code objects that have entries; none where nothing was compiled."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    core: Any = sys.modules.get("torch._C")
    if frames is None or core is None:
        return []
    try:
        entries_of = core._dynamo.eval_frame._debug_get_cache_entry_list
        seen = list(frames.input_codes.seen)
    except ours(Exception):  # another version
        return []
    found = []
    for reference in reversed(seen[-_MOST_CODES:]):
        code = reference()
        if type(code) is not CodeType:
            continue
        try:
            entries = list(entries_of(code))
        except ours(Exception):
            return []
        if entries:
            found.append(CachedCode(code, entries))
    return found[::-1]


def limits() -> Limits:
    """Return dynamo's limits as they are set now."""
    config = sys.modules.get("torch._dynamo.config")
    fails = ("fail_on_recompile_limit_hit", "fail_on_cache_limit_hit", "error_on_recompile")
    together = ("accumulated_recompile_limit", "accumulated_cache_size_limit")
    return Limits(
        _number(config, ("recompile_limit", "cache_size_limit"), DEFAULT_LIMIT),
        _number(config, together, USUAL_CAP),
        bool(_number(config, fails, 0)),
    )


def _number(config: object, names: tuple[str, ...], default: int) -> int:
    for name in names:
        value = attempt(getattr, config, name)
        if isinstance(value, int):
            return int(value)
    return default


def functions() -> list[CompiledFunction]:
    """Return the functions that have entries, those with most first."""
    found: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for code, in_cache in compiled_code():
        name = spoken_name(code.co_name, code.co_filename)
        found[name, code.co_filename, code.co_firstlineno].append(len(in_cache))
    functions = [
        CompiledFunction(
            function=name,
            file=file,
            line=line,
            entries=sum(entries),
            most=max(entries),
            codes=len(entries),
        )
        for (name, file, line), entries in found.items()
    ]
    return sorted(functions, key=lambda each: -each.entries)


def workers() -> tuple[int, int]:
    """Return how many processes of Inductor's there are, and their resident bytes."""
    pools = getattr(sys.modules.get("torch._inductor.async_compile"), "_pool_set", None)
    found: set[int] = set()
    try:
        for pool in list(pools or ()):
            process = getattr(pool, "process", None)  # which starts the others
            if process is not None and process.returncode is None:
                tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
                children = (child for task in tasks for child in task.read_text().split())
                found |= {process.pid, *map(int, children)}
            found.update(getattr(pool, "_processes", None) or ())
    except ours(Exception):  # another version, or the pool is about to change
        return 0, 0
    sizes = [size for pid in found if (size := _resident(pid))]
    return len(sizes), sum(sizes)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGESIZE
    except ours(OSError, IndexError):
        return 0


def ends_idle_workers() -> bool:
    """Return whether Inductor's processes end when they have been idle for a while."""
    config = sys.modules.get("torch._inductor.config")
    return bool(attempt(getattr, config, "quiesce_async_compile_pool"))


def captured_graphs() -> list[CapturedGraphs]:
    """Return how many CUDA graphs were recorded, by the form of what they return."""
    trees: Any = sys.modules.get("torch._inductor.cudagraph_trees")
    found: Counter[tuple[str, str]] = Counter()
    try:
        containers = dict(getattr(getattr(trees, "local", None), "tree_manager_containers", {}))
        for device, container in containers.items():
            roots = getattr(container.tree_manager, "roots", {})
            waiting = [node for nodes in roots.values() for node in nodes]
            while waiting:
                node = waiting.pop()
                waiting += [child for nodes in node.children.values() for child in nodes]
                sizes = [
                    "x".join(str(int(size)) for size in form["size"])
                    for form in node.outputs_metadata
                    if type(form) is dict and "size" in form
                ]
                found[f"cuda:{device}", ", ".join(sizes[:_MOST_SIZES])] += 1
    except ours(Exception):  # another version
        return []
    return [
        CapturedGraphs(device=device, shapes=shapes, graphs=count)
        for (device, shapes), count in found.most_common(MOST_FUNCTIONS)
    ]
