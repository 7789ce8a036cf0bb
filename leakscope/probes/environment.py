"""What a reader of the report must know about the machine and the settings it ran under, and what
of memory can be measured there.
"""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from leakscope.model.documents import Item, State
from leakscope.model.errors import ours
from leakscope.model.text import human_bytes
from leakscope.probes import content
from leakscope.probes.cgroup import limiting_group, memory_events, memory_limit
from leakscope.probes.malloc import MallocProbe

_LIBRARIES = (
    "torch", "numpy", "transformers", "lightning", "pytorch-lightning", "accelerate",
    "torchmetrics", "pytorch-ignite", "keras", "peft", "wandb", "pillow", "matplotlib", "aiohttp",
    "beautifulsoup4", "bokeh", "faker", "fsspec", "gymnasium", "hyperopt", "ipywidgets", "jinja2",
    "kombu", "langchain-core", "langgraph-checkpoint", "loguru", "lxml", "marshmallow", "markdown",
    "numba", "openpyxl", "opentelemetry-sdk", "optuna", "prometheus-client", "redis",
    "requests-mock", "responses", "rich", "sqlalchemy", "tensorboard", "tensorboardx",
    "xlsxwriter", "zarr",
)  # fmt: skip
"""Packages that are reported with their versions, where they are installed."""

_SETTINGS = (
    "PYTHONMALLOC", "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_", "GLIBC_TUNABLES", "MALLOC_CONF", "TCMALLOC_RELEASE_RATE",
    "MIMALLOC_PURGE_DELAY", "LD_PRELOAD", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING",
    "OMP_NUM_THREADS", "RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_JOB_ID",
)  # fmt: skip
"""Variables that change how memory is allocated or who shares it. No others are recorded."""


