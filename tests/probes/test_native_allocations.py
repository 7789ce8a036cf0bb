"""What native code has live is estimated right, named right, and never at the program's expense."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import signal
import statistics
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from leakscope.model.record import (
    NativeAllocationsRecord,
    NativeKind,
    NativeOwner,
    NativeSite,
    interval_of,
)
from leakscope.probes.native_allocations import NativeProfile, rust_path
from leakscope.recording.format import encode

sampling = pytest.importorskip("leakscope.probes._sampling", reason="it was not built here")
if shutil.which("gcc") is None:
    pytest.skip("needs gcc", allow_module_level=True)

LIBRARY = "liballocating.so"
WAYS = {
    "malloc": 0,
    "calloc": 1,
    "realloc": 2,
    "reallocarray": 3,
    "aligned_alloc": 4,
    "memalign": 5,
    "posix_memalign": 6,
    "valloc": 7,
    "mmap": 8,
}
CODE = (Path(__file__).parent / "native" / "allocating.c").read_text()
TYPES: dict[str, tuple[object, list[object]]] = {
    "leak": (ctypes.c_long, [ctypes.c_int, ctypes.c_long, ctypes.c_size_t]),
    "live_bytes": (ctypes.c_long, []),
    "release": (None, [ctypes.c_long]),
    "resize_all": (None, [ctypes.c_size_t]),
    "resize_fails": (ctypes.c_int, []),
    "churn": (None, [ctypes.c_uint64, ctypes.c_long]),
    "threads": (None, [ctypes.c_int, ctypes.c_long]),
    "turn_over": (None, [ctypes.c_long, ctypes.c_size_t]),
    "interrupted": (ctypes.c_int, [ctypes.c_long, ctypes.c_size_t]),
    "map_parts": (ctypes.c_long, [ctypes.c_size_t]),
    "map_over": (ctypes.c_long, [ctypes.c_size_t]),
    "unmap_parts": (None, [ctypes.c_size_t]),
    "map_again": (ctypes.c_long, [ctypes.c_size_t]),
    "unmap_again": (None, [ctypes.c_size_t]),
    "reserve": (ctypes.c_void_p, [ctypes.c_size_t]),
    "share": (ctypes.c_void_p, [ctypes.c_size_t]),
    "unmap": (None, [ctypes.c_void_p, ctypes.c_size_t]),
    "pointer_to_malloc": (ctypes.c_void_p, []),
    "opens_its_neighbour": (ctypes.c_int, []),
}
EVERYTHING = 1.0
"""An interval at which every block of some hundred bytes is sampled."""


def build(target: Path, code: str, *options: str) -> Path:
    source = target.with_suffix(".c")
    source.write_text(code)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", source, "-o", target, *options], check=True)
    return target


@pytest.fixture(scope="module")
def library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("allocating")
    (folder / "inner").mkdir()
    build(folder / "inner" / "libneighbour.so", "int neighbour(void) { return 1; }")
    return build(folder / LIBRARY, CODE, "-Wl,-rpath,$ORIGIN/inner", "-pthread", "-ldl")


def opened(path: Path) -> SimpleNamespace:
    library = ctypes.CDLL(str(path))
    functions = {}
    for name, (result, arguments) in TYPES.items():
        functions[name] = getattr(library, name)
        functions[name].restype, functions[name].argtypes = result, arguments
    return SimpleNamespace(**functions, handle=library)


@pytest.fixture(scope="module")
def library(library_path: Path) -> SimpleNamespace:
    return opened(library_path)


Started = Callable[..., NativeProfile]


@pytest.fixture
def started(library: SimpleNamespace) -> Iterator[Started]:
    profiles = []

    def start(interval: float = EVERYTHING, seed: int = 1, project_root: str = "") -> NativeProfile:
        profile = NativeProfile(interval=interval, seed=seed, project_root=project_root)
        profiles.append(profile)
        assert profile.start(), profile.why_not
        return profile

    yield start
    library.release(0)
    for profile in profiles:
        profile.stop()


def of_library(record: NativeAllocationsRecord, name: str = LIBRARY) -> list[NativeSite]:
    return [site for site in record.sites if site.library == name]


def bytes_of(profile: NativeProfile) -> int:
    return sum(site.bytes for site in of_library(everything(profile)))


def everything(profile: NativeProfile) -> NativeAllocationsRecord:
    return profile.snapshot(most=10_000, share=0.0)


class TestEveryFunction:
    @pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
    def test_is_followed_from_the_allocation_to_the_free(
        self, library: SimpleNamespace, started: Started, way: int
    ) -> None:
        profile = started()
        library.leak(way, 50, 8192)
        assert bytes_of(profile) == library.live_bytes() == 50 * 8192
        library.release(20)
        assert bytes_of(profile) == library.live_bytes() == 20 * 8192
        library.release(0)
        assert bytes_of(profile) == 0

    def test_of_each_kind_the_report_says_how_it_was_requested(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        profile = started()
        library.leak(WAYS["malloc"], 1, 5000)
        library.leak(WAYS["mmap"], 1, 8192)
        kinds = {site.kind: site.bytes for site in of_library(everything(profile))}
        assert kinds == {NativeKind.BLOCK: 5000, NativeKind.MAPPING: 8192}

    def test_a_block_that_is_resized_counts_with_its_new_size(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        profile = started()
        library.leak(WAYS["malloc"], 30, 1000)
        library.resize_all(70_000)
        assert bytes_of(profile) == library.live_bytes() == 30 * 70_000
        library.resize_all(200)
        assert bytes_of(profile) == library.live_bytes() == 30 * 200

    def test_a_block_that_could_not_be_resized_is_still_there(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        profile = started()
        library.leak(WAYS["malloc"], 1, 1000)
        assert library.resize_fails()
        assert bytes_of(profile) == 1000

    def test_mappings_are_followed_in_parts(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        profile = started()
        assert library.map_parts(mmap.PAGESIZE) == bytes_of(profile)
        assert library.map_over(mmap.PAGESIZE) == bytes_of(profile)
        library.unmap_parts(mmap.PAGESIZE)
        assert bytes_of(profile) == 0
        assert library.map_again(mmap.PAGESIZE) == bytes_of(profile)
        library.unmap_again(mmap.PAGESIZE)
        assert bytes_of(profile) == 0

    def test_reserved_addresses_and_shared_memory_are_not_native_allocations(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        profile = started()
        made = library.reserve(1 << 30), library.share(1 << 20)
        assert bytes_of(profile) == 0
        library.unmap(made[0], 1 << 30)
        library.unmap(made[1], 1 << 20)


class TestEstimates:
    def test_the_interval_holds_the_truth_in_95_of_100_runs_and_the_mean_is_right(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        held, ratios = 0, []
        for seed in range(1, 201):
            profile = started(interval=16_384, seed=seed)
            library.churn(seed * 7919, 3000)
            record = everything(profile)
            profile.stop()
            sites = of_library(record)
            low, high = interval_of(
                sum(site.bytes for site in sites),
                sum(site.chance_bytes for site in sites),
                sum(site.deviation_bytes**2 for site in sites) ** 0.5,
            )
            truth = library.live_bytes()
            held += low <= truth <= high
            ratios.append(sum(site.bytes for site in sites) / truth)
            library.release(0)
        assert held >= 190
        spread = statistics.stdev(ratios) / len(ratios) ** 0.5
        assert abs(statistics.fmean(ratios) - 1) < 3 * spread
        assert spread < 0.02

    def test_nothing_drifts_over_a_billion_bytes(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        profile = started(interval=65_536)
        library.leak(WAYS["malloc"], 500, 2000)
        before = bytes_of(profile)
        library.turn_over(10**9, 1500)
        assert bytes_of(profile) == before
        record = everything(profile)
        assert record.taken > 10**9 / 65_536 / 2
        assert record.unseen_frees == record.dropped == 0

    def test_memory_of_its_own_is_bounded_and_the_estimate_stays_right(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        profile = started()
        library.leak(WAYS["malloc"], 400_000, 200)
        record = everything(profile)
        site = of_library(record)[0]
        assert profile.own_bytes < 20 << 20
        assert record.interval_bytes > EVERYTHING
        assert abs(site.bytes - library.live_bytes()) < 4 * site.deviation_bytes
        library.release(0)
        assert bytes_of(profile) == 0

    def test_what_is_certain_has_no_interval(self) -> None:
        assert interval_of(1000, 0, 0) == (1000, 1000)

    def test_one_small_block_says_little_more_than_that_there_is_something(self) -> None:
        low, high = interval_of(512 << 10, 512 << 10, 512 << 10)
        assert 0 < low < 0.05 * (512 << 10)
        assert 5 * (512 << 10) < high < 6 * (512 << 10)


class TestWhere:
    def test_a_row_names_library_function_and_the_line_of_the_user(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        profile = started()

        def read_image() -> None:
            library.leak(WAYS["malloc"], 3, 1 << 20)

        read_image()
        site = of_library(everything(profile))[0]
        assert (site.library, site.function) == (LIBRARY, "leak")
        assert site.file == __file__
        assert site.line == read_image.__code__.co_firstlineno + 1
        assert site.caller == "read_image"
        assert site.owner is NativeOwner.LIBRARY
        # `by` isn't exported: its name is in the table that has what isn't.
        assert site.stack[0] in (f"{LIBRARY}!by", f"{LIBRARY}!leak")

    @pytest.mark.parametrize(
        "folder", ["elsewhere", "project/.venv/lib/site-packages", "project/package"]
    )
    def test_the_users_line_is_the_first_of_the_project(
        self, library: SimpleNamespace, started: Started, tmp_path: Path, folder: str
    ) -> None:
        """What was installed is a library's, inside the project or outside of it."""
        called, caller = tmp_path / folder / "reading.py", tmp_path / "project" / "train.py"
        names: dict[str, object] = {"leak": library.leak}
        for path, text in (
            (called, "def read():\n    leak(0, 3, 1 << 20)\n"),
            (caller, "def train():\n\n    read()\n"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            exec(compile(text, str(path), "exec"), names)
        profile = started(project_root=str(tmp_path / "project"))
        train = names["train"]
        assert callable(train)
        train()
        site = of_library(everything(profile))[0]
        is_installed = folder != "project/package"
        assert (site.file, site.line) == ((str(caller), 3) if is_installed else (str(called), 2))

    def test_its_stack_is_recorded_once(self, library: SimpleNamespace, started: Started) -> None:
        profile = started()
        library.leak(WAYS["malloc"], 3, 4 << 20)
        records = [profile.record(index, 1, with_census=True) for index in range(2)]
        first, second = (of_library(record)[0] for record in records if record is not None)
        assert first.stack[-1] != ""
        assert second == msgspec.structs.replace(first, stack=[])

    def test_the_line_is_that_of_the_thread_that_allocates(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        import threading

        profile = started()

        def in_thread() -> None:
            library.leak(WAYS["malloc"], 1, 1 << 20)

        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
        assert of_library(everything(profile))[0].caller == "in_thread"

    @pytest.mark.skipif(sys.version_info >= (3, 14), reason="where the GIL's state lies is unknown")
    def test_a_thread_that_never_ran_python_has_the_line_that_waits_for_it(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        profile = started()

        def waits() -> None:
            library.churn(3, 50)

        waits()
        sites = of_library(everything(profile))
        line = waits.__code__.co_firstlineno + 1
        assert {(site.file, site.line, site.caller) for site in sites} == {
            (__file__, line, "waits")
        }
        assert all(site.is_awaited for site in sites)

    def test_it_has_no_line_while_some_thread_runs_python(
        self, library_path: Path, started: Started
    ) -> None:
        """Whoever has the interpreter may be at work on something else, and its frames change."""
        profile = started()
        churn = ctypes.PyDLL(str(library_path)).churn  # keeps it while it waits
        churn(3, 50)
        sites = of_library(everything(profile))
        assert {(site.file, site.line, site.is_awaited) for site in sites} == {("", 0, False)}

    def test_frames_that_come_and_go_are_read_without_harm(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        """Threads of a library's allocate while threads of Python call each other and end."""
        import threading

        profile = started()
        is_over = threading.Event()

        def call(depth: int) -> None:
            if depth:
                call(depth - 1)
            else:
                is_over.wait(1e-4)

        def keep_calling() -> None:
            while not is_over.is_set():
                exec("def made(depth): call(depth)", {"call": call}, scope := {})
                short = threading.Thread(target=scope["made"], args=(60,))
                short.start()
                short.join()

        threads = [threading.Thread(target=keep_calling) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            library.churn(4, 200)
        is_over.set()
        for thread in threads:
            thread.join()
        assert everything(profile).is_on

    def test_what_python_itself_allocates_is_distinguished(self, started: Started) -> None:
        profile = started()
        kept = bytearray(3 << 20)
        sites = [site for site in everything(profile).sites if site.bytes >= 3 << 20]
        assert [site.owner for site in sites] == [NativeOwner.INTERPRETER]
        assert sites[0].file == __file__
        assert len(kept) == 3 << 20

    def test_what_leakscope_allocates_is_its_own(self, started: Started) -> None:
        profile = started()
        written = encode("x" * (2 << 20))
        own = [s for s in everything(profile).sites if s.owner is NativeOwner.LEAKSCOPE]
        assert own[0].file.endswith("format.py")
        assert own[0].bytes > len(written) > 2 << 20

    @pytest.mark.parametrize(
        ("symbol", "name"),
        [
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_RNvNtNtCs1234_7mycrate3foo3bar3baz", "mycrate::foo::bar::baz"),
            (
                "_RNvMs5_NtNtNtCscxzlFi8rOL3_10tokenizers6models3bpe5modelNtB5_3BPE10merge_word",
                "tokenizers::models::bpe::model::BPE::merge_word",
            ),
            ("_RNCNvC7mycrate3run0B3_", "mycrate::run::{closure}"),
            ("_RINvNtC3std3mem8align_ofdE", "std::mem::align_of"),
            ("_RINvC7mycrate3mapFUKCjRShEuNtB2_4ItemKj1f_DNtB2_4ShowEL_E", "mycrate::map"),
            ("_RNvXNtC7mycrate3addNtB2_6NumberNtB2_3Add3add", "mycrate::add::Number::add"),
            ("_RNvYNtC7mycrate6NumberNtB4_3Add3add", "mycrate::Number::add"),
            ("_RNvMC7mycrateSNtB2_4Item4sort", "mycrate::Item::sort"),
            ("_Rx", "_Rx"),
            ("_RNvC7my", "_RNvC7my"),
            ("_RNvB_3add", "_RNvB_3add"),
        ],
    )
    def test_a_name_of_rust_is_readable(self, symbol: str, name: str) -> None:
        assert rust_path(symbol) == name

    def test_a_name_of_c_plus_plus_is_readable(self) -> None:
        from leakscope.probes.native_allocations import shortened

        assert shortened("void cv::(anonymous namespace)::decode<int>(cv::Mat const&) const") == (
            "cv::(anonymous namespace)::decode"
        )
        assert shortened("operator new[](unsigned long)") == "operator new[]"
        assert shortened("std::vector<int>::operator()(int) [clone .cold]") == (
            "std::vector::operator()"
        )
        assert shortened("tokenizers::model::load::h0123456789abcdef") == "tokenizers::model::load"
        assert shortened("at::Tensor::to(int) &&") == "at::Tensor::to"
        assert shortened("png_read_row.part.0") == "png_read_row"


class TestLibraries:
    def test_one_that_is_loaded_later_is_seen(
        self, library_path: Path, started: Started, tmp_path: Path
    ) -> None:
        profile = started()
        later = opened(Path(shutil.copy(library_path, tmp_path / "liblater.so")))
        later.leak(WAYS["malloc"], 5, 10_000)
        sites = of_library(everything(profile), "liblater.so")
        assert sum(site.bytes for site in sites) == 50_000
        later.release(0)

    def test_its_search_path_is_its_own(self, library: SimpleNamespace, started: Started) -> None:
        started()
        assert library.opens_its_neighbour()

    def test_malloc_by_its_handle_is_seen(self, started: Started) -> None:
        profile = started()
        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.free.argtypes = [ctypes.c_void_p]
        block = libc.malloc(5 << 20)
        assert any(site.bytes == 5 << 20 for site in everything(profile).sites)
        libc.free(block)
        assert not any(site.bytes == 5 << 20 for site in everything(profile).sites)

    def test_all_is_as_it_was_once_it_is_over(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        before = library.pointer_to_malloc()
        profile = started()
        assert library.pointer_to_malloc() != before
        library.leak(WAYS["malloc"], 10, 5000)
        profile.stop()
        assert library.pointer_to_malloc() == before
        library.release(0)
        assert sampling.state()["live"] == 0

    def test_somebody_who_puts_malloc_back_is_noticed(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        entry = ctypes.c_void_p.in_dll(library.handle, "kept_malloc")
        real = entry.value
        profile = started()
        wrapper = entry.value
        assert wrapper == library.pointer_to_malloc() != real
        entry.value = real
        everything(profile)
        assert entry.value == wrapper
        assert sampling.state()["lost"] == 1

    def test_sampling_goes_on_when_it_is_reached_again(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        """So the loader does that binds a library's calls as they come, at any interval."""
        entry = ctypes.c_void_p.in_dll(library.handle, "kept_malloc")
        real = entry.value
        profile = started(interval=1 << 30)
        entry.value = real
        assert everything(profile).is_on
        assert sampling.state()["running"]


class TestDisturbances:
    def test_blocks_that_threads_hand_on_are_all_found_again(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        profile = started(interval=256)
        library.threads(16, 20_000)
        assert bytes_of(profile) == 0
        record = everything(profile)
        assert record.taken > 16 * 20_000 * 0.2
        assert record.unseen_frees == record.dropped == 0

    def test_looking_while_threads_allocate_does_no_harm(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        import threading

        profile = started(interval=64)
        busy = threading.Thread(target=library.threads, args=(4, 60_000))
        busy.start()
        while busy.is_alive():
            everything(profile)
        busy.join()
        assert bytes_of(profile) == 0

    def test_a_signal_may_strike_anywhere(self, library: SimpleNamespace, started: Started) -> None:
        profile = started(interval=512)
        assert library.interrupted(10**8, 700) > 20
        assert profile.is_running
        assert bytes_of(profile) == 0

    def test_a_forked_child_samples_nothing_until_it_begins_itself(
        self, library: SimpleNamespace, started: Started
    ) -> None:
        profile = started()
        library.leak(WAYS["malloc"], 10, 5000)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                library.leak(WAYS["malloc"], 10, 5000)
                library.release(5)
                off = not sampling.state()["running"] and profile.own_bytes == 0
                own = NativeProfile(interval=EVERYTHING, seed=2)
                began = own.start()
                library.leak(WAYS["malloc"], 7, 1000)
                code = 0 if off and began and bytes_of(own) == 7000 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        library.leak(WAYS["malloc"], 10, 5000)
        assert bytes_of(profile) == library.live_bytes() == 100_000

    def test_a_fault_of_its_own_ends_it_and_not_the_program(self) -> None:
        done = in_python(
            """
            from leakscope.probes import _sampling
            from leakscope.probes.native_allocations import NativeProfile
            profile = NativeProfile(interval=1, seed=1)
            assert profile.start()
            kept = bytearray(100_000)
            _sampling.fault()
            kept = [bytearray(100_000) for _ in range(10)]
            record = profile.snapshot()
            assert not record.is_on and not profile.is_running and record.taken > 0
            profile.stop()
            assert profile.start() and profile.snapshot().is_on
            print("goes on")
            """
        )
        assert done.stdout == "goes on\n"
        assert done.returncode == 0

    def test_a_fault_of_the_programs_takes_its_course(self) -> None:
        code = """
            import ctypes
            from leakscope.probes.native_allocations import NativeProfile
            assert NativeProfile(interval=1, seed=1).start()
            ctypes.string_at(8)
            """
        assert in_python(code).returncode == -signal.SIGSEGV

    def test_a_signal_that_somebody_sends_ends_the_program_as_ever(self) -> None:
        code = """
            import os, signal
            from leakscope.probes.native_allocations import NativeProfile
            assert NativeProfile(interval=1, seed=1).start()
            os.kill(os.getpid(), signal.SIGSEGV)
            """
        assert in_python(code).returncode == -signal.SIGSEGV


OTHER_ALLOCATOR = """
#include <stddef.h>
extern void *__libc_malloc(size_t);
extern void __libc_free(void *);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
void *malloc(size_t size) { return __libc_malloc(size); }
void free(void *block) { __libc_free(block); }
void *calloc(size_t number, size_t size) { return __libc_calloc(number, size); }
void *realloc(void *block, size_t size) { return __libc_realloc(block, size); }
"""


class TestOtherGround:
    def test_another_allocator_is_named_and_followed(self, tmp_path: Path) -> None:
        other = build(tmp_path / "libother.so", OTHER_ALLOCATOR)
        done = in_python(
            """
            from leakscope.probes import _sampling
            from leakscope.probes.native_allocations import NativeProfile
            profile = NativeProfile(interval=1, seed=1)
            assert profile.start()
            kept = bytearray(3 << 20)
            assert any(site.bytes >= 3 << 20 for site in profile.snapshot().sites)
            print(_sampling.state()["allocator"])
            """,
            LD_PRELOAD=str(other),
        )
        assert done.stdout.strip() == str(other)

    def test_a_sanitizer_is_left_alone(self, tmp_path: Path) -> None:
        sanitizer = build(tmp_path / "libsanitizer.so", "void __asan_init(void) {}")
        done = in_python(
            """
            from leakscope.probes.native_allocations import NativeProfile
            profile = NativeProfile()
            print(profile.start(), profile.why_not)
            """,
            LD_PRELOAD=str(sanitizer),
        )
        assert done.stdout == "False A sanitizer checks every allocation of this process.\n"

    def test_where_memray_was_first_it_stays_so(self, tmp_path: Path) -> None:
        pytest.importorskip("memray")
        done = in_python(
            f"""
            import memray
            from leakscope.probes import _sampling
            from leakscope.probes.native_allocations import NativeProfile
            profile = NativeProfile(interval=1, seed=1)
            with memray.Tracker({str(tmp_path / "run.bin")!r}):
                print(profile.start(), profile.why_not)
            assert profile.start()
            kept = bytearray(3 << 20)
            assert any(site.bytes >= 3 << 20 for site in profile.snapshot().sites)
            with memray.Tracker({str(tmp_path / "second.bin")!r}):
                assert not profile.snapshot().is_on
            """
        )
        assert done.stderr == ""
        assert done.stdout == "False Another tool follows allocations here.\n"
        assert done.returncode == 0

    def test_where_it_was_not_built_it_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from leakscope.probes import native_allocations

        monkeypatch.setattr(native_allocations, "_sampling", None)
        profile = NativeProfile()
        assert not profile.start()
        assert profile.why_not.startswith("It was not built")
        assert profile.own_bytes == 0
        assert profile.record(0, 1, with_census=True) is None


def in_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )
