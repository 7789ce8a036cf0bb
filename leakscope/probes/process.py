"""A process as the kernel sees it: resident memory, its division, children, threads, open files,
signals; this process, or another from outside.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil

from leakscope.model import gauge
from leakscope.model.errors import ours
from leakscope.probes import GuardedProbe, content
from leakscope.probes.cgroup import MemoryEvents, limiting_group, memory_events

_IS_LINUX = sys.platform.startswith("linux")
_STATM_FIELDS = 7
_STATUS = Path("/proc/self/status")
_SHM = "/dev/shm"  # noqa: S108
_DEVICES = "/dev"
_MOST_DESCRIPTORS = 8192
_FILES_IN_SHM = f"{_SHM}/"
_MEMFD = "/memfd:"
"""What links of descriptors begin with that ``memfd_create`` returned."""
_UNREAD = "unread"
"""Stands for links of descriptors beyond ``_MOST_DESCRIPTORS``."""
_MAPS = Path("/proc/self/maps")
_MADE_BY_TORCH = re.compile(r"torch_(\d+)_")
_TASKS = "/proc/self/task"
_BLOCK = 512
"""Of ``st_blocks``, whatever the file system's own blocks are."""


class ProcessProbe(GuardedProbe):
    """Resident memory: on Linux from ``/proc/self/statm``, some microseconds.

    Where the machine swaps, what of the process is swapped out as well: what leaks is touched by
    nobody and goes first, so that resident memory no longer grows.
    """

    name = "process"

    def __init__(self) -> None:
        self._page = os.sysconf("SC_PAGE_SIZE") if _IS_LINUX else 0
        self._fd = -1
        self._pid = -1
        self._peak = PeakReader()
        self._swaps = _IS_LINUX and machine_swaps()

    def _measure(self) -> dict[str, int]:
        if not _IS_LINUX:
            return {gauge.RSS: psutil.Process().memory_info().rss}
        resident, mapped = self._pages()
        found = {
            gauge.RSS: resident * self._page,
            gauge.RSS_PEAK: self._peak.read(),
            gauge.MAPPED: mapped * self._page,
        }
        if self._swaps and (swapped := swapped_bytes(_STATUS)) is not None:
            found[gauge.SWAPPED] = swapped
        return found

    def _pages(self) -> tuple[int, int]:
        # The descriptor names the process that opened it, so a forked child needs its own; and a
        # program that closes all descriptors may since have given its number to another file.
        fields = self._fields() if self._pid == os.getpid() else []
        if len(fields) != _STATM_FIELDS:
            self._fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            self._pid = os.getpid()
            fields = self._fields()
        return int(fields[1]), int(fields[2])

    def __del__(self) -> None:
        """Close the descriptor, if it is still ours in this process."""
        try:
            if self._pid == os.getpid() and os.readlink(f"/proc/self/fd/{self._fd}") == (  # noqa: PTH115
                f"/proc/{self._pid}/statm"
            ):
                os.close(self._fd)
        except Exception:  # another /proc, or the interpreter is ending
            return

    def _fields(self) -> list[bytes]:
        try:
            fields = os.pread(self._fd, 256, 0).split()
        except ours(OSError):
            return []
        return fields if all(field.isdigit() for field in fields) else []


def machine_swaps(table: Path = Path("/proc/swaps")) -> bool:
    """Return whether the machine has somewhere to swap to: a line for each place, below a head."""
    return len(content(table).splitlines()) > 1


def swapped_bytes(status: Path) -> int | None:
    """Return what of a process's own memory is swapped out; None where the kernel doesn't tell."""
    return _in_status(status, b"VmSwap:")


