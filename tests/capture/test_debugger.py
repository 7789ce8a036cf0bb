"""Where a thread may run a statement, and how Python 3.14 is made to."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from leakscope.capture.debugger import DebuggerError, deliver_remotely, is_a_wait

MAPS = """\
1000-2000 r-xp 00000000 00:00 1   /usr/bin/python3.11
3000-4000 r-xp 00000000 00:00 2   /usr/lib/x86_64-linux-gnu/libc.so.6
5000-6000 r-xp 00000000 00:00 3   /usr/lib/python3.11/lib-dynload/select.cpython-311.so
7000-8000 r-xp 00000000 00:00 4   /usr/lib/libcudart.so.12
"""
PYTHON = "/usr/bin/python3.11"


@pytest.mark.parametrize(
    ("frames", "waits"),
    [
        ([(0x3100, "clock_nanosleep"), (0x1100, "time_sleep")], True),
        ([(0x3100, "__futex_abstimed_wait_common"), (0x3200, "sem_clockwait"), (0x1100, "")], True),
        ([(0x3100, "epoll_wait"), (0x5100, "")], True),
        ([(0x3100, "__futex_abstimed_wait_common"), (0x3200, "pthread_cond_timedwait"),
          (0x1100, "take_gil")], False),
        ([(0x3100, "poll"), (0x7100, "cudaStreamSynchronize"), (0x1100, "")], False),
        ([(0x3100, "__lll_lock_wait_private"), (0x3200, "malloc"), (0x1100, "")], False),
        ([(0x3100, "read"), (0x3200, "_IO_getc"), (0x1100, "")], False),
        ([(0x3100, "_int_malloc"), (0x3200, "malloc"), (0x1100, "")], False),
        ([(0x1100, "_PyEval_EvalFrameDefault")], False),
        ([], False),
    ],
)  # fmt: skip
def test_a_thread_waits_only_where_the_interpreter_has_given_its_lock_away(
    frames: list[tuple[int, str]], waits: bool
) -> None:
    assert is_a_wait(frames, MAPS, PYTHON) is waits


def fake_python(folder: Path, body: str) -> str:
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_newer_pythons_are_handed_a_script_by_remote_exec(tmp_path: Path) -> None:
    """The interpreter's function takes a process number and a path, in this order."""
    python = fake_python(
        tmp_path,
        "sys.remote_exec = lambda pid, script: open(script + '.ran', 'w').write(str(pid))\n"
        "code = sys.argv[sys.argv.index('-c') + 1]\n"
        "sys.argv = ['-c', *sys.argv[sys.argv.index('-c') + 2:]]\n"
        "exec(code)",
    )
    deliver_remotely(os.getpid(), tmp_path / "enter.py", [python])
    assert (tmp_path / "enter.py.ran").read_text() == str(os.getpid())


def test_what_the_interpreter_says_against_it_is_passed_on(tmp_path: Path) -> None:
    python = fake_python(tmp_path, "sys.exit('PermissionError: not allowed')")
    with pytest.raises(DebuggerError, match="not allowed"):
        deliver_remotely(os.getpid(), tmp_path / "enter.py", [python])
