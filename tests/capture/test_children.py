"""Child processes record themselves next to their parent, and notice nothing of it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import process
from functools import partial
from multiprocessing import pool
from pathlib import Path

import pytest

import leakscope
from leakscope.capture import children
from leakscope.capture.children import ChildPlacement, with_hook
from leakscope.recording import open_run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
FORK = multiprocessing.get_context("fork")
SPAWN = multiprocessing.get_context("spawn")
PLACE = ChildPlacement("run", "{}", "root", "nowhere:begin", number=1, parent=os.getpid())
TELLS = (
    "import json, os, sys; print(json.dumps([dict(os.environ), sys.path, sys.argv, "
    "sys.orig_argv[1:], 'sitecustomize' in sys.modules]))"
)


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKSCOPE_STRICT", "0")
    return tmp_path / "run"


def profiled(out, **options):
    return leakscope.profile(out, report=False, quiet=True, **options)


def recorded(out):
    return [r for r in open_run(out).recordings if r.header.child is not None]


def live(seconds: float) -> None:
    time.sleep(seconds)


def leave(code: int) -> None:
    time.sleep(0.9)
    sys.exit(code)


def be_looked_at(path: str) -> None:
    current = multiprocessing.current_process()
    Path(path).write_text(
        json.dumps([sorted(vars(current)), current.name, current._parent_pid, dict(os.environ)])
    )


def wait_for_recordings(out, count: int) -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if len(list(out.glob("child*.journal"))) >= count:
            return
        time.sleep(0.02)


@pytest.mark.parametrize("context", [FORK, SPAWN], ids=["fork", "spawn"])
def test_a_child_that_lives_records_itself_and_is_reported_by_name_and_function(out, context):
    with profiled(out):
        process = context.Process(target=live, args=(1.2,), name="Decoder")
        process.start()
        process.join()
    (recording,) = recorded(out)
    header = recording.header
    assert (header.name, header.target) == ("Decoder", f"{__name__}.live")
    assert (header.pid, header.parent) == (process.pid, os.getpid())
    assert header.start_method == context.get_start_method()
    assert recording.end.status == "completed"


def test_a_child_that_ends_at_once_records_nothing_and_is_not_slowed_down(out):
    def seconds() -> float:
        began = time.perf_counter()
        for _ in range(10):
            process = FORK.Process(target=live, args=(0.0,))
            process.start()
            process.join()
        return time.perf_counter() - began

    plain = min(seconds() for _ in range(2))
    with profiled(out):
        followed = min(seconds() for _ in range(2))
    assert recorded(out) == []
    assert followed < plain + 10 * 0.03


def test_exit_codes_are_the_childs_own(out):
    with profiled(out):
        process = FORK.Process(target=leave, args=(3,))
        process.start()
        process.join()
    assert process.exitcode == 3
    (recording,) = recorded(out)
    assert (recording.end.status, recording.end.exit_code) == ("exit", 3)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
def test_a_child_that_is_killed_leaves_what_it_recorded_until_then(out, number):
    with profiled(out):
        process = FORK.Process(target=live, args=(60.0,))
        process.start()
        wait_for_recordings(out, 1)
        time.sleep(0.3)
        os.kill(process.pid, number)
        process.join()
    assert process.exitcode == -number
    (recording,) = recorded(out)
    assert recording.end is None
    assert recording.measurements
    assert not recording.damage


@pytest.mark.parametrize("context", [FORK, SPAWN], ids=["fork", "spawn"])
def test_a_child_finds_its_process_and_environment_as_without_us(out, tmp_path, context):
    def seen(name: str):
        path = tmp_path / name
        process = context.Process(target=be_looked_at, args=(str(path),), name="Watched")
        process.start()
        process.join()
        assert process.exitcode == 0
        assert "_bootstrap" not in vars(process)
        return json.loads(path.read_text())

    plain = seen("plain")
    with profiled(out):
        followed = seen("followed")
    assert followed == plain


def test_nothing_is_left_in_multiprocessing_and_subprocess(out):
    before = (multiprocessing.Process.start, subprocess.Popen._execute_child)
    with profiled(out):
        assert (multiprocessing.Process.start, subprocess.Popen._execute_child) != before
    assert (multiprocessing.Process.start, subprocess.Popen._execute_child) == before


def test_children_are_left_alone_where_that_is_wanted(out):
    before = multiprocessing.Process.start
    with profiled(out, children="off"):
        assert multiprocessing.Process.start == before
        subprocess.call([sys.executable, "-c", "import time; time.sleep(1)"])
    assert recorded(out) == []


def test_a_program_of_subprocess_records_itself(out):
    code = "import time; time.sleep(1.3)"
    with profiled(out):
        assert subprocess.call([sys.executable, "-c", code, "an-argument"]) == 0
    (recording,) = recorded(out)
    assert recording.header.start_method == "subprocess"
    assert recording.header.target.endswith("an-argument")
    assert recording.end is not None


def test_a_child_of_os_fork_records_itself(out):
    with profiled(out):
        pid = os.fork()
        if pid == 0:
            time.sleep(1.2)
            os._exit(5)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 5
    (recording,) = recorded(out)
    assert (recording.header.pid, recording.header.start_method) == (pid, "os.fork")


@pytest.mark.parametrize("path", [None, "/somewhere"], ids=["no path", "a path"])
def test_a_program_of_subprocess_finds_all_as_without_us(tmp_path, path):
    environment = {"PATH": os.environ["PATH"], "OTHER": "1"}
    environment |= {"PYTHONPATH": path} if path else {}

    def reported(environment) -> list[object]:
        done = subprocess.run(
            [sys.executable, "-c", TELLS, "a", "b"],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return json.loads(done.stdout)

    plain, hooked = reported(environment), reported(with_hook(environment, PLACE))
    assert hooked[:4] == plain[:4]


def test_a_sitecustomize_of_the_installation_runs_as_well(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.of_the_site = __file__")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print(sys.of_the_site)"],
        env=with_hook(environment, PLACE),
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()) == tmp_path / "sitecustomize.py"


@pytest.mark.parametrize(
    ("command", "is_followed"),
    [
        (["python-of-ours", "train.py"], True),
        (["python-of-ours", "-u", "-m", "torch.distributed.run", "train.py"], True),
        (["python-of-ours", "-I", "train.py"], False),
        (["python-of-ours", "-uE", "train.py"], False),
        (["python-of-ours", "-m", "leakscope", "report", "run"], False),
        (["python-of-ours", "/x/torch/_inductor/compile_worker/__main__.py"], False),
        (["sh", "-c", "exit"], False),
        (["no-such-program"], False),
    ],
)
def test_programs_of_this_python_are_followed(command, is_followed):
    words = [sys.executable if word == "python-of-ours" else word for word in command]
    assert children._is_this_python(words, None, dict(os.environ)) is is_followed


def test_a_script_that_begins_with_this_python_is_followed(tmp_path):
    script = tmp_path / "launch"
    script.write_text(f"#!{sys.executable}\nprint(1)\n")
    assert children._is_this_python([str(script)], None, dict(os.environ))
    script.write_text("#!/bin/sh\nexit\n")
    assert not children._is_this_python([str(script)], None, dict(os.environ))


def test_of_very_many_children_ever_fewer_are_recorded():
    hooks = children.ChildHooks(PLACE)
    places = [hooks.next() for _ in range(1100)]
    numbers = [place.number for place in places if place is not None]
    assert numbers == [*range(1, 33), 64, 128, 256, 512, 1024]


def test_a_child_that_asks_for_a_recording_has_it_next_to_its_parents(out):
    with profiled(out):
        process = FORK.Process(target=profile_by_itself)
        process.start()
        process.join()
    assert process.exitcode == 0
    (recording,) = recorded(out)
    assert recording.measurements


def profile_by_itself() -> None:
    with leakscope.profile(report=False):
        time.sleep(0.1)


def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("size", [1, 7])
def test_each_call_that_a_pool_hands_out_with_others_counts_as_a_task(size):
    chunk = tuple((number,) for number in range(size))
    star = (1, 0, pool.mapstar, ((double, chunk),), {})
    stars = (1, 0, pool.starmapstar, ((double, chunk),), {})
    assert children.calls_of(star) == children.calls_of(stars) == size
    item = process._CallItem(1, partial(process._process_chunk, double), (chunk,), {})
    assert children.calls_of(item) == size


@pytest.mark.parametrize(
    "task",
    [
        (1, 0, double, ((1, 2, 3),), {}),
        (1, 0, double, ([1, 2, 3],), {}),
        process._CallItem(1, double, ((1, 2, 3),), {}),
        process._CallItem(1, partial(double, 4), (), {}),
        None,
        "a thing of the program's",
    ],
)
def test_any_other_task_is_one_call(task):
    assert children.calls_of(task) == 1
