"""Programs that leak as libraries are known to, through `leakscope run`: the entry is reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from corpus import cases
from running import Outcome
from sampling import sampled
from scoring import score
from test_old_libraries import OLD
from warm import Warm

from leakscope.analysis.remedies.catalogue import shipped

HERE = Path(__file__).parent / "known_programs"
ZOO = Path(__file__).parents[1] / "zoo" / "real"
PROGRAMS = {
    "transformers-evaluation-gathered": (ZOO / "transformers_eval_gathers.py", "transformers"),
    "transformers-log-history": (ZOO / "transformers_log_history.py", "transformers"),
    "transformers-tokenizer-cache": (HERE / "tokenizer_cache.py", "transformers"),
    "transformers-key-value-cache": (HERE / "key_value_cache.py", "transformers"),
    "lightning-predictions": (ZOO / "lightning_predictions.py", "lightning"),
    "torchmetrics-never-reset": (ZOO / "lightning_metric_never_reset.py", "torchmetrics"),
    "torchmetrics-gathers-a-round": (HERE / "metric_of_a_round.py", "torchmetrics"),
    "torchmetrics-tracker": (HERE / "metric_tracker.py", "torchmetrics"),
    "accelerate-prepared": (ZOO / "accelerate_folds.py", "accelerate"),
    "peft-adapters": (ZOO / "peft_adapter_per_task.py", "peft"),
    "wandb-table": (ZOO / "wandb_table.py", "wandb"),
    "matplotlib-open-figures": (HERE / "open_figures.py", "matplotlib"),
    "ignite-epoch-metric": (HERE / "ignite_metric.py", "pytorch-ignite"),
    "ignite-output-store": (HERE / "ignite_store.py", "pytorch-ignite"),
}
ELSEWHERE = {
    "transformers-evaluation-gathered-on-device": "needs a device",
    "transformers-evaluation-joined-on-device": "needs a device",
}
CASES = {
    case.replace("_", "-"): file
    for file in sorted(HERE.glob("*.py"))
    for case in re.findall(r"^def ([a-z]\w*)\(leaks\):", file.read_text(), re.MULTILINE)
}
"""By entry of the catalogue the file that has a case of that name, which leaks or is fixed."""
SAMPLE_OF_CASES = {"python-mock-calls", "python-matches-kept", "matplotlib-axes-artists"}
BY_HAND = {
    "python-late-collector": "needs Python 3.14.0 to 3.14.4",
    "python-free-threaded-late-collector": "needs such a build",
    "kernel-huge-pages": "needs root",
    "mimalloc-retention": "needs torch on AArch64, or mimalloc",
    "torch-compiled-kept": "needs torch before 2.3.1",
    "torch-compile-nested-disable": "needs torch 2.6",
    "torch-profiler-events": "tests/zoo/real/torch_profiler_never_ends.py is its program",
}
"""Why tests/analysis alone has a run of it, made by hand; or what else runs it."""
_OF_THE_GROUND = ("python", "glibc")
SAMPLE = {
    "transformers-evaluation-gathered",
    "torchmetrics-never-reset",
    "accelerate-prepared",
    "matplotlib-open-figures",
}
"""What `make test` runs of the programs; `make zoo` runs all."""
FINDINGS = {"matplotlib-open-figures": "open_figures"}
"""Where a finding is about the same thing."""
RUN = ("-m", "leakscope", "run", "--quiet", "--out", "run")
JUDGED = ("lightning_metric_never_reset", "accelerate_folds")
"""Programs of the zoo's sample: all that is reported on them is held against what is true."""
ENTRY = """\
[[culprit]]
id = "recorder-samples"
title = "The recorder keeps every sample"
library = "recorder"
versions = ">=1.2,<2"
nature = "fault"
cause = "Recorder.samples is never emptied."
link = "https://example.org/recorder/7"

[culprit.remedy]
title = "Call recorder.flush() after each epoch"
text = "flush() writes the samples to a file and forgets them."

[culprit.match]
holder = ["recorder.Recorder"]
path = ["samples"]
"""
RECORDER = """\
class Recorder:
    def __init__(self):
        self.samples = []

    def record(self, sample):
        self.samples.append(sample.detach().clone())
"""


