"""Resident memory by kind of mapping."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from leakscope.model import gauge
from leakscope.probes import mappings as module
from leakscope.probes.mappings import (
    LEAST_FILE_BYTES,
    MOST_NAMES,
    Mapping,
    MappingKindsProbe,
    classed,
    read_mappings,
)
from leakscope.probes.process import MappingProbe

MB = 1 << 20
ARENA = 64 * MB
PRIVATE, NOBODYS = b"rw-p", b"---p"

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")


def rise(before: dict[str, int], after: dict[str, int]) -> Counter[str]:
    return Counter({kind: after[kind] - before[kind] for kind in gauge.MAPPING_KINDS})


@linux
def test_the_kinds_add_up_to_resident_memory() -> None:
    probe = MappingKindsProbe()
    found = probe.read()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    assert sum(found[kind] for kind in gauge.MAPPING_KINDS) == pytest.approx(resident, abs=4 * MB)


@linux
def test_what_is_shared_and_what_is_not_are_the_sums_that_the_kernel_makes() -> None:
    found, sums = MappingKindsProbe().read(), MappingProbe().read()
    for name in (gauge.PRIVATE, gauge.PRIVATE_DIRTY, gauge.SHARED, gauge.HUGE_PAGES):
        assert found[name] == pytest.approx(sums[name], abs=MB)


def test_what_mimalloc_has_named_is_reported_of_other_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mappings = [
        Mapping(ARENA, ARENA + 8 * MB, PRIVATE, "[anon:mimalloc]", 6 * MB, 6 * MB),
        Mapping(2 * ARENA, 2 * ARENA + MB, PRIVATE, "[anon:other]", MB, MB),
    ]
    monkeypatch.setattr(module, "read_mappings", lambda: iter(mappings))
    found = MappingKindsProbe().read()
    assert found[gauge.MAPPED_MIMALLOC] == 6 * MB
    assert found[gauge.MAPPED_ANONYMOUS] == 7 * MB
    monkeypatch.setattr(module, "read_mappings", lambda: iter(mappings[1:]))
    assert gauge.MAPPED_MIMALLOC not in MappingKindsProbe().read()


@linux
def test_large_private_memory_is_anonymous() -> None:
    probe = MappingKindsProbe()
    before = probe.read()
    with mmap.mmap(-1, 32 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block[:] = bytes(32 * MB)
        after = probe.read()
    assert rise(before, after)[gauge.MAPPED_ANONYMOUS] == pytest.approx(32 * MB, abs=MB)


@linux
@pytest.mark.parametrize("private", [False, True], ids=["shared", "private"])
def test_pages_of_a_file_are_the_files_and_written_copies_are_not(
    private: bool, tmp_path: Path
) -> None:
    path = tmp_path / "data.arrow"
    path.write_bytes(b"x" * (32 * MB))
    probe = MappingKindsProbe()
    before = probe.read()
    access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=access) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE])
        if private:
            mapped[: 8 * MB] = b"y" * (8 * MB)
        after = probe.read()
    copied = 8 * MB if private else 0
    assert rise(before, after)[gauge.MAPPED_FILES] == pytest.approx(32 * MB - copied, abs=2 * MB)
    assert rise(before, after)[gauge.MAPPED_LIBRARIES] == pytest.approx(copied, abs=MB)
    assert after[gauge.mapped_file("data.arrow")] == pytest.approx(32 * MB - copied, abs=2 * MB)


def own_pages_alone(gauges: dict[str, int]) -> bool:
    """Return whether files were not read: what is shared is learned from these only."""
    return gauge.PRIVATE not in gauges


@linux
def test_own_pages_are_read_alone_where_nothing_else_changes() -> None:
    probe = MappingKindsProbe()
    assert not own_pages_alone(probe.read())
    with mmap.mmap(-1, 32 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        for pages in (8, 16, 32):
            block[: pages * MB] = b"x" * (pages * MB)
            found, everything = probe.read(), MappingKindsProbe().read()
            assert own_pages_alone(found)
            differences = rise(found, everything)
            assert max(map(abs, differences.values())) <= MB, differences


@linux
def test_a_little_of_a_file_is_counted_without_its_name(tmp_path: Path) -> None:
    path = tmp_path / "index.bin"
    path.write_bytes(b"x" * (4 * MB))
    probe = MappingKindsProbe()
    before = probe.read()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE])
        after = probe.read()
    assert own_pages_alone(after)
    assert rise(before, after)[gauge.MAPPED_FILES] == pytest.approx(4 * MB, abs=MB)


@linux
def test_pages_that_the_process_has_only_read_are_not_its_own() -> None:
    """They show the kernel's page of zeros: it looks resident, and takes nothing."""
    probe = MappingKindsProbe()
    before = probe.read()
    with mmap.mmap(-1, 32 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        assert not any(block[:: mmap.PAGESIZE])
        after = probe.read()
    assert not own_pages_alone(after)
    assert abs(rise(before, after)[gauge.MAPPED_ANONYMOUS]) < MB


@linux
@pytest.mark.parametrize("share", [0, 1], ids=["no page", "every page"])
def test_a_kernel_that_answers_the_same_for_all_pages_is_not_believed(
    share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_page_counter", lambda: lambda begin, end: (end - begin) * share)
    probe = MappingKindsProbe()
    assert not own_pages_alone(probe.read())
    assert not own_pages_alone(probe.read())


@linux
def test_reserved_address_space_is_not_looked_through() -> None:
    no_reserve = 0x4000  # its name came with CPython 3.13
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    with mmap.mmap(-1, 1 << 36, flags=flags):
        assert module.read_own_pages(0) is None
        probe = MappingKindsProbe()
        assert not own_pages_alone(probe.read())
        assert not own_pages_alone(probe.read())


@linux
def test_everything_is_read_again_as_the_process_grows_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    probe, read_at = MappingKindsProbe(), []
    for now in range(100, 200):
        if not own_pages_alone(probe.read()):
            read_at.append(now - 100)
    assert read_at == [0, 4, 16, 64]


@linux
@pytest.mark.parametrize("named", [True, False], ids=["segment", "without a file"])
def test_shared_memory_is_distinguished_from_files(named: bool) -> None:
    probe = MappingKindsProbe()
    before = probe.read()
    if named:
        segment = SharedMemory(create=True, size=16 * MB)
        segment.buf[:] = bytes(16 * MB)
        after = probe.read()
        segment.close()
        segment.unlink()
    else:
        with mmap.mmap(-1, 16 * MB) as shared:
            shared[:] = bytes(16 * MB)
            after = probe.read()
    assert rise(before, after)[gauge.MAPPED_SHARED] == pytest.approx(16 * MB, abs=MB)


@contextmanager
def threads(number: int, block: int, blocks: int) -> Iterator[None]:
    """Have threads allocate and stay; what they took stays when they end."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    done, ready = threading.Event(), threading.Barrier(number + 1)

    def allocate() -> None:
        for _ in range(blocks):
            ctypes.memset(libc.malloc(block), 1, block)
        ready.wait()
        done.wait()

    started = [threading.Thread(target=allocate) for _ in range(number)]
    for thread in started:
        thread.start()
    ready.wait()
    try:
        yield
    finally:
        done.set()
        for thread in started:
            thread.join()


@linux
@glibc
@pytest.mark.skipif("MALLOC_ARENA_MAX" in os.environ, reason="threads share the main heap")
def test_arenas_of_many_threads_are_one_kind() -> None:
    probe = MappingKindsProbe()
    before = probe.read()
    with threads(6, 60_000, 150):
        after = probe.read()
    gained = rise(before, after)
    # With few processors some threads share an arena, and the first may have the main heap.
    assert gained[gauge.MAPPED_ARENAS] >= 0.6 * 6 * 150 * 60_000
    # Where nothing is free above the main heap, that goes on in other mappings.
    assert gained[gauge.MAPPED_ANONYMOUS] < 2 * MB + 150 * 60_000


def kinds_of(*mappings: Mapping) -> list[str]:
    return [kind.removeprefix("mapped_") for _, kind in classed(mappings)]


def at(begin: int, size: int, permissions: bytes = PRIVATE, name: str = "") -> Mapping:
    return Mapping(begin, begin + size, permissions, name, size, size)


def test_an_arena_is_reported_by_its_address_and_what_is_reserved_behind_it() -> None:
    begin = 5 * ARENA
    arena, rest = at(begin, 3 * MB), at(begin + 3 * MB, ARENA - 3 * MB, NOBODYS)
    assert kinds_of(arena, rest) == ["arenas", "arenas"]
    assert kinds_of(at(begin, ARENA)) == ["arenas"]
    assert kinds_of(at(begin + MB, 2 * MB), rest) == ["anonymous", "anonymous"]
    assert kinds_of(at(begin, 200 * MB)) == ["anonymous"]
    assert kinds_of(at(begin, 3 * MB), at(begin + 9 * ARENA, MB, NOBODYS))[0] == "anonymous"


def test_a_stack_lies_above_a_guard() -> None:
    guard, stack = at(MB, 4096, NOBODYS), at(MB + 4096, 8 * MB)
    assert kinds_of(guard, stack) == ["anonymous", "stacks"]
    assert kinds_of(at(0, MB, NOBODYS), at(MB, 8 * MB)) == ["anonymous", "anonymous"]


def test_the_last_page_that_an_arena_reserves_is_no_guard() -> None:
    begin = 5 * ARENA
    full, rest = at(begin, ARENA - 4096), at(begin + ARENA - 4096, 4096, NOBODYS)
    assert kinds_of(full, rest, at(begin + ARENA, 8 * MB))[-1] == "anonymous"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("[heap]", "heap"),
        ("[stack]", "stacks"),
        ("[anon:jemalloc]", "anonymous"),
        ("/lib/libtorch.so", "libraries"),
        ("/dev/shm/torch_1 (deleted)", "shared"),
        ("/memfd:table (deleted)", "shared"),
        ("/dev/zero (deleted)", "shared"),
        ("/dev/nvidiactl", "devices"),
        ("anon_inode:[dri]", "devices"),
    ],
)
def test_names_of_the_kernel_tell_the_kind(name: str, kind: str) -> None:
    assert kinds_of(at(MB, MB, PRIVATE, name)) == [kind]


def test_small_memory_right_behind_a_library_is_its_variables() -> None:
    library = at(MB, MB, PRIVATE, "/lib/libtorch.so")
    assert kinds_of(library, at(2 * MB, MB))[1] == "libraries"
    assert kinds_of(library, at(2 * MB, 40 * MB))[1] == "anonymous"
    assert kinds_of(library, at(3 * MB, MB))[1] == "anonymous"


SMAPS = """\
00400000-00500000 r-xp 00000000 fe:00 131 {spaces}  {name}
Size:               1024 kB
KernelPageSize:        4 kB
Rss:                 512 kB
Pss:                 300 kB
Shared_Clean:        400 kB
Shared_Dirty:          0 kB
Private_Clean:       104 kB
Private_Dirty:         8 kB
Referenced:          100 kB
Anonymous:            12 kB
KSM:                   0 kB
AnonHugePages:         4 kB
ShmemPmdMapped:        0 kB
THPeligible:           0
VmFlags: rd ex mr
"""


@pytest.mark.parametrize("name", ["", "/data/a b.so", "/data/naïve.so", "/gone (deleted)"])
def test_any_name_is_read(name: str, tmp_path: Path) -> None:
    table = tmp_path / "smaps"
    table.write_text(SMAPS.format(spaces=" " * 20, name=name))
    (mapping,) = read_mappings(table)
    sizes = (size << 10 for size in (512, 12, 112, 8, 4))
    assert mapping == Mapping(0x400000, 0x500000, b"r-xp", name, *sizes)


def test_thousands_of_mappings_are_all_read(tmp_path: Path) -> None:
    table = tmp_path / "smaps"
    table.write_text(SMAPS.format(spaces="", name="/x" * 50) * 3000)
    assert len(list(read_mappings(table))) == 3000


@linux
def test_files_that_are_reported_by_name_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe, reported = MappingKindsProbe(), set()
    for number in range(3 * MOST_NAMES):
        file = Mapping(0, 1, b"r--p", f"/data/{number}.bin", LEAST_FILE_BYTES, 0)
        monkeypatch.setattr("leakscope.probes.mappings.read_mappings", lambda file=file: [file])
        reported |= {name for name in probe.read() if gauge.file_of(name)}
    assert len(reported) == MOST_NAMES


@pytest.mark.parametrize("file", ["data.arrow", "a%2Eb.c", "no dot"])
def test_a_file_is_read_back_from_its_gauge(file: str) -> None:
    name = gauge.mapped_file(file)
    assert "." not in name
    assert gauge.file_of(name) == file
    assert gauge.file_of(gauge.RSS) is None


def test_a_missing_table_yields_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Iterator[Mapping]:
        raise FileNotFoundError

    monkeypatch.setattr("leakscope.probes.mappings.read_mappings", missing)
    assert MappingKindsProbe().read() == {}


@linux
def test_reading_keeps_nothing() -> None:
    probe = MappingKindsProbe()
    for _ in range(5):
        probe.read()
    before = probe.read()[gauge.MAPPED_HEAP]
    for _ in range(60):
        probe.read()
    assert probe.read()[gauge.MAPPED_HEAP] - before < MB
