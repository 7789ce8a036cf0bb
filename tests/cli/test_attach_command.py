"""``leakscope attach PID``: a process that nobody prepared is recorded, and is as before."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LEAKSCOPE = [sys.executable, "-m", "leakscope"]
PATIENCE_S = 120.0


def _why_not() -> str:
    if not sys.platform.startswith("linux"):
        return "asks /proc"
    if sys.version_info < (3, 14) and shutil.which("gdb") is None:
        return "gdb isn't installed"
    child = subprocess.Popen(["sleep", "60"])
    try:
        with Path(f"/proc/{child.pid}/mem").open("rb"):
            return ""
    except OSError:
        return "processes may not be traced here"
    finally:
        child.kill()
        child.wait()


_IN_THE_WAY = _why_not()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(_IN_THE_WAY), reason=_IN_THE_WAY or "-"),
    pytest.mark.timeout(900),
]

LEAKING = """
import os, time
history = []
print("up", flush=True)
while not os.path.exists("enough"):
    history.append(bytearray(20_000))
    time.sleep(0.01)
print("kept", len(history) > 0, flush=True)
"""
TELLING = """
import gc, json, os, signal, sys, threading, time
print("up", flush=True)

def state():
    gc.collect()
    def named(things):
        return [repr(type(each)) if callable(each) else repr(each) for each in things]
    return {
        "modules": sorted(n for n in sys.modules if n.split(".")[0] not in sys.stdlib_module_names
                          and not n.startswith("_sysconfigdata")),
        "path": sys.path, "finders": named(sys.meta_path), "callbacks": named(gc.callbacks),
        "threads": [t.name for t in threading.enumerate()],
        "lists": sum(type(o) is list and bool(o) and all(callable(f) and
                 str(getattr(f, "__module__", "")).startswith("leakscope") for f in o)
                 for o in gc.get_objects()),
        "known": sorted(p for p in sys.path_importer_cache if "leakscope" in p),
        "handlers": [repr(signal.getsignal(n)) for n in range(1, 32)],
        "tasks": len(os.listdir("/proc/self/task")),
        "hooks": [repr(sys.gettrace()), repr(sys.getprofile()), repr(sys.excepthook)],
    } | torches()

def torches():
    if "torch" not in sys.modules: return {}
    import torch
    from torch.utils.data import dataloader
    methods = [torch.optim.Optimizer.step, torch.nn.Module.__call__, torch.nn.Module.train,
               torch.Tensor.backward, dataloader.DataLoader.__iter__,
               dataloader._MultiProcessingDataLoaderIter.__init__,
               dataloader._SingleProcessDataLoaderIter.__init__,
               dataloader._BaseDataLoaderIter.__next__]
    return {"torch": [id(method) for method in methods],
            "torch hooks": [len(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks),
                            len(torch.nn.modules.module._global_forward_hooks)]}

before = state()
while not os.path.exists("enough"):
    time.sleep(0.01)
time.sleep(0.5)
after = state()
print(json.dumps({k: [before[k], after[k]] for k in before if before[k] != after[k]}), flush=True)
"""
TRAINING = """
import hashlib, os, sys, time
import torch
torch.set_num_threads(1); torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(320, 32), torch.randn(320, 1))
wanted, steps, losses = int(sys.argv[1]), 0, hashlib.sha256()
print("up", flush=True)
while steps < wanted or (not wanted and not os.path.exists("enough")):
    for x, y in torch.utils.data.DataLoader(data, batch_size=32, shuffle=True):
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        losses.update(loss.detach().numpy().tobytes())
        steps += 1
        if not wanted: time.sleep(0.005)
print(steps, losses.hexdigest(), flush=True)
"""
BLOCKED = """
import ctypes, os
pipe = os.open("pipe", os.O_RDWR)
print("up", flush=True)
ctypes.CDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)
while not os.path.exists("enough"):
    pass
import sys
print("leakscope" in sys.modules, flush=True)
"""
IDLE = """
import os, threading, time
print("up", flush=True)
def wait():
    while not os.path.exists("enough"): time.sleep(0.05)
