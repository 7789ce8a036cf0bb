from __future__ import annotations

import ast
import gc
import json
import mmap
import os
import resource
import subprocess
import sys
import time
import types
from pathlib import Path

import psutil
import pytest
import torch

from leakscope.capture.gauges import default_probes
from leakscope.model import gauge
from leakscope.probes import GuardedProbe
from leakscope.probes.interpreter import FiguresProbe, GarbageProbe
from leakscope.probes.process import (
    ChildCountProbe,
    ChildrenProbe,
    MappingProbe,
    ProcessProbe,
    SystemProbe,
    divided,
    machine_swaps,
    shared_memory,
    swapped_bytes,
)

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

MB = 1 << 20


class Broken(GuardedProbe):
    name = "broken"

    def _measure(self):
        raise RuntimeError("the source is gone")


class Missing(GuardedProbe):
    name = "missing"

    def _measure(self):
        raise psutil.AccessDenied


def test_a_fault_of_a_source_costs_its_gauges_only():
    assert Broken().read() == Missing().read() == {}


def test_a_fault_is_reported_to_who_calls_and_a_missing_source_is_none():
    assert Missing().gauges() == {}
    with pytest.raises(RuntimeError):
        Broken().gauges()


SUMMED_IN_TWO_WAYS = {gauge.PRIVATE, gauge.PRIVATE_DIRTY, gauge.SHARED, gauge.HUGE_PAGES}
"""By the kernel where pages are divided among processes, and from its table of mappings."""


def test_every_probe_reads_whole_numbers_under_known_names_and_never_twice_the_same():
    seen: set[str] = set()
    for probe in default_probes():
        gauges = probe.read()
        assert all(type(value) is int for value in gauges.values()), probe.name
        assert all(gauge.describe(name)[1] for name in gauges), probe.name
        assert seen & set(gauges) <= SUMMED_IN_TWO_WAYS, probe.name
        seen |= set(gauges)
    assert {gauge.RSS, gauge.GC_COLLECTIONS, gauge.THREADS} <= seen


def test_probes_have_names_of_their_own():
    names = [probe.name for probe in default_probes()]
    assert len(names) == len(set(names)) >= 10


def test_probes_import_neither_torch_nor_matplotlib():
    code = (
        "import sys; from leakscope.probes.cuda import device_snapshots;"
        "from leakscope.capture.gauges import default_probes;"
        "from leakscope.probes.environment import environment;"
        "[p.read() for p in default_probes()]; environment(); device_snapshots();"
        "print([m for m in ('torch', 'matplotlib', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_resident_memory_follows_what_the_process_touches():
    probe = ProcessProbe()
    before = probe.read()[gauge.RSS]
    assert before == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)
    with mmap.mmap(-1, 32 * MB) as block:  # bytes of malloc's may have been resident before
        block.write(b"x" * (32 * MB))
        assert 28 * MB < probe.read()[gauge.RSS] - before < 80 * MB


@linux
def test_the_highest_resident_memory_is_that_of_memory_that_was_released():
    probe = ProcessProbe()
    before = probe.read()
    with mmap.mmap(-1, 256 * MB) as block:
        block.write(b"x" * (256 * MB))
    after = probe.read()
    assert after[gauge.RSS] - before[gauge.RSS] < 64 * MB
    assert after[gauge.RSS_PEAK] >= max(before[gauge.RSS] + 240 * MB, before[gauge.RSS_PEAK])


@linux
def test_the_highest_resident_memory_is_not_that_of_what_executed_the_program():
    reads = "from leakscope.probes.process import ProcessProbe; print(ProcessProbe().read())"
    executes = (
        "import os, sys; block = b'x' * (400 << 20);"
        f"os.execv(sys.executable, [sys.executable, '-c', {reads!r}])"
    )
    ended = subprocess.run([sys.executable, "-c", executes], stdout=-1, text=True, check=True)
    output = ast.literal_eval(ended.stdout)
    assert output[gauge.RSS] <= output[gauge.RSS_PEAK] < 200 * MB


@linux
def test_reading_resident_memory_opens_one_descriptor_for_good():
    probe = ProcessProbe()
    probe.read()
    before = psutil.Process().num_fds()
    for _ in range(100):
        probe.read()
    assert psutil.Process().num_fds() == before
    os.close(probe._fd)


