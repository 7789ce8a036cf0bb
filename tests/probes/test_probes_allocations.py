from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import tracemalloc
import weakref
from pathlib import Path
from types import FrameType

import pytest

from leakscope.probes import allocations as module
from leakscope.probes.allocations import AllocationCounter, AllocationWindow

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def _nobody_traces():
    assert not tracemalloc.is_tracing()
    yield
    tracemalloc.stop()


def allocate(count=1000, size=1000):
    return [bytes(size + n % 2) for n in range(count)]  # the line


LINE = allocate.__code__.co_firstlineno + 1


def line_of(sites, line=LINE, file=__file__):
    return next((s for s in sites if (s.file, s.line) == (file, line)), None)


def test_what_was_allocated_in_the_window_and_lives_is_charged_to_its_line():
    window = AllocationWindow()
    assert window.open()
    kept = allocate()
    allocate()
    sites, total = window.close(project_root=HERE)
    site = line_of(sites)
    assert sites[0] is site
    assert site.count == pytest.approx(1001, abs=5)
    assert site.bytes == pytest.approx(1000 * 1033, rel=0.05)
    assert total >= site.bytes
    del kept


def test_the_window_leaves_tracing_off_and_nothing_behind():
    window = AllocationWindow()
    window.open()
    assert tracemalloc.is_tracing()
    assert window.is_open
    window.close()
    assert not tracemalloc.is_tracing()
    assert not window.is_open
    assert window.close() == ([], 0)
    assert window._before == {}


def test_opening_twice_is_opening_once():
    window = AllocationWindow()
    assert window.open()
    assert window.open()
    window.close()
    assert not tracemalloc.is_tracing()


def test_blocks_are_charged_to_the_users_line_that_called_the_library(tmp_path, monkeypatch):
    library = tmp_path / "site-packages" / "leaklib.py"
    library.parent.mkdir()
    library.write_text("def make():\n    return [bytes(1000 + n % 2) for n in range(1000)]\n")
    monkeypatch.syspath_prepend(str(library.parent))
    leaklib = importlib.import_module("leaklib")
    window = AllocationWindow()
    window.open()
    kept = leaklib.make()
    here = sys._getframe().f_lineno - 1
    sites, _ = window.close(project_root=HERE)
    assert line_of(sites, here).bytes > 900_000
    assert line_of(sites, 2, str(library)) is None
    del kept
    window.open()
    kept = leaklib.make()
    sites, _ = window.close()
    assert line_of(sites, 2, str(library)).bytes > 900_000, "no project: the innermost line"
    del kept


def test_installed_packages_inside_the_project_are_not_the_users(tmp_path, monkeypatch):
    library = tmp_path / "lib" / "site-packages" / "leaklib2.py"
    library.parent.mkdir(parents=True)
    library.write_text("def make(n):\n    return [bytes(1000 + i % 2) for i in range(n)]\n")
    script = tmp_path / "train_leaklib2.py"
    script.write_text("from leaklib2 import make\n\ndef step():\n    return make(500)\n")
    monkeypatch.syspath_prepend(str(library.parent))
    monkeypatch.syspath_prepend(str(tmp_path))
    train = importlib.import_module("train_leaklib2")
    window = AllocationWindow()
    window.open()
    kept = train.step()
    sites, _ = window.close(project_root=str(tmp_path))
    assert line_of(sites, 4, str(script)).count == pytest.approx(501, abs=3)
    del kept


def test_leakscope_and_the_import_system_are_left_out():
    window = AllocationWindow()
    window.open()
    own = module._Attribution(HERE)
    kept = [own.line((("/nowhere.py", n),)) for n in range(1000)]
    sys.modules.pop("colorsys", None)
    importlib.import_module("colorsys")
    sites, _ = window.close(project_root=HERE)
    assert not [s for s in sites if "leakscope/probes" in s.file or s.file.startswith("<frozen")]
    del kept


@pytest.mark.parametrize(
    ("room", "charged"), [("probes", None), ("heap", None), ("capture", ("/lib/psutil.py", 3))]
)
def test_libraries_that_leakscope_calls_for_itself_are_its_own(room, charged):
    own = str(Path(module.__file__).parents[1] / room / "x.py")
    attribution = module._Attribution("/home/me/project")
    called_by_us = (("/lib/psutil.py", 3), (own, 5), ("/home/me/project/train.py", 7))
    if room == "capture":  # a wrapped loader: the user's own batch passes through
        assert attribution.line(called_by_us) == ("/home/me/project/train.py", 7)
        assert attribution.line(called_by_us[:2]) == charged
    else:
        assert attribution.line(called_by_us) is charged


