"""What is released: sources hold what a build needs, wheels what a run needs, and no more."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import leakscope

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = ROOT / "leakscope"
DATA = {".pyi", ".typed", ".j2", ".js", ".css", ".toml"}
BUILD = """
import sys
from setuptools import build_meta
print(getattr(build_meta, f"build_{sys.argv[1]}")(sys.argv[2]))
"""


def build(what: str, sources: Path, into: Path, **environment: str) -> Path:
    into.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", BUILD, what, str(into)],
        cwd=sources,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return into / done.stdout.splitlines()[-1]


def files(suffixes: set[str]) -> set[str]:
    """Return which files of these kinds the package has in this tree."""
    found = (path for path in PACKAGE.rglob("*") if path.suffix in suffixes)
    kept = (path for path in found if "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in kept}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("setuptools", minversion="77", reason="builds need setuptools 77 or newer")
    return tmp_path_factory.mktemp("release")


@pytest.fixture(scope="module")
def sources(folder: Path) -> Path:
    """Return the source distribution of this tree."""
    copy = folder / "copy"
    unbuilt = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, copy / "leakscope", ignore=unbuilt)
    shutil.copytree(ROOT / "tests" / "release", copy / "tests", ignore=unbuilt)
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, copy)
    return build("sdist", copy, folder / "sdist")


@pytest.fixture(scope="module")
def unpacked(sources: Path, folder: Path) -> Path:
    with tarfile.open(sources) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (top,) = (folder / "unpacked").iterdir()
    return top


@pytest.fixture(scope="module")
def pure_wheel(unpacked: Path, folder: Path) -> Path:
    """Return the wheel without C, built from the source distribution."""
    return build("wheel", unpacked, folder / "pure", LEAKSCOPE_PURE="1")


def test_sources_hold_what_a_build_needs_and_no_more(unpacked: Path) -> None:
    held = {p.relative_to(unpacked).as_posix() for p in unpacked.rglob("*") if p.is_file()}
    made = {"PKG-INFO", "setup.cfg"} | {name for name in held if ".egg-info/" in name}
    needed = {"pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"}
    assert held - made == needed | files({".py", ".c", ".h"} | DATA)


def test_a_wheel_holds_what_a_run_needs_and_no_more(pure_wheel: Path) -> None:
    with zipfile.ZipFile(pure_wheel) as archive:
        held = set(archive.namelist())
    information = {name for name in held if PurePosixPath(name).parts[0].endswith(".dist-info")}
    assert held - information == files({".py"} | DATA)
    assert {PurePosixPath(name).name for name in information} >= {"LICENSE", "entry_points.txt"}


def test_the_wheel_without_c_fits_every_platform(pure_wheel: Path) -> None:
    assert pure_wheel.name == f"leakscope-{leakscope.__version__}-py3-none-any.whl"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the extensions are for Linux")
def test_sources_build_every_extension(unpacked: Path, folder: Path) -> None:
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    with zipfile.ZipFile(build("wheel", unpacked, folder / "native")) as archive:
        held = {PurePosixPath(name) for name in archive.namelist()}
    built = {
        str(path.with_name(path.name.partition(".")[0])) for path in held if path.suffix == ".so"
    }
    assert built == {stub.removesuffix(".pyi") for stub in files({".pyi"})}


def imported(paths: Iterator[Path]) -> set[str]:
    """Return the top names of what modules import, by statement or by name."""
    names: set[str] = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
            elif isinstance(node, ast.Constant) and node.value in ("tomli", "tomllib"):
                names.add(str(node.value))
    return {name.partition(".")[0] for name in names}


def test_everything_that_is_installed_along_is_imported() -> None:
    wanted = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    assert wanted <= imported(PACKAGE.rglob("*.py"))
    assert "torch" not in wanted, "who profiles a program of torch's has torch already"


def test_everything_that_reading_a_report_imports_is_installed_along() -> None:
    rooms = ("model", "recording", "configuration", "analysis", "report", "cli", "probes")
    modules = (path for room in rooms for path in (PACKAGE / room).rglob("*.py"))
    ours = {*sys.stdlib_module_names, "leakscope"}
    optional = {"mcp", "mcp_types", "pynvml", "tomllib", "torch"}
    wanted = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    known = packages_distributions()
    foreign = imported(modules) - ours - optional
    needed = {known.get(name, [name])[0].lower() for name in foreign}
    assert needed - {"markupsafe"} <= wanted, "MarkupSafe is a part of Jinja"


def test_the_wheels_are_those_of_the_interpreters_that_are_named() -> None:
    built = PROJECT["tool"]["cibuildwheel"]["build"].split()
    named = [
        text.rpartition(" ")[2]
        for text in PROJECT["project"]["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", text)
    ]
    assert built == [f"cp{version.replace('.', '')}-*" for version in named]
    assert all(version in SpecifierSet(PROJECT["project"]["requires-python"]) for version in named)
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    (machines,) = re.findall(r"runner: \[(.+)\]", workflow)
    (counted,) = re.findall(r"dist/\*\.whl \| wc -l\)\" = (\d+)", workflow)
    assert int(counted) == len(built) * len(machines.split(",")) + 1


def test_what_the_workflow_runs_is_there() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    scripts = re.findall(r"python (\S+\.py)", workflow)
    scripts.append(PROJECT["tool"]["cibuildwheel"]["test-command"].split()[1])
    for script in scripts:
        assert (ROOT / script.removeprefix("{project}/")).is_file(), script