@linux
def test_a_forked_child_reads_its_own_memory():
    probe = ProcessProbe()
    before = probe.read()[gauge.RSS]
    pid = os.fork()
    if not pid:
        block = bytearray(b"x") * (64 * MB)
        own = probe.read()[gauge.RSS]
        os._exit(0 if block and own > before / 4 + 60 * MB else 1)
    assert os.waitpid(pid, 0)[1] == 0


@linux
def test_a_descriptor_that_the_program_reused_is_neither_read_nor_closed(tmp_path):
    probe = ProcessProbe()
    probe.read()
    os.close(probe._fd)
    (tmp_path / "users").write_text("1 2 3 words")
    users = os.open(tmp_path / "users", os.O_RDONLY)
    assert users == probe._fd
    assert probe.read()[gauge.RSS] > MB
    assert probe._fd != users
    assert os.read(users, 3) == b"1 2"
    os.close(users)
    os.close(probe._fd)


@linux
def test_proportional_private_and_shared_memory_fit_together():
    gauges = MappingProbe().read()
    rss = psutil.Process().memory_info().rss
    assert gauges[gauge.PRIVATE] <= gauges[gauge.PSS] <= rss * 1.1
    assert gauges[gauge.PRIVATE] + gauges[gauge.SHARED] == pytest.approx(rss, rel=0.1)
    assert 0 < gauges[gauge.PRIVATE_DIRTY] < gauges[gauge.PRIVATE]
    assert 0 <= gauges[gauge.HUGE_PAGES] <= gauges[gauge.PRIVATE]


def test_memory_in_huge_pages_is_reported_and_is_none_where_the_kernel_has_no_such_line():
    rollup = {
        "Pss": 9,
        "Private_Clean": 1,
        "Private_Dirty": 2,
        "Shared_Clean": 3,
        "Shared_Dirty": 4,
    }
    assert divided(rollup)[gauge.HUGE_PAGES] == 0
    assert divided(rollup | {"AnonHugePages": 2})[gauge.HUGE_PAGES] == 2


@linux
def test_what_is_only_read_of_a_file_is_private_and_not_written_to(tmp_path):
    path = tmp_path / "pages"
    with path.open("wb") as file:
        file.write(b"x" * (32 * MB))
        file.flush()
        os.fsync(file.fileno())
    before = MappingProbe().read()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        assert sum(pages[at] for at in range(0, len(pages), mmap.PAGESIZE)) > 0
        during = MappingProbe().read()
    gained = {name: during[name] - before[name] for name in before}
    assert gained[gauge.PRIVATE] > 28 * MB
    assert gained[gauge.PRIVATE_DIRTY] < 2 * MB


@linux
def test_open_files_threads_and_memory_left_are_counted(tmp_path):
    before = SystemProbe().read()
    with (tmp_path / "a").open("w"), (tmp_path / "b").open("w"):
        during = SystemProbe().read()
    assert during[gauge.OPEN_FILES] - before[gauge.OPEN_FILES] == 2
    assert before[gauge.OPEN_FILES] == psutil.Process().num_fds() - 1, "psutil counts its listing"
    assert before[gauge.THREADS] == psutil.Process().num_threads()
    assert 0 < before[gauge.SYSTEM_AVAILABLE] < psutil.virtual_memory().total


@linux
@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no shared memory file system")
def test_shared_memory_counts_files_whose_names_are_gone():
    # The machine's other programs use it too: only an undisturbed moment tells.
    seen = [gained_by_a_file_without_a_name(2 * MB) for _ in range(40)]
    assert (2 * MB, 0) in seen, seen


def gained_by_a_file_without_a_name(size: int) -> tuple[int, int]:
    """Return the bytes of shared memory gained while a file is open, and after it was closed."""
    before = SystemProbe().read()[gauge.SHM]
    path = Path(f"/dev/shm/leakscope-test-{os.getpid()}")
    with path.open("wb") as stream:
        path.unlink()
        stream.write(bytes(size))
        stream.flush()
        during = SystemProbe().read()[gauge.SHM]
    return during - before, SystemProbe().read()[gauge.SHM] - before


@linux
@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no shared memory file system")
@pytest.mark.parametrize("is_of_this_job", [True, False])
def test_files_that_torch_made_in_another_program_that_runs_are_left_out(is_of_this_job):
    words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, start_new_session=not is_of_this_job
    ) as other:
        path = Path(f"/dev/shm/torch_{other.pid}_1_0")
        try:
            seen = [gained_by_a_named_file(path, 2 * MB) for _ in range(40)]
        finally:
            path.unlink(missing_ok=True)
            other.stdin.close()
    # The machine's other programs use it too: only an undisturbed moment tells.
    assert 2 * MB * is_of_this_job in seen, seen


