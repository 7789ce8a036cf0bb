"""The pytest plugin in real runs of pytest: what fails, what passes, and what is reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest

PLUGIN = "leakscope.testing.plugin"
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@dataclass(frozen=True)
class Ran:
    """A run of pytest."""

    code: int
    out: str
    folder: Path
    failures: dict[str, str]
    """What each failed test said, by its name."""

    def line_of(self, statement: str) -> str:
        """Return ``file:line`` of a statement of the tests."""
        lines = (self.folder / "test_it.py").read_text().splitlines()
        return f"test_it.py:{next(n for n, text in enumerate(lines, 1) if statement in text)}"


def run_pytest(folder: Path, source: str, *options: str, plugin: bool = True) -> Ran:
    (folder / "test_it.py").write_text(source)
    results = folder / "results.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA"]
    command += [f"--junitxml={results}", f"--rootdir={folder}", *options]
    command += ["-p", PLUGIN] if plugin else []
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    failures = {
        str(case.get("name")): found.text or ""
        for case in ET.parse(results).iter("testcase")
        for kind in ("failure", "error")
        if (found := case.find(kind)) is not None
    }
    return Ran(done.returncode, done.stdout + done.stderr, folder, failures)


SUITE = """
import logging
import unittest
import warnings

import pytest

STORE = []
FEW = pytest.mark.leak_free(steps=4)


class Server:
    def __init__(self):
        self.seen = {}

    def handle(self, number):
        self.seen[number] = bytes(1000)


@pytest.fixture(scope="module")
def server():
    return Server()


@FEW
def test_leaks():
    STORE.append(bytes(1000))


@FEW
@pytest.mark.parametrize("size", [0, 1000])
def test_parametrised(server, size):
    if size:
        server.handle(len(server.seen))


@pytest.mark.leak_free(steps=4, allow="2 KB")
class TestAllowed:
    def test_of_a_class(self):
        STORE.append(bytes(1000))

    @pytest.mark.leak_free(steps=4, allow="100 B")
    def test_nearer_mark_counts(self):
        STORE.append(bytes(1000))


@FEW
def test_what_fixtures_of_pytest_gather(caplog, capsys, monkeypatch, recwarn, request):
    logging.getLogger("chatty").warning("hello %s", request.node.name)
    print("hello")
    warnings.warn("hello")
    monkeypatch.setenv("CHATTY", "yes")


calls = {"default": 0, "fails": 0}


@pytest.mark.leak_free
def test_is_called_by_default():
    calls["default"] += 1


def test_how_often():
    assert calls["default"] == 23


@FEW
def test_fails_at_once():
    assert calls["default"] == -1


@FEW
def test_fails_later(tmp_path):
    (tmp_path / "once").mkdir()


@FEW
def test_skips():
    pytest.skip("not today")


@FEW
@pytest.mark.xfail(strict=True)
def test_expected_to_leak():
    STORE.append(bytes(1000))


@FEW
async def test_async():
    pass


class TestOld(unittest.TestCase):
    @FEW
    def test_of_unittest(self):
        pass


@pytest.mark.leak_free(step=4)
def test_misspelt():
    pass


@pytest.mark.leak_free(allow="a lot")
def test_no_size():
    pass
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("suite")
    return run_pytest(folder, SUITE, "--leakscope-report", "leaks", "-W", "ignore:hello")


pytestmark = pytest.mark.slow


def test_only_what_leaks_or_is_wrong_fails(suite: Ran) -> None:
    assert set(suite.failures) == {
        "test_leaks",
        "test_parametrised[1000]",
        "test_nearer_mark_counts",
        "test_fails_at_once",
        "test_fails_later",
        "test_async",
        "test_of_unittest",
        "test_misspelt",
        "test_no_size",
    }
    assert "1 skipped" in suite.out
    assert "1 xfailed" in suite.out


def test_the_message_names_holder_rate_and_line(suite: Ran) -> None:
    fed = suite.line_of("STORE.append")
    first = suite.failures["test_leaks"].splitlines()[0]
    assert first == f"test_it.STORE grows by 1 KiB per call, fed by {fed}"
    assert "path: test_it·STORE" in suite.failures["test_leaks"]
    assert f"{fed.partition(':')[2]} | STORE.append(bytes(1000))" in suite.failures["test_leaks"]


LOGS = """
import logging
import pytest


@pytest.mark.leak_free(steps=4)
def test_logs(caplog):
    logging.getLogger("server").warning("late answer")


@pytest.mark.leak_free(steps=4)
def test_logs_without_asking_for_it():
    logging.getLogger("server").warning("late answer")
"""


@pytest.mark.parametrize("options", [[], ["-p", "xdist", "-n", "1"]], ids=["plain", "xdist"])
def test_what_a_test_logs_is_not_counted_where_no_report_is_requested(
    tmp_path: Path, options: list[str]
) -> None:
    ran = run_pytest(tmp_path, LOGS, *options)
    assert not ran.failures, ran.out


