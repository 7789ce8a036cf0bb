"""Runs tests/heap on other interpreters, with the native walker built afresh and without torch.

    python tests/interpreters.py python3.10 python3.13
    python tests/interpreters.py --sanitize python3.12

Each interpreter has a venv of its own below ``build/interpreters``, where the package is installed
as a user would install it. Options for pytest go into ``PYTEST_ADDOPTS``. An interpreter that can't
be started is left out; that none can be, and any failure, is an error.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
VENVS = REPOSITORY / "build" / "interpreters"
SOURCES = ["leakscope", "setup.py", "pyproject.toml", "README.md", "LICENSE"]
NEEDED = (
    "setuptools>=77 wheel msgspec numpy psutil Pympler networkx hypothesis pytest>=8 pytest-timeout"
)
ABOUT = "import sys; print(sys.version.split()[0] + '-debug' * hasattr(sys, 'gettotalrefcount'))"
ENGINE = """
from leakscope.capture import _returning
from leakscope.heap import _native
from leakscope.probes import _counting, _sampling
"""


def main() -> int:
    """Return 0 where the tests passed on every interpreter."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("interpreter", nargs="+")
    parser.add_argument("--sanitize", action="store_true", help="with gcc's address sanitizer")
    requested = parser.parse_args()
    found = {version: name for name in requested.interpreter if (version := version_of(name))}
    results = {}
    for version, name in found.items():
        print(f"== {version} ({name})", flush=True)
        results[version] = works(name, version, sanitize=requested.sanitize)
    for version, passed in results.items():
        print(f"{version}: {'passed' if passed else 'FAILED'}")
    return 0 if results and all(results.values()) else 1


def version_of(name: str) -> str:
    """Return the version of an interpreter; empty where it can't be started."""
    path = shutil.which(name)
    requested = [path or name, "-c", ABOUT]
    done = subprocess.run(requested, capture_output=True, text=True, check=False) if path else None
    if done is None or done.returncode:
        print(f"== {name} is left out: it can't be started here")
        return ""
    return done.stdout.strip()


def works(name: str, version: str, *, sanitize: bool) -> bool:
    """Build and install the package for an interpreter, and say whether the tests pass there."""
    folder = VENVS / (version + "-sanitized" * sanitize)
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([name, "-m", "venv", folder], check=True)
    install(python, NEEDED.split())
    with_flags = os.environ | (SANITIZED if sanitize else {})
    install(python, ["--no-deps", "--no-build-isolation", copied_to(folder)], with_flags)
    environment = os.environ | (sanitizer_loaded() if sanitize else {})
    if subprocess.run([python, "-c", ENGINE], cwd=folder, env=environment, check=False).returncode:
        print("an extension was not built, or can't be loaded")
        return False
    pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", REPOSITORY]
    pytest += ["-c", REPOSITORY / "pyproject.toml", REPOSITORY / "tests" / "heap"]
    # Elsewhere than in the repository, whose own copy of the package would be imported.
    return subprocess.run(pytest, cwd=folder, env=environment, check=False).returncode == 0


SANITIZED = {
    "CFLAGS": "-g -fsanitize=address,undefined -fno-sanitize-recover=undefined",
    "LDFLAGS": "-fsanitize=address,undefined",
}


def sanitizer_loaded() -> dict[str, str]:
    """Return what makes an interpreter, built without it, run with the sanitizer."""
    return {
        "LD_PRELOAD": f"{library('libasan.so')} {library('libstdc++.so.6')}",  # torch throws
        "PYTHONMALLOC": "malloc",  # so that every object is a block that it watches
        # Of leaks the interpreter has many of its own. What is freed and kept back, so that its use
        # is seen, would count as memory that a walk did not give back: so little of it.
        "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=1:thread_local_quarantine_size_kb=64",
    }


def library(name: str) -> str:
    """Return where gcc has a library."""
    requested = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(requested, capture_output=True, text=True, check=True).stdout.strip()


def install(
    python: Path, what: list[str | Path], environment: dict[str, str] | None = None
) -> None:
    """Install into the interpreter's venv."""
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*command, *what], env=environment, check=True)


def copied_to(folder: Path) -> Path:
    """Return a fresh copy of the sources: what is built next to them would come along otherwise."""
    copy = folder / "sources"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for name in SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(
                source, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__")
            )
        else:
            shutil.copy(source, copy)
    return copy


if __name__ == "__main__":
    sys.exit(main())