@linux
@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no shared memory file system")
def test_files_that_were_there_before_are_looked_at_once():
    path = Path(f"/dev/shm/leakscope-old-{os.getpid()}")
    path.write_bytes(bytes(MB))
    try:
        time.sleep(0.05)
        older: set[str] = set()
        shared_memory(time.time(), older)
        assert path.name in older
    finally:
        path.unlink()
    shared_memory(time.time(), older)
    assert path.name not in older, "nothing is kept of files that are gone"


def gained_by_a_named_file(path: Path, size: int) -> int:
    """Return the bytes of named files gained by one."""
    probe = SystemProbe()
    before = probe.read()[gauge.SHM_FILES]
    path.write_bytes(bytes(size))
    during = probe.read()[gauge.SHM_FILES]
    path.unlink()
    return during - before


@linux
@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no shared memory file system")
def test_descriptors_of_shared_memory_are_distinguished_from_others():
    before = SystemProbe().read()
    tensors = [torch.rand(10).share_memory_() for _ in range(3)]
    during = SystemProbe().read()
    assert during[gauge.SHARED_DESCRIPTORS] - before[gauge.SHARED_DESCRIPTORS] == 3
    assert during[gauge.OPEN_FILES] - before[gauge.OPEN_FILES] == 3
    assert during[gauge.OPEN_FILES_LIMIT] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    del tensors
    after = SystemProbe().read()
    assert after == before | _moving(after)


@linux
@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no shared memory file system")
def test_shared_memory_counts_once_while_it_is_kept_and_not_mapped():
    before = unmapped()
    path = Path(f"/dev/shm/leakscope-test-{os.getpid()}")
    with path.open("w+b") as stream:
        stream.write(bytes(2 * MB))
        stream.flush()
        assert unmapped() == before
        path.unlink()
        assert unmapped() - before == 2 * MB
        second = os.dup(stream.fileno())
        assert unmapped() - before == 2 * MB
        with mmap.mmap(second, 2 * MB):
            assert unmapped() == before
        assert unmapped() - before == 2 * MB
    os.close(second)
    assert unmapped() == before


@linux
def test_memory_of_a_descriptor_alone_counts_until_it_is_closed():
    before = unmapped()
    descriptor = os.memfd_create("leakscope-test")
    os.write(descriptor, bytes(MB))
    assert unmapped() - before == MB
    os.close(descriptor)
    assert unmapped() == before


@linux
@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no shared memory file system")
@pytest.mark.parametrize("is_its_own", [True, False])
def test_files_that_torch_made_in_this_process_count_while_it_has_not_mapped_them(is_its_own):
    probe = SystemProbe()
    before = probe.read()[gauge.SHM_UNMAPPED]
    path = Path(f"/dev/shm/torch_{os.getpid() if is_its_own else os.getppid()}_1_0")
    path.write_bytes(bytes(MB))
    try:
        assert probe.read()[gauge.SHM_UNMAPPED] - before == MB * is_its_own
        with path.open("r+b") as stream, mmap.mmap(stream.fileno(), MB):
            assert probe.read()[gauge.SHM_UNMAPPED] == before
    finally:
        path.unlink()


@linux
@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no shared memory file system")
def test_tensors_that_are_shared_and_alive_are_mapped():
    before = unmapped()
    tensors = [torch.rand(MB).share_memory_() for _ in range(3)]
    assert unmapped() == before
    del tensors


def unmapped() -> int:
    return SystemProbe().read()[gauge.SHM_UNMAPPED]


def _moving(gauges: dict[str, int]) -> dict[str, int]:
    return {name: gauges[name] for name in (gauge.SYSTEM_AVAILABLE, gauge.SHM, gauge.SHM_FILES)}