def test_a_recorded_pytest_does_not_warn_that_leakscope_is_imported_already(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert True\n")
    command = [sys.executable, "-m", "leakscope", "run", "--quiet", "-m", "pytest", "-rw"]
    done = subprocess.run(
        [*command, "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PytestAssertRewriteWarning" not in done.stdout


TELLS = """
import warnings
from itertools import count

import pytest

pytestmark = pytest.mark.leak_free(steps=10)
NUMBERS = count()


def test_warns_each_time():
    warnings.warn("old", DeprecationWarning)


@pytest.mark.filterwarnings("always")
def test_warns_always():
    warnings.warn(f"slow {next(NUMBERS)}")


def test_warns_once_for_each_text():
    warnings.warn(f"slow {next(NUMBERS)}")


def test_tells_of_itself(record_property, record_testsuite_property, request):
    record_property("number", next(NUMBERS))
    record_testsuite_property("number", next(NUMBERS))
    request.node.add_report_section("call", "number", f"{next(NUMBERS)}")


@pytest.mark.leak_free(steps=1)
def test_rounds(leakscope):
    for _ in leakscope.rounds(steps=10):
        warnings.warn("old", DeprecationWarning)
    leakscope.check()
"""


@pytest.mark.parametrize("options", [[], ["-p", "xdist", "-n", "1"]], ids=["plain", "xdist"])
def test_what_pytest_gathers_of_a_test_is_not_counted(tmp_path: Path, options: list[str]) -> None:
    ran = run_pytest(tmp_path, TELLS, *options)
    assert set(ran.failures) == {"test_warns_once_for_each_text"}, ran.out
    message = ran.failures["test_warns_once_for_each_text"]
    assert message.startswith("test_it.__warningregistry__ grows by ")
    assert "_showwarnmsg_impl" not in message


def test_a_fixture_that_gathers_is_named(suite: Ran) -> None:
    message = suite.failures["test_parametrised[1000]"]
    assert message.startswith("Server.seen grows by ")
    assert message.splitlines()[0].endswith(f"fed by {suite.line_of('self.seen[number]')}")
    assert "path: test_parametrised()·server.seen" in message


def test_what_a_test_raises_stays_what_it_is(suite: Ran) -> None:
    assert "assert 23 == -1" in suite.failures["test_fails_at_once"]
    assert "looped" not in suite.failures["test_fails_at_once"]
    assert "FileExistsError" in suite.failures["test_fails_later"]
    assert "this was call 2" in suite.out


def test_what_cannot_be_called_again_is_refused_in_a_sentence(suite: Ran) -> None:
    assert "an async test is not run by calling it" in suite.failures["test_async"]
    assert "unittest.TestCase is run by its class" in suite.failures["test_of_unittest"]
    assert "leak_free takes steps=, warmup=" in suite.failures["test_misspelt"]
    assert "allow is a size such as" in suite.failures["test_no_size"]
    assert suite.failures["test_no_size"].count("allow is a size such as") == 1


def test_each_leak_has_a_report_that_the_summary_names(suite: Ran) -> None:
    pages = sorted((suite.folder / "leaks").glob("*.html"))
    tests = [
        "TestAllowed.test_nearer_mark_counts",
        "test_expected_to_leak",
        "test_leaks",
        "test_parametrised-1000",
    ]
    assert [page.name.rpartition("-")[0] for page in pages] == [f"test_it.py.{t}" for t in tests]
    for page in pages:
        assert str(page) in suite.out
        report = json.loads(page.with_suffix(".json").read_text())
        assert report["schema_version"] == 1
        assert report["growths"][0]["bytes_per_call"] > 900
        text = page.read_text()
        assert report["growths"][0]["holder"] in re.sub("<[^>]*>", "", text)
        assert not re.search(r'(src|href)="(?!data:|#)', text)


FIXTURE = """
import pytest

STORE = []


def test_finds(leakscope):
    kept = []
    for _ in leakscope.rounds(steps=4):
        kept.append(bytes(1000))
    (growth,) = leakscope.growth
    assert growth.holder == "test_finds.kept"
    assert growth.kind == "list"
    assert growth.objects_per_call == 1
    assert 1000 < growth.bytes_per_call < 1200
    assert growth.fed_by.endswith(":%d")


def test_clean(leakscope):
    for _ in leakscope.rounds(steps=4):
        kept = [bytes(1000)]
    leakscope.check()
    assert leakscope.growth == []


def test_calls(leakscope):
    assert leakscope.find_growth(lambda: bytes(1000), steps=4) == []


def test_checks(leakscope):
    for number in leakscope.rounds(steps=4):
        STORE.append(bytes(1000))
    leakscope.check()


def test_left_early(leakscope):
    for _ in leakscope.rounds():
        break
    leakscope.growth
"""


def test_the_fixture_repeats_what_the_test_says(tmp_path: Path) -> None:
    line = next(n for n, text in enumerate(FIXTURE.splitlines(), 1) if "kept.append" in text)
    ran = run_pytest(tmp_path, FIXTURE % line, "--leakscope-report", "leaks")
    assert set(ran.failures) == {"test_checks", "test_left_early"}, ran.out
    assert ran.failures["test_checks"].startswith("test_it.STORE grows by 1 KiB per call")
    assert "before the rounds are over" in ran.failures["test_left_early"]
    assert len(list((tmp_path / "leaks").glob("test_it.py.test_checks-*.html"))) == 1


LEAK = """
import pytest

STORE = []


@pytest.mark.leak_free(steps=4)
def test_leaks():
    STORE.append(bytes(1000))
"""

FAULTY = """
import pytest


@pytest.fixture(autouse=True)
def our_fault(monkeypatch):
    from leakscope.testing import {module}

    def fails(*_, **__):
        raise ValueError("our fault")

    monkeypatch.setattr({module}, "{function}", fails)


calls = []


@pytest.mark.leak_free(steps=4)
def test_leaks():
    calls.append(bytes(1000))


def test_was_called():
    assert len(calls) >= 1
"""


@pytest.mark.parametrize(
    ("module", "function"),
    [("looking", "walk"), ("looking", "find_roots"), ("finding", "find"), ("measured", "Looker")],
)
@pytest.mark.parametrize("strict", [False, True])
def test_a_fault_of_ours_is_a_warning(
    tmp_path: Path, module: str, function: str, strict: bool
) -> None:
    options = ["-W", "error"] if strict else []
    ran = run_pytest(tmp_path, FAULTY.format(module=module, function=function), *options)
    assert ran.code == 0, ran.out
    message = "leakscope could not measure test_it.py::test_leaks (ValueError: our fault)"
    assert message in ran.out
    assert ("LeakscopeWarning" in ran.out) is not strict


def test_a_report_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "leaks").write_text("a file")
    ran = run_pytest(tmp_path, LEAK, "--leakscope-report", "leaks")
    assert ran.failures["test_leaks"].startswith("test_it.STORE grows by 1 KiB per call")
    assert "LeakscopeWarning" in ran.out


def test_workers_of_xdist_find_and_report(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, LEAK, "-p", "xdist", "-n", "1", "--leakscope-report", "leaks")
    assert ran.failures["test_leaks"].startswith("test_it.STORE grows by 1 KiB per call"), ran.out
    (page,) = (tmp_path / "leaks").glob("*.html")
    assert str(page) in ran.out


def run_installed(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest where a distribution declares the plugin as pyproject.toml does."""
    declared = re.search(r"\[project\.entry-points\.pytest11\]\n(.*)\n", PYPROJECT.read_text())
    assert declared is not None
    info = folder / "declared" / "declared-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: declared\nVersion: 1.0\n")
    entry = declared[1].replace('"', "")
    (info / "entry_points.txt").write_text(f"[pytest11]\n{entry}\n")
    (folder / "test_it.py").write_text(LEAK)
    env = {k: v for k, v in os.environ.items() if k != "PYTEST_DISABLE_PLUGIN_AUTOLOAD"}
    env["PYTHONPATH"] = os.pathsep.join([str(info.parent), *sys.path[1:]])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={folder}", *options],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


def test_pytest_finds_it_by_its_entry_point(tmp_path: Path) -> None:
    done = run_installed(tmp_path, "--strict-markers")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_it.STORE grows by 1 KiB per call" in done.stdout


def test_it_is_switched_off_like_any_plugin(tmp_path: Path) -> None:
    done = run_installed(tmp_path, "-p", "no:leakscope")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PytestUnknownMarkWarning" in done.stdout


SEVERAL = """
import pytest

KEPT = []
FEW = pytest.mark.leak_free(steps=4)


def feed():
    KEPT.append("from a helper")


class TestFirst:
    def test_other(self):
        KEPT.append("from another test")


@FEW
def test_by_a_helper():
    feed()


def test_yet_another():
    KEPT.append("from yet another test")


def test_own(leakscope):
    for _ in leakscope.rounds(steps=20):
        KEPT.append("from its own line")
    leakscope.check()
"""


def test_lines_of_other_tests_are_not_reported_to_feed(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, SEVERAL)
    own, helper = ran.line_of("from its own"), ran.line_of("from a helper")
    for name, message in {"test_own": f"{own} or {helper}", "test_by_a_helper": helper}.items():
        assert ran.failures[name].partition("\n")[0].endswith(f"fed by {message}"), name


NOTING = """
SEEN = []


def pytest_collection_modifyitems(items):
    SEEN.extend(items)


def pytest_runtest_logreport(report):
    SEEN.append(report)
"""

WITH_A_SERVER = """
import pytest

FEW = pytest.mark.leak_free(steps=4)


@pytest.fixture
def server():
    return {"answers": []}


@FEW
def test_given(server):
    server["answers"].append(bytes(1000))


@FEW
def test_asked_for(request):
    server = request.getfixturevalue("server")
    server["answers"].append(bytes(999))
"""


def test_fixtures_have_the_tests_names_whoever_notes_the_tests(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(NOTING)
    ran = run_pytest(tmp_path, WITH_A_SERVER)
    for name, statement in {"test_given": "bytes(1000)", "test_asked_for": "bytes(999)"}.items():
        grows = f"{name}.server['answers'] grows by 1 KiB per call"
        line = ran.line_of(statement)
        assert ran.failures[name].startswith(f"{grows}, fed by {line}\n"), ran.failures[name]
