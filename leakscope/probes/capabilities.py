"""What this machine tells of memory, and what that means for a recording."""

from __future__ import annotations

import os
from pathlib import Path

from leakscope.model.documents import Item, State
from leakscope.model.text import human_bytes
from leakscope.probes.cgroup import limiting_group, memory_events, memory_limit
from leakscope.probes.environment import environment
from leakscope.probes.malloc import MallocProbe

_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SETTINGS = ("MALLOC", "PYTORCH", "PYTHONMALLOC", "GLIBC", "LD_PRELOAD", "CUDA", "OMP")
_COSTLY = {
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "torch's cache of device memory is switched off: slow, and "
    "nothing is told of it.",
    "CUDA_LAUNCH_BLOCKING": "Every kernel is waited for: times say nothing.",
    "PYTHONMALLOC": "Python's own allocator is replaced: objects cost more, and the C heap more.",
}


def memory_abilities(proc: Path = Path("/proc/self")) -> list[Item]:
    """Return what can be measured of memory here; asks nothing of torch or of a GPU."""
    facts = environment()
    return [
        _limit(),
        _kills(),
        _shared(proc),
        _page_map(proc),
        _c_heap(facts),
        _huge_pages(_HUGE_PAGES),
        Item(name="processors", state=State.OK, text=facts.get("processors", "not told")),
        *_variables(facts),
    ]


def _limit() -> Item:
    total, limit = memory_limit()
    group = limiting_group()
    if limit is None:
        return Item(
            name="memory limit",
            state=State.MISSING,
            text="neither the machine nor a control group tells one",
            advice="There is no forecast of when host memory runs out.",
        )
    bound = group is not None and group.limit() == limit
    whose = f"control group {group.path}" if bound and group else "the machine's memory"
    text = f"{human_bytes(limit)}, {whose}"
    if bound and total is not None:
        text += f" (the machine has {human_bytes(total)})"
    return Item(name="memory limit", state=State.OK, text=text)


def _kills() -> Item:
    return _ability(
        "kills for memory",
        memory_events().oom_kills is not None,
        "the kernel counts them",
        "the kernel doesn't count them",
        "A kill for want of memory can't be told from another one.",
    )


def _shared(proc: Path) -> Item:
    path = proc / "smaps_rollup"
    return _ability(
        "own and shared",
        _is_read(path),
        f"{path} tells",
        f"no {path}",
        "What processes share counts for each of them. Linux 4.14 has it.",
    )


def _page_map(proc: Path) -> Item:
    path = proc / "pagemap"
    return _ability(
        "page map",
        _is_read(path),
        f"{path} tells",
        f"{path} can't be read",
        "What forked workers copy by looking at it isn't told from leaks: mount /proc.",
    )


def _ability(name: str, is_there: bool, there: str, missing: str, advice: str) -> Item:
    if is_there:
        return Item(name=name, state=State.OK, text=there)
    return Item(name=name, state=State.MISSING, text=missing, advice=advice)


def _c_heap(facts: dict[str, str]) -> Item:
    name, libc = "C heap", facts.get("libc", "")
    allocator = facts.get("allocator", "")
    allocator = libc if allocator in {"", "glibc"} else allocator
    if MallocProbe().read():
        return Item(name=name, state=State.OK, text=f"{allocator} tells what it keeps free")
    return Item(
        name=name,
        state=State.MISSING,
        text=f"{allocator or 'this C library'} doesn't tell what it keeps free",
        advice="Growth by fragmentation shows as unexplained. Run once with glibc's malloc.",
    )


def _huge_pages(path: Path) -> Item:
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        text = ""
    chosen = text.partition("[")[2].partition("]")[0] or "not told"
    always = chosen == "always"
    return Item(
        name="huge pages",
        state=State.NOTE if always else State.OK,
        text=chosen,
        advice="Resident memory grows in steps of whole huge pages, often ahead of what is used."
        if always
        else "",
    )


def _variables(facts: dict[str, str]) -> list[Item]:
    found = [Item(name=name, state=State.NOTE, text=facts[name], advice=_COSTLY.get(name, ""))
             for name in facts if name.startswith(_SETTINGS)]  # fmt: skip
    if os.environ.get("PYTHONTRACEMALLOC", "0") not in ("", "0"):
        text = "tracemalloc runs from the start: allocations cost several times as much."
        value = os.environ["PYTHONTRACEMALLOC"]
        found.append(Item(name="PYTHONTRACEMALLOC", state=State.NOTE, text=value, advice=text))
    return found


def _is_read(path: Path) -> bool:
    try:
        with path.open("rb", buffering=0) as stream:
            return len(stream.read(8)) == 8
    except OSError:
        return False