def test_children_are_counted_with_their_memory_until_they_end():
    # In a process of its own: children that other tests left share pages with those started here.
    code = f"from {__name__} import tell_of_children; tell_of_children()"
    folder = str(Path(__file__).parent)
    output = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {folder!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    before, during, after = (json.loads(line) for line in output.splitlines())
    assert before == after == {gauge.CHILDREN: 0, gauge.CHILDREN_PSS: 0}
    assert during[gauge.CHILDREN] == 2, "grandchildren count"
    assert during[gauge.CHILDREN_PSS] > 2 * MB


def tell_of_children() -> None:
    """Print what is read before a child and its child live, meanwhile, and after they ended."""
    print(json.dumps(ChildCountProbe().read() | ChildrenProbe().read()))
    sleeper = "import sys; print(flush=True); sys.stdin.read()"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleeper!r}])"
    child = subprocess.Popen(
        [sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    print(json.dumps(ChildCountProbe().read() | ChildrenProbe().read()))
    child.stdin.close()
    child.wait()
    child.stdout.close()
    print(json.dumps(ChildCountProbe().read() | ChildrenProbe().read()))


def test_the_collector_is_watched_and_not_woken():
    probe = GarbageProbe()
    before = probe.read()
    assert probe.read()[gauge.GC_COLLECTIONS] == before[gauge.GC_COLLECTIONS]
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    gc.collect()
    after = probe.read()
    assert after[gauge.GC_COLLECTIONS] == before[gauge.GC_COLLECTIONS] + 1
    assert after[gauge.GC_COLLECTED] > before[gauge.GC_COLLECTED]


def test_a_switched_off_collector_is_seen():
    gc.disable()
    try:
        assert GarbageProbe().read()[gauge.GC_ENABLED] == 0
    finally:
        gc.enable()
    assert GarbageProbe().read()[gauge.GC_ENABLED] == 1


def test_what_grows_old_counts_towards_the_next_collection_of_all_generations() -> None:
    gc.collect()
    before = GarbageProbe().read()
    assert before[gauge.GC_PENDING] == 0
    kept = [[] for _ in range(1000)]
    gc.collect(1)
    after = GarbageProbe().read()
    assert after[gauge.GC_PENDING] >= len(kept)
    assert after[gauge.GC_LONG_LIVED] == before[gauge.GC_LONG_LIVED]
    gc.collect()
    assert GarbageProbe().read()[gauge.GC_PENDING] == 0


def test_figures_are_counted_once_pyplot_is_there(monkeypatch):
    monkeypatch.delitem(sys.modules, "matplotlib._pylab_helpers", raising=False)
    assert FiguresProbe().read() == {}
    half_imported = types.ModuleType("matplotlib._pylab_helpers")
    monkeypatch.setitem(sys.modules, "matplotlib._pylab_helpers", half_imported)
    assert FiguresProbe().read() == {}
    half_imported.Gcf = types.SimpleNamespace(figs={1: None, 2: None})  # type: ignore[attr-defined]
    assert FiguresProbe().read() == {gauge.FIGURES: 2}


def test_open_figures_of_the_real_pyplot_are_counted():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    pyplot.close("all")
    pyplot.figure()
    pyplot.figure()
    assert FiguresProbe().read() == {gauge.FIGURES: 2}
    pyplot.close("all")
    assert FiguresProbe().read() == {gauge.FIGURES: 0}


def test_a_machine_swaps_where_its_table_has_a_place(tmp_path: Path) -> None:
    head = "Filename\t\tType\t\tSize\t\tUsed\t\tPriority\n"
    table = tmp_path / "swaps"
    assert not machine_swaps(table)
    table.write_text(head)
    assert not machine_swaps(table)
    table.write_text(f"{head}/dev/zram0 partition 4194300 0 100\n")
    assert machine_swaps(table)


@pytest.mark.parametrize(
    ("text", "size"), [("VmRSS:\t 8 kB\nVmSwap:\t 12 kB\n", 12288), ("VmRSS:\t 8 kB\n", None)]
)
def test_what_is_swapped_out_is_read_where_the_kernel_reports_it(
    text: str, size: int | None, tmp_path: Path
) -> None:
    status = tmp_path / "status"
    assert swapped_bytes(status) is None
    status.write_text(text)
    assert swapped_bytes(status) == size


@linux
@pytest.mark.skipif(not machine_swaps(), reason="this machine has nowhere to swap to")
def test_what_the_kernel_swaps_out_stays_the_programs():
    probe = ProcessProbe()
    before = probe.read()
    memory = mmap.mmap(-1, 64 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(os.urandom(MB) * 64)
    page_out = 21  # MADV_PAGEOUT, Linux 5.4
    memory.madvise(page_out)
    after = probe.read()
    memory.close()
    swapped = after[gauge.SWAPPED] - before[gauge.SWAPPED]
    assert swapped >= 16 * MB
    assert after[gauge.RSS] - before[gauge.RSS] + swapped >= 56 * MB