def _in_status(status: Path, field: bytes) -> int | None:
    found = re.search(rb"^%b\s+(\d+)" % field, content(status), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


class PeakReader:
    """The kernel's mark of the highest resident memory of this process.

    ``getrusage`` returns it in a microsecond, but where the program that executed this one had a
    higher mark, it returns that one until this process rises above it.
    """

    def __init__(self) -> None:
        self._inherited = self._at_first = 0
        self._pid = -1

    def read(self) -> int:
        """Return the mark, in bytes, or less than it where it isn't known yet.

        It falls where the program sets it back.
        """
        peak = _peak_by_getrusage()
        if self._pid != os.getpid():
            self._pid, self._inherited = os.getpid(), peak
            self._at_first = peak_resident() or 0
        return self._at_first if peak == self._inherited else peak


def peak_resident() -> int | None:
    """Return the highest resident memory so far, in bytes; None where the system doesn't report it.

    ``VmHWM`` in ``/proc/self/status``, elsewhere ``getrusage``.
    """
    return _in_status(_STATUS, b"VmHWM:") or _peak_by_getrusage() or None


def _peak_by_getrusage() -> int:
    try:
        import resource  # there is none on Windows
    except ours(ImportError):
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class MappingProbe(GuardedProbe):
    """How resident memory divides into shared and own, from ``/proc/self/smaps_rollup``.

    The kernel visits every page table to answer: milliseconds in a process of many gigabytes.
    """

    name = "mappings"
    slow = True

    def _measure(self) -> dict[str, int]:
        return divided(read_rollup("self"))


class SystemProbe(GuardedProbe):
    """Threads and open files of the process, shared memory and memory left on the machine."""

    name = "system"
    slow = True

    def __init__(self) -> None:
        self._begun = time.time()
        self._older: set[str] = set()
        """Files in shared memory that were there before, or are somebody else's."""

    def _measure(self) -> dict[str, int]:
        tasks = os.listdir(_TASKS) if _IS_LINUX else ()  # noqa: PTH208
        gauges = {
            gauge.THREADS: len(tasks) if _IS_LINUX else threading.active_count(),
            gauge.SYSTEM_AVAILABLE: psutil.virtual_memory().available,
        }
        if _IS_LINUX:
            links = read_links()
            gauges |= open_files(links)
            gauges |= shared_memory(self._begun, self._older)
            gauges[gauge.SHM_UNMAPPED] = unmapped_shared_memory(links, self._begun)
        return gauges


def read_rollup(pid: int | str) -> dict[str, int]:
    """Return the sums over all mappings of a process, in bytes, by the kernel's field names."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_bytes()
    fields = (line.split() for line in text.splitlines())
    return {f[0][:-1].decode(): int(f[1]) * 1024 for f in fields if f[-1] == b"kB"}


def divided(rollup: dict[str, int]) -> dict[str, int]:
    """Return the gauges of proportional, private and shared memory that such sums give."""
    return {
        gauge.PSS: rollup["Pss"],
        gauge.PRIVATE: rollup["Private_Clean"] + rollup["Private_Dirty"],
        gauge.PRIVATE_DIRTY: rollup["Private_Dirty"],
        gauge.SHARED: rollup["Shared_Clean"] + rollup["Shared_Dirty"],
        gauge.HUGE_PAGES: rollup.get("AnonHugePages", 0),
    }


def open_files(links: Mapping[str, str]) -> dict[str, int]:
    """Return how many descriptors are open, how many of those in shared memory, and the limit.

    A tensor that another process sent keeps the descriptor of its memory as long as it lives.
    """
    gauges = {
        gauge.OPEN_FILES: len(links),
        gauge.SHARED_DESCRIPTORS: sum(link.startswith(_FILES_IN_SHM) for link in links.values()),
    }
    import resource  # there is none on Windows

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return gauges | ({gauge.OPEN_FILES_LIMIT: limit} if limit > 0 else {})


def read_links() -> dict[str, str]:
    """Return the descriptors that are open, with what each leads to: of very many the first."""
    descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208
    links = {each: _link(each) for each in descriptors[:_MOST_DESCRIPTORS]}
    # That by which the folder is read is among them, and closed since.
    links |= dict.fromkeys(descriptors[_MOST_DESCRIPTORS:], _UNREAD)
    return {each: link for each, link in links.items() if link}


def _link(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
    except ours(OSError):
        return ""


def unmapped_shared_memory(links: Mapping[str, str], since: float) -> int:
    """Return the bytes of shared memory that this process keeps though it hasn't mapped them.

    What was sent to another process and not received yet is kept so: it is no part of any process's
    memory. Files without a name count where a descriptor leads to them, each once; files with a
    name where torch made them in this process since a time, by its sharing strategy
    ``file_system``.
    """
    has_files = _is_mounted()
    kept = _nameless_files(links, (_FILES_IN_SHM, _MEMFD) if has_files else (_MEMFD,))
    kept |= _own_files_of_torch(since) if has_files else {}
    for file in _mapped_shared_files() if kept else ():
        kept.pop(file, None)
    return sum(kept.values())


_File = tuple[int, int]
"""Device and inode."""


def _nameless_files(links: Mapping[str, str], places: tuple[str, ...]) -> dict[_File, int]:
    found = {}
    for descriptor, link in links.items():
        if link.startswith(places):
            try:
                status = os.fstat(int(descriptor))
            except ours(OSError):  # closed meanwhile
                continue
            if not status.st_nlink:
                found[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
    return found


def _own_files_of_torch(since: float) -> dict[_File, int]:
    user, begins = os.geteuid(), f"torch_{os.getpid()}_"
    return {
        (status.st_dev, status.st_ino): status.st_blocks * _BLOCK
        for _, status in _looked_up(name for name in _names_in_shm() if name.startswith(begins))
        if status.st_uid == user and status.st_ctime >= since
    }


def _names_in_shm() -> list[str]:
    return os.listdir(_SHM)  # noqa: PTH208


def _looked_up(names: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files in shared memory of these names, but those that are gone meanwhile."""
    for name in names:
        try:
            status = os.lstat(f"{_FILES_IN_SHM}{name}")
        except ours(OSError):
            continue
        yield name, status


def _mapped_shared_files() -> Iterator[_File]:
    with _MAPS.open("rb") as mappings:
        for line in mappings:
            if b"/dev/shm/" in line or b"/memfd:" in line:
                _, _, _, device, inode, _ = line.split(maxsplit=5)
                major, _, minor = device.partition(b":")
                yield os.makedev(int(major, 16), int(minor, 16)), int(inode)


def shared_memory(since: float, older: set[str] | None = None) -> dict[str, int]:
    """Return what lies in shared memory, and what of it are named files made since a time.

    ``older`` has names of files that don't count, and is kept up to date: they aren't looked at
    again. Each look lets go of the interpreter's lock, for which a busy program makes us wait.

    All of it is the whole machine's or container's: the file system's own count, not a sum over its
    files, for tensors on their way between processes lie in files whose names are removed already.
    """
    if not _is_mounted():
        return {}
    status = os.statvfs(_SHM)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    if not used and older:
        older.clear()  # nothing lies there any more
    return {gauge.SHM: used, gauge.SHM_FILES: _files_made(since, older) if used else 0}


def _is_mounted() -> bool:
    """Return whether a file system of its own stands for shared memory."""
    try:
        return os.stat(_SHM).st_dev != os.stat(_DEVICES).st_dev  # noqa: PTH116
    except ours(OSError):
        return False


def _files_made(since: float, older: set[str] | None) -> int:
    """Return the bytes of this user's named files, less those of programs that run alongside."""
    user, total = os.geteuid(), 0
    known, names = older or set(), set(_names_in_shm())
    passed_over = names & known
    for name, status in _looked_up(names - known):
        if status.st_uid != user or status.st_ctime < since:
            passed_over.add(name)
        elif not _is_of_another_program(name):
            total += status.st_blocks * _BLOCK
    if older is not None:
        older.clear()
        older.update(passed_over)
    return total


def _is_of_another_program(name: str) -> bool:
    """Return whether a process made a file that lives and belongs to no job of this one's.

    ``torch_<process id>_…`` by ``THManagedMapAllocator`` (``aten/src/ATen/MapAllocator.cpp``).
    """
    made_by = _MADE_BY_TORCH.match(name)
    if made_by is None:
        return False
    try:
        return os.getpgid(int(made_by[1])) != os.getpgrp()
    except ours(OSError, OverflowError):  # it has ended, as a worker of ours may have
        return False


class ChildCountProbe(GuardedProbe):
    """Number of all descendants, which is quick to read where Linux lists those of each thread."""

    name = "child count"
    slow = True

    def _measure(self) -> dict[str, int]:
        return {gauge.CHILDREN: len(_descendants())}


class ChildrenProbe(GuardedProbe):
    """Proportional memory of all descendants."""

    name = "children"
    slow = True

    def _measure(self) -> dict[str, int]:
        return {gauge.CHILDREN_PSS: sum(divided_bytes(child)[0] for child in _descendants())}


def _descendants() -> list[psutil.Process]:
    try:
        with os.scandir(_TASKS) as tasks:
            has_any = any(Path(task.path, "children").read_bytes() for task in tasks)
    except ours(OSError):
        has_any = True  # as far as is known
    return psutil.Process().children(recursive=True) if has_any else []


def divided_bytes(child: psutil.Process) -> tuple[int, int]:
    """Return proportional memory, and how much of it are pages of files, as far as it is known.

    Resident memory where the kernel doesn't tell; 0 once the process has ended.
    """
    try:
        rollup = read_rollup(child.pid)
        return rollup["Pss"], rollup.get("Pss_File", 0)
    except ours(OSError, KeyError, ValueError):
        pass
    try:
        return int(child.memory_info().rss), 0
    except psutil.Error:
        return 0, 0


def catches(pid: int, number: int) -> bool | None:
    """Return whether a process has a handler for a signal; None where that is unknown."""
    caught = status_of(pid).get("SigCgt")
    try:
        return None if caught is None else bool(int(caught, 16) >> (number - 1) & 1)
    except ValueError:
        return None


def status_of(pid: int) -> dict[str, str]:
    """Return the fields of ``/proc/PID/status``; none where there is no such process or file."""
    text = content(Path(f"/proc/{pid}/status")).decode(errors="replace")
    fields = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in fields}