def environment(more: Iterable[str] = (), project: str = "") -> dict[str, str]:
    """Return versions, platform and the settings that bear on memory; imports none of them.

    The versions of ``more`` distributions are recorded too, and the commit of the ``project``.
    """
    facts = {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "platform": _answer(_platform),
        "libc": _answer(lambda: os.confstr("CS_GNU_LIBC_VERSION") or ""),
        "glibc": _answer(lambda: (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")[2]),
        "machine": _answer(_machine),
        "processors": _answer(_processors),
        "gc_thresholds": " ".join(map(str, gc.get_threshold())),
        "gc_enabled": str(gc.isenabled()).lower(),
        "free_threaded": "true" if sysconfig.get_config_var("Py_GIL_DISABLED") else "",
        "huge_pages": _chosen_huge_pages(),
    }
    libraries = [name for name in (*_LIBRARIES, *more) if name not in facts]
    installed = _installed()
    facts |= {name: _answer(partial(_version, name, installed)) for name in libraries}
    facts |= {name: os.environ.get(name, "") for name in _SETTINGS}
    facts |= {"allocator": _answer(_allocator), "mimalloc": _answer(_mimalloc), **_gpus()}
    facts["commit"] = _answer(partial(_commit, Path(project))) if project else ""
    return {name: value for name, value in facts.items() if value}


def _answer(read_fact: Callable[[], str]) -> str:
    try:
        return read_fact()
    except ours(Exception):
        return ""


def _commit(project: Path) -> str:
    """Return the beginning of the commit that is checked out; may raise. git itself is not run."""
    folders = (project, *project.parents)
    git = next(folder / ".git" for folder in folders if (folder / ".git").exists())
    if git.is_file():  # of a further worktree, or of a submodule
        git = git.parent / git.read_text().partition(":")[2].strip()
    shared = git / "commondir"
    places = [git, git / shared.read_text().strip()] if shared.exists() else [git]
    found = (git / "HEAD").read_text().strip()
    if found.startswith("ref:"):
        found = _commit_of_branch(found.partition(":")[2].strip(), places)
    return found[:12] if _IS_COMMIT.fullmatch(found) else ""


def _commit_of_branch(name: str, places: list[Path]) -> str:
    for place in places:
        if (place / name).is_file():
            return (place / name).read_text().strip()
    packed = (places[-1] / "packed-refs").read_text().splitlines()
    return next(line.split()[0] for line in packed if line.endswith(f" {name}"))


_IS_COMMIT = re.compile("[0-9a-f]{40,64}")


def _platform() -> str:
    system = os.uname()
    version = ".".join(system.release.split("-")[0].split(".")[:2])
    return f"{system.sysname} {version} {system.machine}"


def _machine() -> str:
    """Tell machines apart without naming them: reports are passed on."""
    return hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]


def _processors() -> str:
    """Those that this process may use: fewer than the machine's in a container or a batch job."""
    if hasattr(os, "sched_getaffinity"):
        return str(len(os.sched_getaffinity(0)))
    return str(os.cpu_count() or "")


def _version(library: str, installed: Mapping[str, Path]) -> str:
    loaded = sys.modules.get(library)
    version = getattr(loaded, "__version__", None)
    return str(version) if version else _version_in(installed[_normalised(library)])


def _installed() -> dict[str, Path]:
    """Return the metadata of what is installed, by normalised name: the first one found counts.

    ``importlib.metadata`` would parse all of them, descriptions included, which takes longer than
    all the rest of the start.
    """
    found: dict[str, Path] = {}
    for folder in map(Path, dict.fromkeys(sys.path)):
        try:
            entries = list(folder.iterdir())
        except OSError:
            continue
        for entry in entries:
            if entry.suffix in (".dist-info", ".egg-info"):
                found.setdefault(_normalised(entry.stem.partition("-")[0]), entry)
    return found


def _version_in(metadata: Path) -> str:
    """Return the version that a distribution's metadata begins with; may raise."""
    if metadata.is_dir():
        metadata /= "METADATA" if metadata.suffix == ".dist-info" else "PKG-INFO"
    with metadata.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.lower() == "version":
                return value.strip()
            if not line.strip():
                break
    return ""


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _allocator() -> str:
    """Return which malloc the process has: one loaded in the C library's place, or glibc's."""
    text = Path("/proc/self/maps").read_bytes()
    found = [name for name in ("jemalloc", "tcmalloc", "mimalloc") if f"lib{name}".encode() in text]
    if found:
        return " ".join(found)
    return "glibc" if os.confstr("CS_GNU_LIBC_VERSION") else ""


def _mimalloc() -> str:
    """Return the version in the name of mimalloc's library, where that is loaded by itself."""
    found = re.search(rb"libmimalloc\S*\.so\.(\d+(?:\.\d+)*)", Path("/proc/self/maps").read_bytes())
    return found[1].decode() if found else ""


def _gpus() -> dict[str, str]:
    try:
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is None or not cuda.is_initialized():
            return {}
        names = {f"cuda:{i}": cuda.get_device_name(i) for i in range(cuda.device_count())}
        return {**names, "cuda": str(sys.modules["torch"].version.cuda)}
    except Exception:
        return {}


_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SETTINGS_OF_MEMORY = ("MALLOC", "PYTORCH", "PYTHONMALLOC", "GLIBC", "LD_PRELOAD", "CUDA", "OMP")
_COSTLY = {
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "torch's cache of device memory is switched off: slow, and "
    "nothing is reported for it.",
    "CUDA_LAUNCH_BLOCKING": "Every kernel is waited for: times say nothing.",
    "PYTHONMALLOC": "Python's own allocator is replaced: objects cost more, and the C heap more.",
}


def memory_abilities(proc: Path = Path("/proc/self")) -> list[Item]:
    """Return what can be measured of memory here; asks nothing of torch or of a GPU."""
    facts = environment()
    rollup, page_map = proc / "smaps_rollup", proc / "pagemap"
    return [
        _limit(),
        _ability(
            "kills for memory",
            memory_events().oom_kills is not None,
            "the kernel counts them",
            "the kernel doesn't count them",
            "A kill for want of memory looks like any other.",
        ),
        _ability(
            "own and shared",
            _is_read(rollup),
            f"{rollup} tells",
            f"no {rollup}",
            "What processes share counts for each of them. Linux 4.14 has it.",
        ),
        _ability(
            "page map",
            _is_read(page_map),
            f"{page_map} tells",
            f"{page_map} can't be read",
            "Copies of forked workers can't be distinguished from leaks: mount /proc.",
        ),
        _c_heap(facts),
        _huge_pages(facts.get("huge_pages", "unknown")),
        Item(name="processors", state=State.OK, text=facts.get("processors", "unknown")),
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
    owner = f"control group {group.path}" if bound and group else "the machine's memory"
    text = f"{human_bytes(limit)}, {owner}"
    if bound and total is not None:
        text += f" (the machine has {human_bytes(total)})"
    return Item(name="memory limit", state=State.OK, text=text)


def _ability(name: str, is_there: bool, there: str, missing: str, advice: str) -> Item:
    if is_there:
        return Item(name=name, state=State.OK, text=there)
    return Item(name=name, state=State.MISSING, text=missing, advice=advice)


def _c_heap(facts: dict[str, str]) -> Item:
    allocator = facts.get("allocator", "")
    allocator = facts.get("libc", "") if allocator in {"", "glibc"} else allocator
    return _ability(
        "C heap",
        bool(MallocProbe().read()),
        f"{allocator} tells what it keeps free",
        f"{allocator or 'this C library'} doesn't tell what it keeps free",
        "Growth by fragmentation shows as unexplained. Run once with glibc's malloc.",
    )


def _chosen_huge_pages() -> str:
    """Return ``always``, ``madvise`` or ``never``; empty where the kernel doesn't tell."""
    text = content(_HUGE_PAGES).decode("ascii", errors="replace")
    return text.partition("[")[2].partition("]")[0]


def _huge_pages(chosen: str) -> Item:
    if chosen != "always":
        return Item(name="huge pages", state=State.OK, text=chosen)
    advice = "Resident memory grows in steps of whole huge pages, often ahead of what is used."
    return Item(name="huge pages", state=State.NOTE, text=chosen, advice=advice)


def _variables(facts: dict[str, str]) -> list[Item]:
    found = [Item(name=name, state=State.NOTE, text=facts[name], advice=_COSTLY.get(name, ""))
             for name in facts if name.startswith(_SETTINGS_OF_MEMORY)]  # fmt: skip
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
