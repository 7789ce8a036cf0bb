"""`leakscope run` around the program: its directory, its refusals, its parts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from leakscope.capture.run_directory import Program, World, interpreter_options
from leakscope.cli import leakscope as commands
from leakscope.cli.output import exit_code_of
from leakscope.cli.program import (
    NotOfThisPythonError,
    ProgramEnding,
    as_python_runs_it,
    split_command_line,
)
from leakscope.cli.run import leave_outcome
from leakscope.recording import RunDirectory

ROOT = Path(__file__).parents[2]
WITH_VALUE = {"--out", "--budget"}


def leakscope(*words: str, folder: Path, **added: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **added}
    return subprocess.run(
        [sys.executable, "-m", "leakscope", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )


@pytest.mark.parametrize(
    ("words", "own", "program"),
    [
        (["train.py", "--out", "x"], [], Program("script", "train.py", ("--out", "x"))),
        (["--out", "x", "train.py"], ["--out", "x"], Program("script", "train.py")),
        (["--out=x", "a", "-m", "b"], ["--out=x"], Program("script", "a", ("-m", "b"))),
        (["-q", "-m", "p.q", "-q"], ["-q"], Program("module", "p.q", ("-q",))),
        (["-mp.q", "-c"], [], Program("module", "p.q", ("-c",))),
        (["-c", "print(1)", "--force"], [], Program("code", "print(1)", ("--force",))),
        (["--", "--odd.py", "--"], [], Program("script", "--odd.py", ("--",))),
        (["--force", "--", "-m", "p"], ["--force"], Program("module", "p")),
        (["--out", "-m", "train.py"], ["--out", "-m"], Program("script", "train.py")),
        (["--quiet"], ["--quiet"], None),
        (["--"], [], None),
        ([], [], None),
    ],
)
def test_our_options_end_where_the_program_begins(
    words: list[str], own: list[str], program: Program | None
) -> None:
    assert split_command_line(words, WITH_VALUE) == (own, program)


def test_option_without_its_program_is_a_wrong_usage() -> None:
    with pytest.raises(click.UsageError):
        split_command_line(["-m"], WITH_VALUE)


@pytest.mark.parametrize(
    ("original", "options"),
    [
        (["python", "-m", "leakscope", "run"], []),
        (["python", "-u", "-m", "leakscope"], ["-u"]),
        (["python", "-um", "leakscope", "-O"], ["-u"]),
        (["python", "-uW", "error", "-Xdev", "/bin/leakscope", "-B"], ["-uW", "error", "-Xdev"]),
        (["python", "-X", "dev", "-Werror", "-c", "x"], ["-X", "dev", "-Werror"]),
        (
            ["python", "--check-hash-based-pycs", "never", "-OO", "leakscope"],
            ["--check-hash-based-pycs", "never", "-OO"],
        ),
        (["python", "/bin/leakscope", "run", "-u"], []),
    ],
)
def test_interpreter_options_are_those_before_the_program(
    original: list[str], options: list[str]
) -> None:
    assert interpreter_options(original) == options


LONG = "'" * 3  # how pip writes a script whose interpreter has a long path
BY_SHELL = f"/bin/sh\n{LONG}exec' {sys.executable} $0 $@\n' {LONG}"


def script_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, first_line: str) -> Path:
    script = folder / "served"
    script.write_text(f"#!{first_line}\nprint('served')\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return script


@pytest.mark.parametrize(
    "first_line",
    [sys.executable, BY_SHELL],
)
def test_a_command_of_this_python_is_run_by_its_name(
    first_line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = script_on_path(tmp_path, monkeypatch, first_line)
    named = Program("script", "served", ("-w", "2"))
    assert as_python_runs_it(named) == Program("script", str(script), ("-w", "2"))
    monkeypatch.chdir(tmp_path)  # a file of that name is what `python served` runs
    assert as_python_runs_it(named) == named


@pytest.mark.parametrize(
    ("first_line", "says"),
    [
        ("/opt/other/bin/python3", "is no Python program"),
        ("/bin/sh", "served is no Python program. Put leakscope where it starts one: served -n 2"),
    ],
)
def test_of_another_command_is_said_what_can_be_run(
    first_line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_on_path(tmp_path, monkeypatch, first_line)
    with pytest.raises(NotOfThisPythonError, match=re.escape(says)) as refused:
        as_python_runs_it(Program("script", "served", ("-n", "2", "python", "-u", "x.py")))
    assert str(refused.value).endswith("served -n 2 python -u -m leakscope run x.py")


def test_python_itself_is_left_out() -> None:
    words = Program("script", sys.executable, ("-m", "package", "x"))
    assert as_python_runs_it(words) == Program("module", "package", ("x",))
    with pytest.raises(NotOfThisPythonError, match=r"-u -m leakscope run x\.py"):
        as_python_runs_it(Program("script", sys.executable, ("-u", "x.py")))


def test_project_root_of_an_installed_command_is_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = Program("script", str(Path(sys.executable).parent / "python"))
    assert command.project_root() == str(tmp_path)
    assert command.title == "python"


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_command_that_pip_put_into_a_folder_runs_the_project_of_the_working_directory(
    is_installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, project = tmp_path / "packages", tmp_path / "project"
    for folder in (packages / "bin", packages / "flask-3.1.dist-info", project):
        folder.mkdir(parents=True)
    if not is_installed:
        (packages / "flask-3.1.dist-info").rmdir()
    (packages / "bin" / "flask").write_text("from flask.cli import main")
    monkeypatch.chdir(project)
    command = Program("script", str(packages / "bin" / "flask"))
    assert command.project_root() == str(project if is_installed else packages / "bin")
    assert (command.title == "flask") is is_installed


def test_project_root_is_the_nearest_folder_with_a_projects_mark(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    script = deep / "train.py"
    script.write_text("")
    assert Program("script", str(script)).project_root() == str(tmp_path)
    (tmp_path / "a" / ".git").mkdir()
    assert Program("script", str(script)).project_root() == str(tmp_path / "a")


def test_project_root_of_a_module_is_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Program("module", "package.train").project_root() == str(tmp_path)


def test_outcome_tells_signal_and_oom_kill() -> None:
    assert ProgramEnding(3).outcome() == {"exit_code": 3}
    killed = ProgramEnding(137, signal=signal.SIGKILL, oom_kills=2, limit_hits=7)
    reported = {"exit_code": 137, "signal": 9, "oom_killed": 1, "oom_kills": 2, "limit_hits": 7}
    assert killed.outcome() == reported


KILLED_FOR_MEMORY = ProgramEnding(137, signal=signal.SIGKILL, oom_kills=1)


@pytest.mark.parametrize(
    ("world", "ending", "files"),
    [
        (World(), ProgramEnding(0), ["outcome.json"]),
        (World(size=4), KILLED_FOR_MEMORY, ["outcome.json"]),
        (World(rank=3, size=4), KILLED_FOR_MEMORY, ["outcome-rank3-0.json"]),
        (World(rank=3, size=4, attempt=2), KILLED_FOR_MEMORY, ["outcome-rank3-2.json"]),
        (World(rank=3, size=4), ProgramEnding(143, signal=signal.SIGTERM, oom_kills=1), []),
        (World(rank=3, size=4), ProgramEnding(143, signal=signal.SIGTERM), []),
        (World(rank=3, size=4), ProgramEnding(130, signal=signal.SIGINT), []),
        (
            World(rank=3, size=4),
            ProgramEnding(137, signal=signal.SIGKILL),
            ["outcome-rank3-0.json"],
        ),
        (
            World(rank=3, size=4),
            ProgramEnding(139, signal=signal.SIGSEGV),
            ["outcome-rank3-0.json"],
        ),
        (World(rank=3, size=4), ProgramEnding(135, signal=signal.SIGBUS), ["outcome-rank3-0.json"]),
        (World(rank=3, size=4), ProgramEnding(0), []),
    ],
)
def test_of_other_ranks_is_written_down_that_they_were_killed_not_that_they_were_ended(
    world: World, ending: ProgramEnding, files: list[str], tmp_path: Path
) -> None:
    leave_outcome(RunDirectory(tmp_path), world, ending)
    assert sorted(path.name for path in tmp_path.iterdir()) == files


def test_only_sigkill_with_a_kill_counted_is_out_of_memory() -> None:
    assert not ProgramEnding(137, signal=signal.SIGKILL).is_oom_killed
    assert not ProgramEnding(143, signal=signal.SIGTERM, oom_kills=1).is_oom_killed
    assert not ProgramEnding(1, oom_kills=1).is_oom_killed
    assert "oom_killed" not in ProgramEnding(1, oom_kills=1).outcome()


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        (["missing.py"], "can't open file", 2),
        (["empty"], "can't find '__main__' module", 1),
        (["missing.py/"], "can't open file", 2),
        ([], "Name a script", 2),
        (["-m"], "Argument expected for the -m option", 2),
        (["--budgit", "2%", "train.py"], "No such option", 2),
        (["--budget", "lots", "train.py"], "is not a share", 2),
        (["--max-pause", "-3", "train.py"], "milliseconds above 0", 2),
        (["--tracemalloc", "maybe", "train.py"], "maybe", 2),
    ],
)
def test_refusal_is_one_clear_sentence(
    words: list[str], says: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('ran')")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    done = leakscope("run", *words, folder=tmp_path)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "leakscope-runs").exists()


@pytest.mark.parametrize("name", ["nosuchmodule", "nosuch.module", "nosuchmodule.py"])
def test_a_module_that_is_missing_is_reported_by_python_and_leaves_no_run(
    name: str, tmp_path: Path
) -> None:
    done = leakscope("run", "-m", name, folder=tmp_path)
    plain = subprocess.run(
        [sys.executable, "-m", name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)
    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["package.nosuch", "package.step.nosuch", "package", "spaced.no"])
def test_what_a_package_lacks_is_reported_by_python_and_leaves_no_run(
    name: str, tmp_path: Path
) -> None:
    for folder in ("package", "spaced"):
        (tmp_path / folder).mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    (tmp_path / "package/step.py").write_text("")
    done = leakscope("run", "-m", name, folder=tmp_path)
    plain = subprocess.run(
        [sys.executable, "-m", name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)
    assert done.returncode == 1
    assert not (tmp_path / "leakscope-runs").exists()


@pytest.mark.parametrize(
    "source",
    [
        "import os; __path__.append(os.path.dirname(__path__[0]) + '/elsewhere')",
        "import sys, package2; sys.modules[__name__] = package2",
    ],
)
def test_a_module_that_only_its_package_finds_is_recorded(source: str, tmp_path: Path) -> None:
    for folder in ("package", "package2", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "package/__init__.py").write_text(source)
    for folder in ("package2", "elsewhere"):
        (tmp_path / folder / "hidden.py").write_text("print('ran')")
    done = leakscope("run", "--out", "run", "-m", "package.hidden", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert (tmp_path / "run/run.json").exists()


def test_a_module_of_the_working_directory_is_found_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training/step.py").write_text("print('ran')")
    done = leakscope("run", "--out", "run", "-m", "training.step", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert (tmp_path / "run/run.json").exists()


@pytest.mark.parametrize(
    ("typed", "meant"), [("--bogus", ""), ("--budgit", "--budget"), ("--snapshotsignal", "--snap")]
)
def test_an_option_is_guessed_only_where_it_is_like_one(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = CliRunner().invoke(commands, ["run", typed, "x.py"], standalone_mode=False)
    assert result.exception is not None
    assert exit_code_of(result.exception) == 2
    output = capsys.readouterr().err
    assert f"No such option '{typed}'" in output
    assert ("Did you mean" in output) == bool(meant)
    assert meant in output


@pytest.mark.parametrize(
    "words", [["snapshot", "abc"], ["snapshot", "0"], ["monitor", "--pid", "x"]]
)
def test_what_is_no_process_number_is_reported_as_such(words: list[str]) -> None:
    fault = CliRunner().invoke(commands, words, standalone_mode=False).exception
    assert isinstance(fault, click.BadParameter)
    assert "is not a process number" in str(fault)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_permissions_are_respected(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('ran')")
    script.chmod(0)
    done = leakscope("run", "train.py", folder=tmp_path)
    assert done.returncode == 2
    assert "Permission denied" in done.stderr
    script.chmod(0o600)
    tmp_path.chmod(0o500)
    done = leakscope("run", "train.py", folder=tmp_path)
    tmp_path.chmod(0o700)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "No run can be recorded" in done.stderr


def test_run_is_not_overwritten_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')")
    words = ("--no-report", "--out", "run", "train.py")
    first = leakscope("run", *words, folder=tmp_path)
    assert (first.returncode, first.stdout) == (0, "ran\n")
    before = manifest(tmp_path / "run")
    second = leakscope("run", *words, folder=tmp_path)
    assert (second.returncode, second.stdout) == (1, "")
    assert "--force" in second.stderr
    assert manifest(tmp_path / "run") == before
    third = leakscope("run", "--force", *words, folder=tmp_path)
    assert (third.returncode, third.stdout) == (0, "ran\n")
    assert manifest(tmp_path / "run") != before


def test_run_directory_is_named_after_time_and_script(tmp_path: Path) -> None:
    (tmp_path / "fine tune.py").write_text("")
    assert leakscope("run", "--no-report", "fine tune.py", folder=tmp_path).returncode == 0
    (path,) = (tmp_path / "leakscope-runs").iterdir()
    assert path.name.endswith("-fine-tune")
    assert manifest(path)["command"] == ["python", "fine tune.py"]
    assert manifest(path)["project_root"] == str(tmp_path)


def test_the_parent_is_small_while_it_waits(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os\n"
        "mapped = open(f'/proc/{os.getppid()}/maps').read()\n"
        "print('msgspec' in mapped, 'numpy' in mapped, 'torch' in mapped)\n"
    )
    done = leakscope("run", "-q", "train.py", folder=tmp_path)
    assert done.stdout == "True False False\n", done.stderr


def test_next_command_is_reported_without_a_report(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    done = leakscope("run", "--no-report", "--out", "run", "train.py", folder=tmp_path)
    assert "leakscope report run" in done.stderr
    assert not (tmp_path / "run" / "report.html").exists()


def test_report_of_a_killed_program_is_written(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os; os.kill(os.getpid(), 9)")
    done = leakscope("run", "--out", "run", "train.py", folder=tmp_path)
    assert done.returncode == -signal.SIGKILL
    output = json.loads((tmp_path / "run" / "report.json").read_text())
    assert output["verdict"] == "inconclusive"
    assert "report.html" in done.stderr
    assert (tmp_path / "run" / "report.html").exists()


def test_fault_in_the_report_costs_only_the_report(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(3)")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "jinja2.py").write_text("raise RuntimeError('broken templates')")
    path = os.pathsep.join([str(tmp_path / "broken"), str(ROOT)])
    words = ("run", "--out", "run", "train.py")
    done = leakscope(*words, folder=tmp_path, PYTHONPATH=path)
    assert done.returncode == 3
    *summary, fault = done.stderr.splitlines()
    assert summary[0].startswith("? Not enough evidence")
    assert "broken templates" in fault
    assert "leakscope report run" in fault
    assert not [line for line in summary if line.startswith(("leakscope:", "Traceback"))]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_writing_the_report_can_be_stopped(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(3)")
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "jinja2.py").write_text(
        f"import os, signal, time; os.kill(os.getpid(), signal.{name}); time.sleep(30)"
    )
    path = os.pathsep.join([str(tmp_path / "slow"), str(ROOT)])
    done = leakscope("run", "--out", "run", "train.py", folder=tmp_path, PYTHONPATH=path)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "stopped before the report was written" in done.stderr


def test_secrets_of_the_command_line_are_not_kept(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; print(sys.argv)")
    words = ("run", "--no-report", "--out", "run", "train.py", "--api-key", "hunter2")
    assert "hunter2" in leakscope(*words, folder=tmp_path).stdout
    kept = [path for path in (tmp_path / "run").iterdir() if b"hunter2" in path.read_bytes()]
    assert kept == []


def test_ranks_of_one_launcher_share_a_directory(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os; print('rank', os.environ['RANK'])")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "leakscope", "run", "--no-report", "-q", "train.py"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "WORLD_SIZE": "2", "RANK": rank},
        )
        for rank in ("1", "0")
    ]
    reported = [process.communicate(timeout=60) for process in processes]
    assert reported == [("rank 1\n", ""), ("rank 0\n", "")]
    (path,) = (tmp_path / "leakscope-runs").iterdir()
    assert sorted(p.name.split("-")[0] for p in path.glob("*.journal")) == ["rank0", "rank1"]


def manifest(path: Path) -> dict[str, object]:
    output: dict[str, object] = json.loads((path / "run.json").read_text())
    return output
