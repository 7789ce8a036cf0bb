"""Records programs as ``leakscope run`` does, each in a fork of a process that has imported torch.

What is recorded is the child of ``leakscope run`` itself (``leakscope.capture.launch``); only
the seconds of its imports are saved. The reports are made by who asks, from the recordings.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from leakscope.analysis import analyse
from leakscope.recording import open_run
from leakscope.report.json import render_json

BOOT = "from snippet_recorder import serve; serve()"
IMPORTED = (
    "torch",
    "torch.utils.data",
    "torch._dynamo",
    "leakscope.cli.run",
    "leakscope.heap",
    "leakscope.capture.launch",
    "leakscope.capture.session",
)


class SnippetRecorder:
    """Records scripts one after the other; a context manager."""

    def __init__(self) -> None:
        here = Path(__file__)
        paths = [str(here.parents[1]), str(here.parent), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    def record(self, folder: Path, script: str = "train.py", timeout_s: float = 120.0) -> Path:
        """Return the run directory of a script in ``folder`` once it has ended, however it ended.

        Raises:
            TimeoutError: it took longer, and was killed; the message is what it printed.

        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(folder), script, timeout_s]), file=self._process.stdin, flush=True)
        if json.loads(self._process.stdout.readline()) < 0:
            raise TimeoutError((folder / "output").read_text())
        return folder / "run"

    def report(self, folder: Path, script: str = "train.py") -> dict[str, Any]:
        """Return what ``report.json`` holds once a script in ``folder`` has been recorded."""
        report = analyse(open_run(self.record(folder, script)))
        document: dict[str, Any] = json.loads(render_json(report))
        return document

    def __enter__(self) -> SnippetRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def serve() -> None:
    """Import what is slow to import, then record what is requested."""
    import importlib

    for module in IMPORTED:
        importlib.import_module(module)
    for line in sys.stdin:
        folder, script, timeout_s = json.loads(line)
        supervisor = os.getpid()
        child = os.fork()
        if not child:
            become(Path(folder), script, supervisor)
        print(json.dumps(wait(child, timeout_s)), flush=True)


def wait(child: int, timeout_s: float) -> int:
    """Return a child's exit code; one that takes too long is killed."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, 9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def become(folder: Path, script: str, supervisor: int) -> NoReturn:
    """Be the child of ``leakscope run script``."""
    from leakscope.capture import launch
    from leakscope.capture.options import SessionOptions
    from leakscope.capture.run_directory import Program, this_world
    from leakscope.cli.run import prepare

    os.setpgid(0, 0)
    os.chdir(folder)
    atexit.register(leave)  # first, so that it comes last: the session closes before
    output = os.open("output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    program = Program("script", script)
    options = SessionOptions(out=Path("run"), project_root=folder, script=script, quiet=True)
    directory = prepare(program, options, this_world())
    reported = launch.Launch(program, str(directory.path.absolute()), options.to_json(), supervisor)
    command = reported.command([sys.executable])
    sys.argv = command[2:]
    sys.path.append("")
    sys.modules["__main__"].__dict__.pop("serve")
    launch.main(set(sys.modules))
    sys.exit(0)


def leave() -> None:
    """End without taking torch apart, which takes longer than a snippet."""
    multiprocessing.util._exit_function()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