@pytest.fixture
def report_of(leakscope_commands: Warm, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return what runs a program under leakscope in the test's folder."""

    def report(program: Path) -> dict[str, Any]:
        environment = {"MPLBACKEND": "Agg", "WANDB_MODE": "offline"}
        words = [*RUN, str(program)]
        leakscope_commands.run(words, tmp_path, environment, timeout_s=280).well()
        output: dict[str, Any] = json.loads((tmp_path / "run" / "report.json").read_text())
        return output

    return report


def test_every_entry_has_a_program_or_a_reason_why_not() -> None:
    ids = {entry.known.id for entry in shipped().entries}
    assert ids == {*PROGRAMS, *OLD, *ELSEWHERE, *CASES, *BY_HAND}


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(PROGRAMS, SAMPLE))
def test_what_a_library_is_known_for_is_reported_with_its_culprit(
    name: str, report_of: Callable[..., dict[str, Any]]
) -> None:
    program, library = PROGRAMS[name]
    package = {"pytorch-ignite": "ignite"}.get(library, library)
    if find_spec(package) is None:
        pytest.skip(f"{library} is not installed")
    report = report_of(program)
    known = [c for c in report["culprits"] if c["known"] and c["known"]["id"] == name]
    assert known, [(c["name"], c["known"]) for c in report["culprits"]]
    entry = next(entry.known for entry in shipped().entries if entry.known.id == name)
    assert known[0]["known"]["library"] == library
    assert known[0]["known"]["version"] == version(library)
    assert known[0]["known"]["link"] == entry.link
    assert known[0]["remedy"]["text"].endswith(entry.remedy.text)
    findings = {
        single["kind"]: single["known"]["id"] for single in report["findings"] if single["known"]
    }
    assert findings == ({FINDINGS[name]: name} if name in FINDINGS else {})
    if program.stem in JUDGED:
        case = next(case for case in cases() if case.program == program)
        single = score(case, Outcome(report, 0.0, kept=[{} for _ in case.leaks]))
        assert single.right, single


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(CASES, SAMPLE_OF_CASES))
def test_what_a_library_keeps_is_reported_and_its_fixed_twin_is_accused_of_nothing(
    name: str, tmp_path: Path
) -> None:
    known = next(entry.known for entry in shipped().entries if entry.known.id == name)
    library = known.libraries[0]
    if library not in _OF_THE_GROUND and not _is_installed(library):
        pytest.skip(f"{library} is not installed")
    reported = _case(name, "leak", tmp_path)
    found = [item["known"] for item in _of_entry(name, reported)]
    assert found, [(c["name"], c["known"]) for c in reported["culprits"]]
    assert found[0]["library"] == library
    assert found[0]["version"] == reported["run"]["environment"][library]
    fixed = _case(name, "fixed", tmp_path)
    assert (fixed["verdict"], fixed["culprits"]) == ("clean", [])
    assert _of_entry(name, fixed) == []


def _of_entry(name: str, reported: dict[str, Any]) -> list[dict[str, Any]]:
    ones = [*reported["culprits"], *reported["findings"]]
    return [item for item in ones if item["known"] and item["known"]["id"] == name]


def _case(name: str, kind: str, folder: Path) -> dict[str, Any]:
    words = [sys.executable, str(CASES[name]), name, kind, str(folder / kind)]
    environment = {**os.environ, "MPLBACKEND": "Agg", "KERAS_BACKEND": "torch"}
    subprocess.run(words, cwd=folder, env=environment, check=True, timeout=280)
    output: dict[str, Any] = json.loads((folder / kind / "report.json").read_text())
    return output


def _is_installed(library: str) -> bool:
    try:
        version(library)
    except PackageNotFoundError:
        return False
    return True


@pytest.mark.slow
def test_look_alikes_of_the_users_own_are_not_reported(
    report_of: Callable[..., dict[str, Any]],
) -> None:
    report = report_of(HERE / "look_alikes.py")
    names = {culprit["name"] for culprit in report["culprits"]}
    assert names >= {"EvalLoopContainer.tensors", "TrainerState.log_history"}
    assert [culprit["known"] for culprit in report["culprits"]] == [None] * len(names)


@pytest.mark.slow
def test_what_wandb_was_known_for_it_keeps_no_more(
    report_of: Callable[..., dict[str, Any]],
) -> None:
    if find_spec("wandb") is None:
        pytest.skip("wandb is not installed")
    report = report_of(HERE / "wandb_watch.py")
    assert (report["verdict"], report["culprits"]) == ("clean", [])


@pytest.mark.slow
@pytest.mark.parametrize(("installed", "is_listed"), [("1.4.0", True), ("2.0.0", False)])
def test_an_entry_of_the_projects_own_is_reported_of_the_versions_that_it_names(
    installed: str, is_listed: bool, tmp_path: Path
) -> None:
    library = tmp_path / "library"
    (library / f"recorder-{installed}.dist-info").mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: recorder\nVersion: {installed}\n"
    (library / f"recorder-{installed}.dist-info" / "METADATA").write_text(metadata)
    (library / "recorder.py").write_text(RECORDER)
    (tmp_path / "culprits.toml").write_text(ENTRY + ENTRY.replace("recorder-", "Bad Name "))
    (tmp_path / "pyproject.toml").write_text(
        '[tool.leakscope]\nknown-culprits = ["culprits.toml"]\n'
    )
    path = os.pathsep.join([str(library), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, *RUN, str(HERE / "own_library.py")]
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run(words, cwd=tmp_path, env=environment, check=True, timeout=280)
    output = json.loads((tmp_path / "run" / "report.json").read_text())
    (samples,) = [c for c in output["culprits"] if c["name"].endswith("recorder.samples")]
    assert output["run"]["environment"]["recorder"] == installed
    assert (samples["known"] is not None) is is_listed
    if is_listed:
        assert samples["known"]["source"] == str(tmp_path / "culprits.toml")
        assert samples["remedy"]["title"] == "Call recorder.flush() after each epoch"
    (problem,) = [e for e in output["errors"] if e["where"] == "known culprits"]
    assert "Known culprit Bad Name samples" in problem["message"]
    assert "culprits.toml is left out: id must be" in problem["message"]
