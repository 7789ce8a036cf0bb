"""A process that has imported what is slow to import, and forks for every program it is to run.

What starts so is a Python program in a process of its own, with a second or two saved. It is not
for tests of how a program starts, nor for programs that are profiled: ``leakscope run`` starts
those again, as it does for users.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str

    def well(self) -> Ended:
        """Return itself if the program ended without a fault."""
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


class Warm:
    """Runs programs in forks of a process that has imported some modules."""

    def __init__(self, *modules: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        words: list[str],
        folder: Path,
        more: dict[str, str] | None = None,
        timeout_s: float = 240.0,
    ) -> Ended:
        """Run ``python`` with these words: a script or ``-m`` and a module, then its arguments.

        Raises:
            TimeoutError: If the program took longer, and was killed.

        """
        with tempfile.TemporaryDirectory(prefix="warm-") as scratch:
            reported = {"words": words, "folder": str(folder), "more": more or {}}
            answer = self._ask({**reported, "streams": scratch, "timeout_s": timeout_s})
            out, err = (Path(scratch, name).read_text() for name in ("out", "err"))
        if answer is None:
            raise TimeoutError(f"{words} took more than {timeout_s:g} s")
        return Ended(answer, out, err)

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def _ask(self, question: dict[str, Any]) -> int | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        code: int | None = json.loads(self._process.stdout.readline())
        return code


def main() -> None:
    """Import what is named, then run what is requested, one after the other."""
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        question = json.loads(line)
        child = os.fork()
        if not child:
            become(question)
        print(json.dumps(wait(child, question["timeout_s"])), flush=True)


def wait(child: int, timeout_s: float) -> int | None:
    """Return a child's exit code, negative where a signal ended it; none if it was killed."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, 9)
    os.waitpid(child, 0)
    return None


def become(question: dict[str, Any]) -> None:
    """Be the program; what it leaves for the end of the interpreter is done as well."""
    os.setpgid(0, 0)
    os.chdir(question["folder"])
    os.environ.update(question["more"])
    streams = Path(question["streams"])
    for number, name in enumerate(("out", "err"), 1):
        os.dup2(os.open(streams / name, os.O_WRONLY | os.O_CREAT), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    run_words(question["words"])


def run_words(words: list[str]) -> None:
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path[0] = str(Path(words[0]).parent)
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
