"""One precedence: defaults, pyproject.toml, the environment, arguments; and clear sentences."""

from __future__ import annotations

import inspect
import os
import re
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import click
import pytest

from leakscope.capture.frameworks.training import Training
from leakscope.capture.options import RecordingOptions, SessionOptions, configured_options
from leakscope.capture.run_directory import RUNS
from leakscope.capture.scope import profile
from leakscope.cli.check import check
from leakscope.cli.run import run
from leakscope.configuration import DEFAULTS, SETTINGS, SWITCHES, Setting
from leakscope.configuration.project import Configuration, read_configuration
from leakscope.model.errors import LeakscopeError

ROOT = Path(__file__).parents[2]
commands = {"run": run, "check": check}
reads_toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 reads no TOML")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LEAKSCOPE_")]:
        monkeypatch.delenv(name)
    return tmp_path


def project(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.leakscope]\n{text}\n")


def read(environment: dict[str, str] | None = None) -> Configuration:
    return read_configuration(environment=environment or {})


def test_what_nobody_chose_has_the_defaults_of_a_session() -> None:
    session = SessionOptions()
    for setting in SETTINGS:
        if not setting.name.startswith("check."):
            chosen = getattr(session, setting.option)
            assert read().value(setting.name) == (RUNS if setting.name == "runs" else chosen)
    assert configured_options() == session


@reads_toml
def test_the_environment_comes_before_the_project_and_arguments_before_both(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(folder, 'budget = "1%"\ncuda-history = "window"\nprobe_cleanup = true\nlabel = "mine"')
    monkeypatch.setenv("LEAKSCOPE_BUDGET", "3%")
    monkeypatch.setenv("LEAKSCOPE_PROBE_CLEANUP", "off")
    options = configured_options(label="theirs", workers=None)
    assert (options.budget, options.cuda_history) == (0.03, "window")
    assert (options.probe_cleanup, options.label, options.workers) == (False, "theirs", "on")
    found = read({"LEAKSCOPE_BUDGET": "3%"})
    assert found.chosen["budget"].source == "LEAKSCOPE_BUDGET"
    assert found.chosen["label"].source.endswith("pyproject.toml")


@reads_toml
def test_paths_are_relative_to_the_file_that_names_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(folder, '[tool.leakscope.check]\nbaseline = "leaks.json"')
    inner = folder / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert read().value("check.baseline") == folder / "leaks.json"
    named = read({"LEAKSCOPE_CHECK_BASELINE": "other.json"})
    assert named.value("check.baseline") == Path("other.json")


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("LEAKSCOPE_BUDGET", "0.5 %", "budget", 0.005),
        ("LEAKSCOPE_MAX_PAUSE", "20 ms", "max-pause", 20.0),
        ("LEAKSCOPE_REPORT", "No", "report", False),
        ("LEAKSCOPE_QUIET", "1", "quiet", True),
        ("LEAKSCOPE_WORKERS", "off", "workers", "off"),
        ("LEAKSCOPE_CHILDREN", "off", "children", "off"),
        ("LEAKSCOPE_CHECK_IGNORE", "a.*, b,", "check.ignore", ["a.*", "b"]),
        ("LEAKSCOPE_CHECK_TOLERANCE", "150%", "check.tolerance", 1.5),
        ("LEAKSCOPE_LABEL", "", "label", None),
    ],
)
def test_the_environment_is_read(variable: str, text: str, name: str, value: object) -> None:
    found = read({variable: text})
    assert found.value(name) == value
    assert (found.faults, found.remarks) == ([], [])


