"""What is concluded as the main module's last work returns, and what is left alone there."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from leakscope.capture import returning
from leakscope.capture.policy import RETURN_CALLS

pytestmark = pytest.mark.skipif(
    not returning.IS_SUPPORTED, reason="from Python 3.12 on a frame is cleared as it returns"
)
HARNESS = """
import sys
from leakscope.heap.anatomy import locals_of
from leakscope.capture import returning

launch = {"__name__": "launch"}
exec("def start(code, names, run=exec):\\n    run(code, names)", launch)
source = sys.stdin.read()
main = sys.modules["__main__"].__dict__


def conclude():
    frame = sys._getframe(2)
    print("concluded", frame.f_code.co_name, sorted(name for name, _ in locals_of(frame)))


returning.watch(conclude, launch)
try:
    launch["start"](compile(source, "program", "exec"), main)
finally:
    returning.stop()
"""
WORK = """
import sys, threading, time, functools
class Kept:
    def __del__(self): print("gone")
def work(value=1):
    kept = Kept()
    time.sleep(0.06)
    print("returns")
    return value
"""
SEEN = "concluded work ['kept', 'value']"


def run(program: str) -> list[str]:
    """Return what a program prints as `leakscope run` would start it."""
    done = subprocess.run(
        [sys.executable, "-c", HARNESS],
        input=WORK + program,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "Traceback" not in done.stderr or "Expected" in done.stderr, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "program",
    [
        "work()",
        "sys.exit(work())",
        "result = work()\nprint('value', result)\nsys.stdout.flush()",
        "if __name__ == '__main__':\n    work()\nelse:\n    print(1)",
        "try:\n    work()\nfinally:\n    print('done')",
        "functools.wraps(work)(lambda: work())()",
        "lock = threading.Lock()\nwork()\nlock.acquire()\nlock.release()",
        "log = []\nwork()\nlog.append(1)",
        "def read(): return 1\nwork(read())",
        "print('value', work(), sep=' ')",
        "total = 1 + work()",
    ],
)
def test_the_last_work_is_looked_at_before_its_variables_go(program: str) -> None:
    printed = run(program)
    at = printed.index(SEEN)
    assert printed[at - 1 : at + 2] == ["returns", SEEN, "gone"]
    assert printed.count(SEEN) == 1


@pytest.mark.parametrize(
    "program",
    [
        "work()\nwork()",
        "for _ in range(2): work()",
        "class Trainer:\n    def test(self): pass\ntrainer = Trainer()\nwork()\ntrainer.test()",
        "work()\nimport json",
        "def later(): pass\nwork()\nlater()",
        "work()\nfor x in []: pass",
        "run = functools.partial(print)\nwork()\nrun()",
        "work()\nwith open('/dev/null') as f: pass",
        "def train(data): pass\ntrain(work())",
        "class Trainer:\n    def fit(self, data): pass\ntrainer = Trainer()\ntrainer.fit(work())",
        "def train(data, epochs): pass\ntrain(epochs=2, data=work())",
        "steps = [print]\nsteps[0](work())",
        "list(map(work, [1, 2]))",
        "def train(data, epochs): pass\ntrain(1 if sys.argv else 2, work())",
    ],
)
def test_what_may_be_followed_by_work_is_not(program: str) -> None:
    after = run(program)
    first = after.index("gone")
    assert SEEN not in after[:first]


SET_UP = """
class Trainer:
    def __init__(self): work()
    def fit(self): print("fits")