def test_code_without_a_file_is_the_users():
    attribution = module._Attribution("/home/me/project")
    assert attribution.line((("/lib/a.py", 1), ("<string>", 2))) == ("<string>", 2)
    assert attribution.line((("/lib/a.py", 1), ("<__array_function__ internals>", 2))) == (
        "/lib/a.py",
        1,
    )


def test_tracing_that_the_program_does_itself_goes_on():
    tracemalloc.start(3)
    old = allocate(2000)
    window = AllocationWindow(frames=8)
    assert not window.open()
    kept = allocate(1000)
    sites, _ = window.close(project_root=HERE)
    assert tracemalloc.is_tracing()
    assert tracemalloc.get_traceback_limit() == 3
    assert tracemalloc.get_object_traceback(old[0]) is not None, "its traces are still there"
    assert line_of(sites).count == pytest.approx(1001, abs=5), "what was alive before is not in it"
    del old, kept


def test_too_much_to_look_at_is_left_alone(monkeypatch):
    monkeypatch.setattr(module, "_MOST_OVERHEAD", 0)
    window = AllocationWindow()
    window.open()
    kept = allocate()
    assert window.close() == ([], 0)
    assert not tracemalloc.is_tracing()
    del kept


def test_a_program_that_stops_tracing_in_the_window_is_no_fault():
    window = AllocationWindow()
    window.open()
    tracemalloc.stop()
    assert window.close() == ([], 0)


def test_only_the_topmost_lines_are_returned():
    window = AllocationWindow()
    window.open()
    kept = allocate()
    more = [object() for _ in range(10)]
    sites, total = window.close(top=1, project_root=HERE)
    assert len(sites) == 1
    assert total > sites[0].bytes
    del kept, more


def test_no_object_of_the_program_is_kept_alive():
    class Batch:
        pass

    window = AllocationWindow()
    window.open()
    batch = Batch()
    gone = weakref.ref(batch)
    window.close()
    del batch
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("ours", [True, False])
def test_a_worker_forked_in_the_window_does_not_go_on_tracing(ours):
    if not ours:
        tracemalloc.start()
    window = AllocationWindow()
    window.open()
    pid = os.fork()
    if not pid:
        os._exit(int(tracemalloc.is_tracing()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (0 if ours else 1)
    assert tracemalloc.is_tracing()
    window.close()


NATIVE_THREADS = """
import ctypes, threading, time
from leakscope.probes.allocations import AllocationCounter, AllocationWindow

native = ctypes.CDLL(None)
native.PyMem_RawMalloc.restype = ctypes.c_void_p
native.PyMem_RawMalloc.argtypes = [ctypes.c_size_t]
native.PyMem_RawFree.argtypes = [ctypes.c_void_p]
ended = threading.Event()

def allocate_without_the_gil():
    while not ended.is_set():
        native.PyMem_RawFree(native.PyMem_RawMalloc(100))

threads = [threading.Thread(target=allocate_without_the_gil) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(30):
    window = AllocationWindow()
    window.open()
    kept = [[number] for number in range(5000)]
    time.sleep(0.01)
    window.close()
ended.set()
for thread in threads:
    thread.join()
"""


def test_threads_that_allocate_without_the_gil_survive_the_end_of_a_window():
    done = subprocess.run([sys.executable, "-c", NATIVE_THREADS], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


class _StrikeAt:
    """Interrupts the instruction of a number, of those of the probe's own functions."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.has_struck = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> _StrikeAt | None:
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self._left -= 1
            if self._left == 0:
                self.has_struck = True
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("end", ["close", "close without reading", "cut"])
def test_what_breaks_into_the_end_leaves_no_tracing_on(end: str) -> None:
    before = sys.gettrace()
    number = 0
    while True:
        number += 1
        window = AllocationWindow()
        window.open()
        strike = _StrikeAt(number)
        sys.settrace(strike)
        try:
            if end == "cut":
                window.cut()
            else:
                window.close(top=0 if "without" in end else 5)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert window.is_open or not tracemalloc.is_tracing(), number
        window.close(top=0)
        assert not window.is_open
        assert not tracemalloc.is_tracing(), number
        if not strike.has_struck:
            break
    assert number > 10


@pytest.mark.parametrize("begin", ["open", "cost"])
def test_what_breaks_into_the_beginning_leaves_no_tracing_on(begin, monkeypatch):
    start = tracemalloc.start

    def broken_into(frames):
        start(frames)
        raise KeyboardInterrupt

    monkeypatch.setattr(tracemalloc, "start", broken_into)
    monkeypatch.setattr(module, "_known", None)
    window = AllocationWindow()
    with pytest.raises(KeyboardInterrupt):
        window.open() if begin == "open" else AllocationCounter.cost()
    window.close(top=0)
    assert not tracemalloc.is_tracing()