@reads_toml
@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("max-pause = 0", "milliseconds above 0"),
        ("max-pause = true", "milliseconds such as 100"),
        ("budget = true", "budget in {file} must be a share"),
        ("budget = 0", "not 0."),
        ("budget = nan", "must be a share"),
        ('budget = "half"', "not 'half'."),
        ("workers = true", "workers in {file} must be one of 'on', 'off', not True."),
        ('report = "yes"', "report in {file} must be true or false, not 'yes'."),
        ("label = 3", "must be a text"),
        ("check = 3", "must be a table"),
        ("check.ignore = 'a'", "check.ignore in {file} must be a list of texts"),
        ("check.baseline = ['a']", "must be a path"),
        ("tracemalloc = ['off']", "must be one of 'auto', 'off', 'window', 'always'"),
        ("label = '" + "x" * 500 + "'\nquiet = '" + "x" * 500 + "'", "…"),
    ],
)
def test_wrong_types_are_refused_in_one_sentence(text: str, printed: str, folder: Path) -> None:
    project(folder, text)
    found = read()
    assert len(found.faults) == 1
    assert printed.format(file=folder / "pyproject.toml") in found.faults[0]
    assert len(found.faults[0]) < 100 + 100 + len(str(folder))
    with pytest.raises(LeakscopeError):
        found.refuse_faults()


@reads_toml
@pytest.mark.parametrize(
    "text",
    [
        "[tool]\nleakscope = {budget = 0.5}\n",
        "[tool]\nleakscope.budget = 0.5\n",
        "tool.leakscope.budget = 0.5\n",
        '[tool."leakscope"]\nbudget = 0.5\n',
    ],
)
def test_the_section_is_read_however_toml_spells_it(text: str, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(text)
    assert read().value("budget") == 0.5


@reads_toml
@pytest.mark.parametrize(
    "text", ['[project]\nname = "leakscope-user"\n', 'x = "leakscope', "tool = 1"]
)
def test_a_file_that_only_speaks_of_leakscope_is_passed_over(text: str, folder: Path) -> None:
    project(folder, "budget = 0.5")
    below = folder / "below"
    below.mkdir()
    (below / "pyproject.toml").write_text(text)
    found = read_configuration(below, {})
    assert found.value("budget") == 0.5
    assert found.remarks == []


def test_a_wrong_value_of_the_environment_names_the_variable() -> None:
    found = read({"LEAKSCOPE_TRACEMALLOC": "sometimes"})
    assert found.faults == [
        "LEAKSCOPE_TRACEMALLOC must be one of 'auto', 'off', 'window', 'always', not 'sometimes'."
    ]


@reads_toml
@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("bugdet = 1", "has no bugdet; did you mean budget?"),
        ("cuda_hist = 1", "did you mean cuda-history?"),
        ("check.max_grow = 1", "did you mean check.max-growth?"),
        ("xyz = 1", "has no xyz; it knows runs, budget, "),
        ('"a\\u001b[31m" = 1', "\\x1b"),
    ],
)
def test_unknown_keys_are_passed_over_with_the_nearest_known_one(
    text: str, printed: str, folder: Path
) -> None:
    project(folder, text)
    found = read()
    assert found.faults == []
    assert len(found.remarks) == 1
    assert printed in found.remarks[0]
    heard: list[str] = []
    assert configured_options(heard.append) == SessionOptions()
    assert heard == found.remarks


def test_an_unknown_variable_is_reported_and_a_switch_is_none() -> None:
    found = read({"LEAKSCOPE_BUGDET": "1", "LEAKSCOPE_DEBUG": "1", "LEAKSCOPE": "off"})
    assert found.remarks == ["leakscope has no LEAKSCOPE_BUGDET; did you mean LEAKSCOPE_BUDGET?"]


def test_every_variable_that_the_code_reads_is_known() -> None:
    known = {setting.variable for setting in SETTINGS} | set(SWITCHES)
    sources = (path.read_text() for path in (ROOT / "leakscope").rglob("*.py"))
    read_there = {name for text in sources for name in re.findall(r"LEAKSCOPE_[A-Z_]+\b", text)}
    assert {name for name in read_there if not name.endswith("_")} <= known


def test_a_removed_working_directory_costs_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert read().faults == []