def later(): print("fits")
"""


@pytest.mark.parametrize(
    "program",
    [
        "trainer = Trainer()\ntrainer.fit()",
        "trainer = None\ntrainer = Trainer()\ntrainer.fit()",
        "trainer = Trainer()\nalias = trainer\nalias.fit()",
        "trainer = Trainer()\nfit = trainer.fit\nfit()",
        "trainer = Trainer()\nthread = threading.Thread(target=later)\nthread.start()",
        "Trainer()\nthreading.Thread(target=later).start()",
        "Trainer()\nfunctools.partial(later)()",
        "later.trainer = Trainer()\nlater.trainer.fit()",
        "trainers = [Trainer()]\ntrainers[0].fit()",
    ],
)
def test_what_is_set_up_is_not_the_last_work(program: str) -> None:
    printed = run(SET_UP + program)
    before = printed[: printed.index("fits")]
    assert not [line for line in before if line.startswith("concluded")]


def test_work_of_a_moment_is_none() -> None:
    assert run("def quick():\n    return 1\nprint(quick())") == ["1"]


def test_generators_and_classes_have_no_variables_to_look_at() -> None:
    program = "def made():\n    yield work()\n"
    assert SEEN not in run(program + "print(list(made()))")
    assert not any("concluded" in line for line in run("class A:\n    time.sleep(0.06)"))


def test_an_exception_is_not_a_return() -> None:
    program = (
        "def fails():\n    kept = Kept()\n    time.sleep(0.06)\n    raise KeyError('Expected')\n"
    )
    assert run(program + "fails()") == ["gone"]


def test_a_thread_that_goes_on_is_waited_for() -> None:
    program = (
        "done = threading.Event()\nthreading.Thread(target=done.wait).start()\n"
        "def main():\n    work()\nmain()\nThread = done.set()"
    )
    assert not any("concluded" in line for line in run(program))


def test_threads_that_recurse_meanwhile_end_the_looking() -> None:
    """Calls that another evaluator sees are not inlined: they would overflow a small stack."""
    program = """
threading.stack_size(65536)
sys.setrecursionlimit(100_000)
def down(n): return 0 if not n else 1 + down(n - 1)
thread = threading.Thread(target=lambda: print(down(20_000)), daemon=True)
start, wait = thread._started, thread.join
import _thread
_thread.start_new_thread(lambda: print(down(20_000)), ())
lock = _thread.allocate_lock()
lock.acquire()
lock.acquire(True, 0.5)
work()
"""
    assert run(program)[0] == "20000"


def test_a_module_that_is_itself_the_loop_is_looked_at_no_more() -> None:
    program = f"def one(): pass\nfor _ in range({RETURN_CALLS} + 5): one()\nwork()"
    assert run(program) == ["returns", "gone"]


def test_another_evaluator_is_left_alone() -> None:
    """As torch's Dynamo has one while what it compiles runs."""
    pytest.importorskip("torch")
    program = """
import torch, torch._dynamo
set_eval_frame = torch._C._dynamo.eval_frame.set_eval_frame
def enter(): set_eval_frame(False)
def leave(): set_eval_frame(None)
enter()
work()
leave()
print("over")
work()
"""
    printed = run(program)
    assert printed == ["returns", "gone", "over", "returns", "gone"]


def test_tracing_functions_see_nothing_of_it() -> None:
    program = """
seen = []
def trace(frame, event, argument):
    seen.append((event, frame.f_code.co_filename, frame.f_code.co_name))
def main():
    sys.settrace(trace)
    sys.setprofile(trace)
    time.sleep(0.06)
def at_exit():
    sys.settrace(None)
    sys.setprofile(None)
    print({file for _, file, name in seen if name in ("returned", "conclude")})
import atexit
atexit.register(at_exit)
main()
"""
    printed = run(program)
    assert "concluded main []" in printed
    assert printed[-1] == "set()"


def test_frames_that_an_exception_left_come_outermost_first() -> None:
    def inner() -> None:
        raise KeyError

    def outer() -> None:
        inner()

    with pytest.raises(KeyError) as caught:
        outer()
    names = [frame.f_code.co_name for frame in returning.frames_left_by(caught.value)]
    assert names[-2:] == ["outer", "inner"]


def test_daemons_are_not_waited_for() -> None:
    stopped = threading.Event()
    before = returning.is_alone()
    daemon = threading.Thread(target=stopped.wait, daemon=True)
    daemon.start()
    assert returning.is_alone() is before
    other = threading.Thread(target=stopped.wait)
    other.start()
    assert not returning.is_alone()
    stopped.set()
    other.join()
    daemon.join()