class OutsideProcess:
    """Reads the gauges of another process and of all that it started.

    What the kernel hides from this user (another user's pages, for one) is not among them.
    """

    def __init__(self, pid: int, since: float) -> None:
        """Attach to a process; raises ``NoSuchProcess``. Its files are made after ``since``."""
        self._process = psutil.Process(pid)
        self._since = since
        self._proc = Path("/proc") / str(pid)
        self._group = limiting_group(self._proc)

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs; a zombie, which nobody has waited for, does not."""
        try:
            status = self._process.status()  # of whoever has the number now
            return bool(self._process.is_running() and status != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False

    def pids(self) -> set[int]:
        """Return the numbers of the process and its descendants."""
        return {self._process.pid, *(child.pid for child in self._children())}

    def limit(self) -> int | None:
        """Return the memory limit that would kill it, in bytes: its group's or the machine's."""
        total = int(psutil.virtual_memory().total)
        own = None if self._group is None else self._group.limit()
        return total if own is None else min(total, own)

    def events(self) -> MemoryEvents:
        """Return what the kernel counts of its control group, also when the process is gone."""
        return memory_events(self._proc) if self._group is None else self._group.events()

    def gauges(self) -> dict[str, int]:
        """Return what can be read of it now; empty once it is gone."""
        try:
            resident = int(self._process.memory_info().rss)
        except psutil.Error:
            return {}
        children = self._children()
        divided = [divided_bytes(child) for child in children]
        found = {
            gauge.RSS: resident,
            gauge.CHILDREN: len(children),
            gauge.CHILDREN_PSS: sum(whole for whole, _ in divided),
            gauge.SYSTEM_AVAILABLE: int(psutil.virtual_memory().available),
            **self._divided(sum(files for _, files in divided)),
            **self._counted(),
            **self._of_group(),
        }
        if os.path.ismount("/dev/shm"):  # noqa: S108
            found |= shared_memory(self._since)
        return found

    def _children(self) -> list[psutil.Process]:
        try:
            return list(self._process.children(recursive=True))
        except psutil.Error:
            return []

    def _divided(self, files_of_children: int) -> dict[str, int]:
        try:
            rollup = read_rollup(self._process.pid)
            files = rollup.get("Pss_File", 0) + files_of_children
            swapped = {gauge.SWAPPED: rollup["Swap"]} if rollup.get("Swap") else {}
            return divided(rollup) | {gauge.TREE_FILES: files} | swapped
        except ours(OSError, KeyError, ValueError):
            return {}

    def _counted(self) -> dict[str, int]:
        try:
            found = {gauge.THREADS: self._process.num_threads()}
            return {**found, gauge.OPEN_FILES: self._process.num_fds()}
        except psutil.Error:
            return {}

    def _of_group(self) -> dict[str, int]:
        try:
            return {} if self._group is None else self._group.gauges()
        except ours(OSError, ValueError):
            return {}
