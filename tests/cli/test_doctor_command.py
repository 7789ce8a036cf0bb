"""`leakscope doctor`: what is in force and from where, what is there, and what to do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from leakscope.analysis.remedies.catalogue import shipped
from leakscope.capture.capabilities import query_capabilities
from leakscope.cli import leakscope
from leakscope.cli.doctor import _torch, device_items, examine
from leakscope.model.documents import Health, InForce, Item, State
from leakscope.probes.environment import memory_abilities
from leakscope.probes.nvidia import DriverReading, Gpu
from leakscope.report import json_schema, render_json
from leakscope.report.terminal import render_health_text

NO_GPU = DriverReading(None, ())
GPU = DriverReading("nvidia-smi", (Gpu(0, "GPU-1", "H100", 80 << 30, 0, 80 << 30),))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LEAKSCOPE_")]:
        monkeypatch.delenv(name)
    return tmp_path


def stand_in_torch(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes that are started from here import this module as torch."""
    package = folder / "path" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder / "path"))


def item(items: list[Item], name: str) -> Item:
    return next(item for item in items if item.name == name)


@pytest.mark.slow
def test_a_sound_installation_is_reported_with_exit_code_0(folder: Path) -> None:
    result = CliRunner().invoke(leakscope, ["doctor", "--json"], standalone_mode=False)
    assert result.exception is None
    assert result.return_value == 0
    output = json.loads(result.stdout)
    jsonschema.validate(output, {**json_schema(), "$ref": "#/$defs/Health"})
    by_name = {item["name"]: item for item in output["items"]}
    assert by_name["torch"]["state"] == "ok"
    assert by_name["walker of the heap"]["state"] in ("ok", "missing")
    assert str(folder) in by_name["folder of runs"]["text"]
    assert {setting["source"] for setting in output["settings"]} == {"default"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 reads no TOML")
def test_each_value_is_reported_with_where_it_was_chosen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_torch(folder, "raise ModuleNotFoundError(name='torch')", monkeypatch)
    project = folder / "pyproject.toml"
    project.write_text(
        "[tool.leakscope]\nlabel = 'mine'\nbudget = '1%'\nbugdet = 1\n"
        "[[tool.leakscope.suppress]]\npattern = 'a'\nreason = 'b'\n"
    )
    monkeypatch.setenv("LEAKSCOPE_BUDGET", "3%")
    health = examine()
    force = {setting.name: setting for setting in health.settings}
    assert (force["budget"].value, force["budget"].source) == (0.03, "LEAKSCOPE_BUDGET")
    assert (force["label"].value, force["label"].source) == ("mine", str(project))
    assert (force["workers"].value, force["workers"].source) == ("on", "default")
    assert (health.project, health.suppressions) == (str(project), 1)
    assert "did you mean budget?" in item(health.items, "configuration").text
    assert "not installed" in item(health.items, "torch").text
    assert item(health.items, "torch").state is State.OK
    assert not health.is_broken


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 reads no TOML")
def test_known_culprits_are_reported_with_those_of_the_project(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_torch(folder, "raise ModuleNotFoundError(name='torch')", monkeypatch)
    assert item(examine().items, "known culprits").text == _catalogue()
    entry = (
        "[[culprit]]\nid = 'mine'\ntitle = 'a'\nlibrary = 'b'\nnature = 'fault'\ncause = 'c'\n"
        "link = 'https://example.org'\nremedy = { title = 'd', text = 'e' }\n"
        "match = { type = 'b.C' }\n"
    )
    (folder / "culprits.toml").write_text(entry + entry.replace("'b.C'", "'list'"))
    (folder / "pyproject.toml").write_text("[tool.leakscope]\nknown-culprits = ['culprits.toml']\n")
    health = examine()
    assert item(health.items, "known culprits").text == f"{_catalogue()}, 1 of your own"
    fault = item(health.items, "configuration")
    assert fault.state is State.BROKEN
    assert fault.text.startswith(f"Known culprit mine of {folder / 'culprits.toml'} is left out")


def _catalogue() -> str:
    return f"version {shipped().version}, {len(shipped().entries)} entries"


def test_a_setting_that_cannot_be_followed_is_broken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_torch(folder, "raise ModuleNotFoundError(name='torch')", monkeypatch)
    monkeypatch.setenv("LEAKSCOPE_BUDGET", "9")
    result = CliRunner().invoke(leakscope, ["doctor"], standalone_mode=False)
    assert result.return_value == 1
    assert "✗ configuration" in result.stdout


@pytest.mark.parametrize(("limit", "is_followed"), [("lots", False), ("1 MB/epoch", True)])
def test_a_limit_that_check_refuses_is_broken(
    folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str, is_followed: bool
) -> None:
    stand_in_torch(folder, "raise ModuleNotFoundError(name='torch')", monkeypatch)
    monkeypatch.setenv("LEAKSCOPE_CHECK_MAX_GROWTH", limit)
    health = examine()
    (force,) = [each.value for each in health.settings if each.name == "check.max-growth"]
    assert force == (limit if is_followed else None)
    reported = [each for each in health.items if each.name == "configuration"]
    assert health.is_broken is not is_followed
    assert [each.text.startswith("check.max-growth in LEAKSCOPE_CHECK_MAX_GROWTH: 'lots' is no "
            "rate of growth; ") for each in reported] == [True] * (not is_followed)  # fmt: skip


def test_a_folder_that_cannot_be_made_is_broken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_torch(folder, "raise ModuleNotFoundError(name='torch')", monkeypatch)
    (folder / "file").write_text("")
    monkeypatch.setenv("LEAKSCOPE_RUNS", str(folder / "file" / "runs"))
    assert item(examine().items, "folder of runs").state is State.BROKEN


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("raise ImportError('libcudart.so.12: cannot open')", "libcudart.so.12: cannot open"),
        ("import os; os._exit(3)", "code 3"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_broken(
    text: str, printed: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_torch(folder, f"print('noise')\n{text}", monkeypatch)
    reported = item(_torch(query_capabilities()), "torch")
    assert reported.state is State.BROKEN
    assert printed in reported.text
    assert reported.advice


def test_a_torch_that_hangs_costs_a_time_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_torch(folder, "import time; time.sleep(600)", monkeypatch)
    assert "more than" in query_capabilities(patience_s=1.0)["fault"]


def test_every_tracker_is_among_the_libraries(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tensorboard", "wandb", "mlflow"):
        stand_in = folder / f"{name}-7.8.9.dist-info"
        stand_in.mkdir()
        (stand_in / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 7.8.9\n")
    monkeypatch.syspath_prepend(folder)
    (libraries,) = [item for item in examine().items if item.name == "libraries"]
    reported = dict(library.split(" ") for library in libraries.text.split(", "))
    assert {"tensorboard", "wandb", "mlflow"} <= reported.keys()


def test_a_file_of_the_users_is_not_taken_for_a_library(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "json.py").write_text("raise SystemExit('taken')")
    stand_in_torch(folder, "raise ModuleNotFoundError(name='torch')", monkeypatch)
    assert "fault" not in query_capabilities()


@pytest.mark.parametrize(
    ("facts", "reading", "state", "text"),
    [
        ({}, NO_GPU, State.OK, "CPU alone"),
        ({}, GPU, State.MISSING, "built without CUDA"),
        ({"cuda_build": "12.8"}, GPU, State.MISSING, "can use no device"),
        ({"cuda_build": "12.8", "devices": 2}, GPU, State.OK, "2 devices"),
        ({"hip_build": "6.2", "devices": 1}, NO_GPU, State.OK, "1 device, torch built for ROCm"),
        ({"accelerator": "mps"}, NO_GPU, State.OK, "mps"),
    ],
)
def test_devices_are_reported_by_what_torch_and_the_driver_say(
    facts: dict[str, object], reading: DriverReading, state: State, text: str
) -> None:
    reported = item(device_items(facts, lambda: reading), "devices")
    assert (reported.state, text in reported.text) == (state, True)
    assert bool(reported.advice) == (state is State.MISSING)


def test_the_driver_is_missed_only_where_torch_would_use_it() -> None:
    def driver(facts: dict[str, object], reading: DriverReading) -> Item:
        return item(device_items(facts, lambda: reading), "NVIDIA driver")

    assert driver({}, NO_GPU).state is State.OK
    assert driver({"cuda_build": "12.8"}, NO_GPU).state is State.MISSING
    assert "H100 (80 GiB)" in driver({}, GPU).text


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({"walker": "native"}, State.OK),
        ({"walker": "reference"}, State.MISSING),
        ({"walker": "reference", "walker_fault": "undefined symbol"}, State.BROKEN),
    ],
)
def test_the_walker_is_reported(facts: dict[str, str], state: State) -> None:
    assert item(_torch(facts), "walker of the heap").state is state


def test_what_the_kernel_does_not_tell_is_missing_with_what_that_costs(tmp_path: Path) -> None:
    items = memory_abilities(proc=tmp_path / "proc")
    for name in ("own and shared", "page map"):
        assert item(items, name).state is State.MISSING
        assert item(items, name).advice


def test_variables_that_bear_on_memory_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    monkeypatch.setenv("PYTHONTRACEMALLOC", "5")
    items = memory_abilities()
    assert item(items, "PYTORCH_NO_CUDA_MEMORY_CACHING").advice
    assert item(items, "PYTHONTRACEMALLOC").state is State.NOTE


def test_texts_from_outside_harm_no_terminal() -> None:
    attack = "\x1b[31m\n::error::\u202e" + "x" * 500
    health = Health(
        leakscope_version="1",
        project=attack,
        settings=[InForce(name="label", variable="L", value=attack, source=attack)],
        suppressions=0,
        items=[Item(name=attack, state=State.BROKEN, text=attack, advice=attack)],
    )
    text = render_health_text(health, width=80)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert json.loads(render_json(health))["project"] == attack