thread = threading.Thread(target=wait); thread.start(); thread.join()
"""


@contextmanager
def program(folder: Path, source: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "program.py").write_text(source)
    process = subprocess.Popen(
        [sys.executable, "program.py", *words],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], folder: Path) -> tuple[str, str]:
    """Let the program end by itself, and return what it printed."""
    (folder / "enough").touch()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return out, err


def attach(folder: Path, pid: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LEAKSCOPE, "attach", str(pid), *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def report_of(run: Path) -> Any:
    return json.loads((run / "report.json").read_text())


def nothing_is_left(pid: int) -> bool:
    return not list(Path("/tmp").glob(f"leakscope-attach-{pid}-*"))


def test_a_leak_is_found_with_its_line(tmp_path: Path) -> None:
    with program(tmp_path, LEAKING) as process:
        done = attach(tmp_path, process.pid, "--for", "20s", "--out", "run")
        assert done.returncode == 0, done.stderr
        assert ended(process, tmp_path) == ("kept True\n", "")
    found = report_of(tmp_path / "run")
    assert found["verdict"] == "leak"
    culprit = found["culprits"][0]
    assert culprit["name"] == "history"
    assert "program.py:6" in json.dumps(culprit) or "program.py:6" in done.stderr
    assert nothing_is_left(process.pid)


@pytest.mark.parametrize("imports", ["", "import torch, torch.utils.data\n"])
def test_the_process_is_as_before(tmp_path: Path, imports: str) -> None:
    with program(tmp_path, imports + TELLING) as process:
        done = attach(tmp_path, process.pid, "--for", "3s", "--out", "run")
        assert done.returncode == 0, done.stderr
        out, err = ended(process, tmp_path)
    assert json.loads(out) == {}
    assert err == ""


def test_a_training_computes_the_same_however_often_it_is_visited(tmp_path: Path) -> None:
    with program(tmp_path, TRAINING, "0") as process:
        for visit in range(20):
            done = attach(
                tmp_path, process.pid, "--for", "0.1", "--out", f"run{visit}", "--no-report"
            )
            assert done.returncode == 0, done.stderr
        out, err = ended(process, tmp_path)
    assert err == ""
    (tmp_path / "enough").unlink()
    with program(tmp_path, TRAINING, out.split()[0]) as process:
        assert ended(process, tmp_path) == (out, "")


def test_once_tells_what_holds_most(tmp_path: Path) -> None:
    with program(tmp_path, LEAKING) as process:
        time.sleep(1.0)
        done = attach(tmp_path, process.pid, "--once")
        assert done.returncode == 0, done.stderr
        assert ended(process, tmp_path)[1] == ""
    assert "history  (list, " in done.stdout


def test_a_main_thread_that_waits_for_another_is_entered(tmp_path: Path) -> None:
    with program(tmp_path, IDLE) as process:
        done = attach(tmp_path, process.pid, "--once")
        assert done.returncode == 0, done.stderr
        ended(process, tmp_path)


def test_detach_ends_what_another_terminal_records(tmp_path: Path) -> None:
    with program(tmp_path, LEAKING) as process, recording(tmp_path, process.pid) as other:
        again = attach(tmp_path, process.pid)
        assert again.returncode == 1
        assert "is recorded already" in again.stderr
        done = attach(tmp_path, process.pid, "--detach")
        assert done.returncode == 0, done.stderr
        assert other.wait(PATIENCE_S) == 0
        assert attach(tmp_path, process.pid, "--detach").returncode == 1
        assert ended(process, tmp_path)[1] == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_whoever_attached_may_go_at_any_time(tmp_path: Path, number: signal.Signals) -> None:
    with program(tmp_path, TELLING) as process:
        with recording(tmp_path, process.pid) as other:
            other.send_signal(number)
            other.wait(PATIENCE_S)
            until = time.monotonic() + PATIENCE_S
            while not nothing_is_left(process.pid) and time.monotonic() < until:
                time.sleep(0.1)
        out, err = ended(process, tmp_path)
    assert json.loads(out) == {}
    assert err == ""
    assert nothing_is_left(process.pid)


def test_a_program_that_ends_has_its_recording_closed(tmp_path: Path) -> None:
    with program(tmp_path, LEAKING) as process, recording(tmp_path, process.pid) as other:
        ended(process, tmp_path)
        assert other.wait(PATIENCE_S) == 0
    assert report_of(tmp_path / "run")["run"]["ended"] == "completed"


def test_what_reaches_no_safe_point_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with program(tmp_path, BLOCKED) as process:
        done = attach(tmp_path, process.pid, "--wait", "2")
        assert done.returncode == 3
        assert "didn't reach a safe point within 2 s" in done.stderr
        assert nothing_is_left(process.pid)
        with (tmp_path / "pipe").open("wb") as pipe:
            pipe.write(b"x")
        assert ended(process, tmp_path) == ("False\n", "")


def test_a_process_that_is_stopped_is_not_touched(tmp_path: Path) -> None:
    with program(tmp_path, LEAKING) as process:
        process.send_signal(signal.SIGSTOP)
        done = attach(tmp_path, process.pid)
        assert done.returncode == 1
        assert f"kill -CONT {process.pid}" in done.stderr
        process.send_signal(signal.SIGCONT)
        assert ended(process, tmp_path)[1] == ""


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="changes users")
def test_what_may_not_be_entered_is_watched_from_outside(tmp_path: Path) -> None:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("needs setpriv")
    drops = [setpriv, "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    (tmp_path / "hidden.py").write_text(
        "import ctypes, os, time\nos.setuid(65534)\nctypes.CDLL(None).prctl(4, 0)\n"
        "print('up', flush=True)\ntime.sleep(120)\n"
    )
    hidden = subprocess.Popen(
        [sys.executable, str(tmp_path / "hidden.py")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert hidden.stdout is not None
        hidden.stdout.readline()
        done = subprocess.run(
            [*drops, *LEAKSCOPE, "attach", str(hidden.pid), "--for", "3s", "--out", "run"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    finally:
        hidden.kill()
        hidden.communicate()
    assert done.returncode == 0, done.stderr
    assert "CAP_SYS_PTRACE" in done.stderr
    assert "watched from outside instead" in done.stderr
    assert (tmp_path / "run" / "report.json").exists()


@contextmanager
def recording(folder: Path, pid: int) -> Iterator[subprocess.Popen[bytes]]:
    """Attach until somebody ends it."""
    other = subprocess.Popen(
        [*LEAKSCOPE, "attach", str(pid), "--quiet", "--out", "run"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        until = time.monotonic() + PATIENCE_S
        while not list((folder / "run").glob("*.journal")):
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(1.0)
        yield other
    finally:
        other.kill()
        other.wait()