def test_python_310_is_reported_to_read_no_toml(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(folder, "budget = 0.5")
    monkeypatch.setitem(sys.modules, "tomllib", None)
    monkeypatch.setitem(sys.modules, "tomli", None)
    found = read()
    assert found.value("budget") == 0.02
    assert ["no TOML reader" in remark for remark in found.remarks] == [True]


def test_python_310_reads_by_tomli_where_it_is_installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(folder, "budget = 0.5")
    stand_in = ModuleType("tomli")
    stand_in.loads = lambda text: {"tool": {"leakscope": {"budget": 0.5 if text else 0}}}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tomllib", None)
    monkeypatch.setitem(sys.modules, "tomli", stand_in)
    assert read().value("budget") == 0.5


@reads_toml
def test_options_that_make_no_sense_are_refused_before_anything_runs(folder: Path) -> None:
    import leakscope

    project(folder, "budget = 7")
    with pytest.raises(LeakscopeError, match="budget in"):
        leakscope.profile()
    assert not list(folder.glob("leakscope-runs"))


@reads_toml
def test_a_profile_takes_what_the_project_chose(folder: Path) -> None:
    import leakscope

    project(folder, 'report = false\nquiet = true\nlabel = "configured"')
    with leakscope.profile(folder / "run") as scope:
        for _ in scope.epochs(range(2)):
            pass
    assert '"label":"configured"' in (folder / "run" / "run.json").read_text().replace(" ", "")
    assert not (folder / "run" / "report.html").exists()


def test_the_page_has_the_table_of_settings() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = []
    for setting in SETTINGS:
        default = str(setting.default).lower() if setting.default not in (None, []) else "none"
        shown = default if default in ("none", "true", "false") else f"`{default}`"
        rows.append(f"| `{setting.name}` | `{setting.variable}` | {setting.kind.takes} | {shown} |")
    assert "\n".join(rows) in page, "\n".join(rows)
    assert all(f"`{switch}=" in page for switch in SWITCHES)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_an_option_of_a_command_says_what_its_setting_is(setting: Setting) -> None:
    command = commands["run" if setting.is_of_session else "check"]
    options = {option.name: option for option in command.params}
    if setting.name in ("runs", "boundaries"):  # not for a command line
        assert setting.option not in options
        return
    option = options[setting.option]
    assert isinstance(option, click.Option)
    assert option.default is None or option.multiple
    assert option.help is not None
    assert option.help.startswith(setting.help.removesuffix("."))
    assert setting.flags or option.opts == [f"--{setting.name.removeprefix('check.')}"]


def test_a_call_in_python_takes_what_the_table_has() -> None:
    only_in_calls = {"out", "force", "enabled"}
    only_elsewhere = {"runs"}
    parameters = inspect.signature(profile).parameters
    assert parameters.keys() ^ DEFAULTS.keys() == only_in_calls | only_elsewhere
    callbacks = RecordingOptions.__annotations__.keys() - {"out", "force"}
    assert callbacks < DEFAULTS.keys()
    assert DEFAULTS.keys() <= {field.name for field in fields(SessionOptions)}


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("0.5 %", 0.005), ("0.1", 0.1)])
def test_a_share_is_a_percentage_or_a_fraction_wherever_it_is_written(
    text: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert given("--budget", text) == pytest.approx(share)
    assert configured_options(budget=text).budget == pytest.approx(share)
    monkeypatch.setenv("LEAKSCOPE_BUDGET", text)
    assert configured_options().budget == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "two", "0", "-1%", "200%", "2", "nan"])
def test_a_share_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a share"):
        given("--budget", text)
    with pytest.raises(LeakscopeError, match="budget must be a share"):
        configured_options(budget=text)


def test_a_label_may_be_empty() -> None:
    assert given("--label", "") == ""


def given(option: str, text: str) -> object:
    """Return what `leakscope run` reads from an option."""
    context = commands["run"].make_context("run", [option, text, "train.py"])
    return context.params[option.lstrip("-")]


@reads_toml
def test_runs_are_made_where_the_project_wants_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import leakscope

    project(folder, 'runs = "build/memory"\nreport = false\nquiet = true')
    inner = folder / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    with leakscope.profile() as scope:
        made = scope.run_path
    assert made is not None
    assert made.parent == folder / "build" / "memory"
    assert list(inner.iterdir()) == []


def test_a_callback_of_a_framework_takes_what_the_environment_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEAKSCOPE_BUDGET", "7%")
    assert Training({})._options.budget == 0.07
    assert Training({"budget": 0.03})._options.budget == 0.03
    monkeypatch.setenv("LEAKSCOPE_BUDGET", "much")
    with pytest.raises(LeakscopeError):
        Training({})
    monkeypatch.setenv("LEAKSCOPE", "off")
    assert not Training({}).is_allowed
