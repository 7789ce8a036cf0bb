"""A program under `leakscope run` behaves as under `python`: every case is run both ways."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def run(words: list[str], folder: Path, *, stdin: str = "", both_streams: bool = False) -> Outcome:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if both_streams else subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
    )
    return Outcome(done.returncode, done.stdout, done.stderr or "")


def plain_and_wrapped(
    words: list[str], folder: Path, *, options: tuple[str, ...] = (), **how: object
) -> tuple[Outcome, Outcome]:
    ours = ["-m", "leakscope", "run", "-q", "--no-report", "--out", str(folder.parent / "run")]
    plain = run([*options, *words], folder, **how)  # type: ignore[arg-type]
    wrapped = run([*options, *ours, "--force", *words], folder, **how)  # type: ignore[arg-type]
    return plain, wrapped


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


SCRIPTS = {
    "arguments that look like ours": "import sys; print(sys.argv, sys.orig_argv[1:])",
    "import path": "import sys; print(sys.path)",
    "main module": (
        "import sys\n"
        "assert sys.modules['__main__'].__dict__ is globals()\n"
        "for name in sorted(globals()):\n"
        "    if name not in ('__loader__', 'name'): print(name, globals()[name])\n"
        "print(__loader__.name, __loader__.path, type(__loader__))\n"
    ),
    "interpreter flags and modules": (
        "import sys; print(sys.flags, sys.warnoptions, sys._xoptions); "
        "print('click' in sys.modules, 'torch' in sys.modules)"
    ),
    "environment": "import os; print(sorted(os.environ.items()))",
    "signals and limits": (
        "import signal, resource\n"
        "print([signal.getsignal(n) for n in sorted(signal.valid_signals())"
        " if not callable(signal.getsignal(n))])\n"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE))\n"
    ),
    "process group": "import os; print(os.getpgrp() == os.getpgid(os.getppid()))",
    "pickle of a class of main": (
        "import pickle\n"
        "class Model: pass\n"
        "data = pickle.dumps(Model())\n"
        "print(data, type(pickle.loads(data)) is Model)\n"
    ),
    "source of main": "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f))",
    "annotations": "x: int = 3\ndef f(a: undefined_name=1): ...\nprint(__annotations__)",
    "warning": "import warnings; warnings.warn('careful')",
    "deprecation in main": "import warnings; warnings.warn('old', DeprecationWarning)",
    "stdin": "import sys; print(sys.stdin.read())",
    "exception": "def f():\n    raise ValueError('bad')\nprint('before')\nf()",
    "chained exception": (
        "def f():\n    try:\n        {}['a']\n    except KeyError as e:\n"
        "        raise ValueError('bad') from e\n"
        "try:\n    f()\nexcept ValueError:\n    1 / 0\n"
    ),
    "exception with a note": "class Odd(Exception):\n    __module__ = 'x.y'\nraise Odd('a\\nb')",
    "exception whose str raises": (
        "class Odd(Exception):\n    def __str__(self): raise OSError\nraise Odd()"
    ),
    "name with suggestion": "import sys\nsys.exti(3)",
    "syntax error": "print('no')\ndef f(:\n    pass\n",
    "indentation error": "if True:\nprint(1)\n",
    "syntax error in an import": "import broken",
    "import error": "import there_is_no_such_module",
    "excepthook of the program": (
        "import sys\nsys.excepthook = lambda kind, value, tb: "
        "print('hook', kind, value, tb.tb_lineno, tb.tb_next)\nraise ValueError('bad')"
    ),
    "excepthook that raises": (
        "import sys\ndef hook(*_):\n    raise KeyError('hook')\nsys.excepthook = hook\n"
        "raise ValueError('bad')"
    ),
    "excepthook that exits": (
        "import sys\nsys.excepthook = lambda *_: sys.exit(7)\nraise ValueError('bad')"
    ),
    "excepthook deleted": "import sys\ndel sys.excepthook\nraise ValueError('bad')",
    "excepthook seen at exit": (
        "import atexit, sys\n"
        "atexit.register(lambda: print(sys.excepthook is sys.__excepthook__,"
        " sys.last_value, sys.last_traceback.tb_lineno))\nraise ValueError('bad')"
    ),
    "stack of the traceback": (
        "import sys, traceback\nsys.excepthook = lambda k, v, t: print(traceback.format_tb(t))\n1/0"
    ),
    "exit with a number": "raise SystemExit(3)",
    "exit with a big number": "raise SystemExit(256 + 5)",
    "exit with a negative number": "raise SystemExit(-1)",
    "exit with none": "import sys; sys.exit()",
    "exit with a text": "import sys; print('out'); sys.exit('sorry')",
    "exit with an object": "import sys; sys.exit([1, 2])",
    "exit in a function": "def f():\n    exit(4)\nf()",
    "exit at once": "import os; print('lost unless flushed', flush=True); os._exit(9)",
    "exit handlers": (
        "import atexit\n"
        "for i in range(3): atexit.register(print, 'handler', i)\n"
        "atexit.register(lambda: print(sorted(n for n in globals() if n[0] == '_')))\n"
        "print('end')"
    ),
    "thread outlives main": (
        "import threading, time, atexit\natexit.register(print, 'handler')\n"
        "def work():\n    time.sleep(0.2); print('worked', threading.main_thread().is_alive())\n"
        "threading.Thread(target=work).start(); print('main ends')"
    ),
    "executor left open": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(2); print(pool.submit(pow, 2, 3).result())"
    ),
    "thread raises": (
        "import threading\ndef work(): raise ValueError('in thread')\n"
        "t = threading.Thread(target=work, name='t'); t.start(); t.join()"
    ),
    "killed by signal": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "ended by SIGTERM": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "segmentation fault": (
        "import resource, ctypes\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "ctypes.string_at(0)"
    ),
    "aborted": (
        "import resource, os\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\nos.abort()"
    ),
    "keyboard interrupt raised": "def f():\n    raise KeyboardInterrupt\nf()",
    "interrupt caught": (
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "    import time; time.sleep(5)\n"
        "except KeyboardInterrupt:\n    print('caught'); raise SystemExit(6)"
    ),
    "base exception": "class Stop(BaseException): pass\nraise Stop('now')",
    "fork": (
        "import os, sys, atexit\natexit.register(lambda: print('handler', flush=True))\n"
        "child = os.fork()\n"
        "if child: os.waitpid(child, 0)\n"
        "print('end', bool(child), flush=True)"
    ),
    "asyncio": "import asyncio\nasync def f(): print('ran')\nasyncio.run(f())",
    "module shadowed by the folder": "import queue, json; print(queue.__file__, queue.OURS)",
    "no newline, tabs, form feed": "if 1:\n\tprint('tab')\n\f\nprint('end')",
    "future import": "from __future__ import annotations\nx: nope = 1\nprint(__annotations__)",
    "no future import of ours": "def f(a: int): ...\nprint(f.__annotations__)",
    "large output": "print('x' * 1_000_000)",
    "closed stdout": "import sys; sys.stdout.close()",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_behaves_as_under_python(name: str, folder: Path) -> None:
    (folder / "train.py").write_text(SCRIPTS[name])
    (folder / "broken.py").write_text("x = = 1\n")
    if "shadowed" in name:
        (folder / "queue.py").write_text("OURS = True\n")
    words = ["train.py", "--out", "x", "-m", "--", "-c"]
    plain, wrapped = plain_and_wrapped(words, folder, stdin="a line\nanother")
    assert wrapped == plain


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups are newer")
def test_exception_group_is_printed_as_python_prints_it(folder: Path) -> None:
    (folder / "train.py").write_text(
        "def f():\n    inner = ExceptionGroup('x', [KeyError()])\n"
        "    raise ExceptionGroup('many', [ValueError(1), inner])"
        "\nerror = None\ntry:\n    f()\nexcept* KeyError as e:\n    e.add_note('note'); raise\n"
    )
    plain, wrapped = plain_and_wrapped(["train.py"], folder)
    assert wrapped == plain
    assert "Exception Group" in wrapped.err


@pytest.mark.parametrize("name", ["exception", "exit with a text", "exit handlers"])
def test_output_and_traceback_keep_their_order(name: str, folder: Path) -> None:
    (folder / "train.py").write_text(SCRIPTS[name])
    plain, wrapped = plain_and_wrapped(["train.py"], folder, both_streams=True)
    assert wrapped == plain


@pytest.mark.parametrize(
    "options",
    [
        ("-u",),
        ("-O", "-W", "error::UserWarning"),
        ("-Xdev",),
        ("-X", "utf8=0", "-bb"),
        ("-sB",),
        ("-OO", "-X", "faulthandler"),
    ],
)
def test_interpreter_options_reach_the_program(options: tuple[str, ...], folder: Path) -> None:
    (folder / "train.py").write_text(
        "import sys, faulthandler\n"
        "print(sys.flags, sys.warnoptions, sys._xoptions, sys.orig_argv)\n"
        "print(faulthandler.is_enabled(), __debug__, sys.stdout.write_through, sys.path)"
    )
    plain, wrapped = plain_and_wrapped(["train.py"], folder, options=options)
    assert wrapped == plain


@pytest.mark.skipif(sys.version_info < (3, 11), reason="-P is newer")
def test_safe_path_is_respected(folder: Path) -> None:
    (folder / "train.py").write_text("import sys; print(sys.path, sys.flags)")
    plain, wrapped = plain_and_wrapped(["train.py"], folder, options=("-P",))
    assert wrapped == plain


def test_script_in_another_folder_reached_by_a_link(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "real.py").write_text(
        "import sys, beside; print(sys.argv, sys.path[0], __file__); 1 / 0"
    )
    (folder / "sub" / "beside.py").write_text("")
    (folder / "link.py").symlink_to("sub/real.py")
    for script in ("link.py", "./sub/../link.py", "sub/real.py", str(folder / "link.py")):
        plain, wrapped = plain_and_wrapped([script, "a"], folder)
        assert wrapped == plain


def make_package(folder: Path) -> None:
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "beside.py").write_text("value = 1\n")
    (package / "train.py").write_text(
        "import sys\nfrom . import beside\n"
        "print(sys.argv, sys.path[0], sys.orig_argv[-1])\n"
        "print(__name__, __file__, __package__, __spec__.name, __cached__, __builtins__)\n"
        "print(sys.modules['__main__'].__dict__ is globals())\n"
        "if '--fail' in sys.argv:\n    raise ValueError('bad')\n"
    )
    (package / "__main__.py").write_text("import sys; print('package', sys.argv, __package__)")


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "package.train", "--out", "x"],
        ["-mpackage.train", "-m", "y"],
        ["-m", "package", "-c"],
        ["-m", "package.train", "--fail"],
        ["-m", "package.missing"],
        ["-m", "nothing.at.all"],
        ["-m", "package.beside", "-h"],
    ],
)
def test_module_behaves_as_under_python(words: list[str], folder: Path) -> None:
    make_package(folder)
    plain, wrapped = plain_and_wrapped(words, folder)
    assert wrapped == plain


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "import sys; print(sys.argv, sys.path[0] == '', sys.orig_argv[1:])", "--out", "x"],
        ["-c", "print(sorted(globals()), __spec__, __loader__)"],
        ["-cprint(1)"],
        ["-c", "def f():\n    1 / 0\nf()"],
        ["-c", "print(1"],
        ["-c", "raise SystemExit('sorry')"],
        ["-c", ""],
        ["-c", "print('é\U0001f600')"],
    ],
)
def test_code_behaves_as_under_python(words: list[str], folder: Path) -> None:
    plain, wrapped = plain_and_wrapped(words, folder)
    assert wrapped == plain


def test_folder_and_zip_with_a_main_run_as_under_python(folder: Path) -> None:
    source = "import sys, beside; print(sys.argv, sys.path[0], __name__, __package__); 1 / 0"
    (folder / "app").mkdir()
    (folder / "app" / "__main__.py").write_text(source)
    (folder / "app" / "beside.py").write_text("")
    with zipfile.ZipFile(folder / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", source)
        archive.writestr("beside.py", "")
    for target in ("app", "app.pyz"):
        plain, wrapped = plain_and_wrapped([target, "-x"], folder)
        assert wrapped == plain
        assert "ZeroDivisionError" in wrapped.err


def test_compiled_script_runs(folder: Path) -> None:
    (folder / "train.py").write_text("import sys; print(__file__, sys.argv, type(__loader__))")
    subprocess.run(
        [sys.executable, "-m", "compileall", "-b", "-q", "train.py"], cwd=folder, check=True
    )
    plain, wrapped = plain_and_wrapped(["train.pyc"], folder)
    assert plain.code == 0
    assert wrapped == plain


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing_finds_the_program_again(method: str, folder: Path) -> None:
    (folder / "train.py").write_text(
        "import multiprocessing as mp, os, sys\n"
        "class Item:\n    pass\n"
        "def work(item):\n"
        "    return type(item).__module__, __name__, sys.argv, os.path.basename(__file__)\n"
        "if __name__ == '__main__':\n"
        f"    with mp.get_context({method!r}).Pool(1) as pool:\n"
        "        print(pool.map(work, [Item()]))\n"
    )
    plain, wrapped = plain_and_wrapped(["train.py", "a"], folder)
    assert plain.code == 0, plain.err
    assert wrapped == plain


def test_spawn_works_for_a_module_too(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "train.py").write_text(
        "import multiprocessing as mp\ndef work(x):\n    return __name__, x\n"
        "if __name__ == '__main__':\n"
        "    with mp.get_context('spawn').Pool(1) as pool:\n        print(pool.map(work, [1]))\n"
    )
    plain, wrapped = plain_and_wrapped(["-m", "package.train"], folder)
    assert plain.code == 0, plain.err
    assert wrapped == plain


def test_inherited_descriptors_reach_the_program(folder: Path) -> None:
    (folder / "train.py").write_text("import os; os.write(3, b'to three')")
    run_path = folder.parent / "run"
    shell = f'exec "$0" -m leakscope run -q --no-report --out "{run_path}" train.py 3>three'
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    subprocess.run(["sh", "-c", shell, sys.executable], cwd=folder, check=True, env=environment)
    assert (folder / "three").read_text() == "to three"


def test_switched_off_it_is_python_itself(folder: Path) -> None:
    (folder / "train.py").write_text("import sys; print('leakscope' in sys.modules, sys.argv)")
    done = subprocess.run(
        [sys.executable, "-m", "leakscope", "run", "--out", "run", "train.py", "--force"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT), LEAKSCOPE="off"),
    )
    assert done.stdout == "False ['train.py', '--force']\n"
    assert not (folder / "run").exists()
