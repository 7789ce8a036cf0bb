"""The main job on the programs under `examples/`: name, line and rate right, fixed forms clean."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled
from warm import Warm

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Leak:
    """A planted leak: what the report must say of it."""

    names: tuple[str, ...]
    statement: str
    """Text of the feeding statement's first line."""
    growth: str
    units: tuple[str, ...]
    bytes_per_unit: float


@dataclass(frozen=True)
class Example:
    program: str
    leaks: tuple[Leak, ...]
    innocent: tuple[str, ...]
    """Parts of names that must not be called leaks."""
    options: tuple[str, ...] = ()
    """What makes it short; the bounds of look-alikes are reached all the same."""
    minor: frozenset[str] = field(default_factory=frozenset)


@cache
def classifier_graph_bytes() -> tuple[float, float]:
    """Bytes that autograd saves for one `train_loss +=`, counted by torch's own packing hooks.

    The second are those with gradient checkpointing.
    """
    script = """
import sys, torch

def graph_bytes(checkpointing):
    sys.argv = ["train.py", "--epochs", "0"] + ["--checkpointing"] * checkpointing
    namespace = {"__name__": "__main__"}
    exec(compile(open("examples/classifier/train.py").read(), "train.py", "exec"), namespace)
    model = namespace["model"].train()
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    seen = {}
    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor
    images, labels = next(iter(namespace["train_loader"]))
    if checkpointing:
        # Checkpointing keeps each block's input; what its own hooks pack never reaches ours.
        kept = []
        for block in model.blocks:
            block.register_forward_pre_hook(lambda module, inputs: kept.append(inputs[0]))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        if checkpointing:
            for tensor in kept:
                pack(tensor)
    return sum(seen.values())

print(graph_bytes(0), graph_bytes(1))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    plain, checkpointed = map(float, done.stdout.split())
    return plain, checkpointed


@cache
def examples() -> dict[str, Example]:
    float32, int64 = 4, 8
    cells, ways, per_batch = 32 * 32, 4, 16
    array = 112  # a numpy array object beside its data
    return {
        "detector": Example(
            "detector",
            (
                Leak(
                    ("MetricLogger.records", "Trainer.logger.records"),
                    "self.records.append(record)",
                    "across",
                    ("step",),
                    8 * ways * cells * float32,
                ),
                Leak(
                    ("Trainer.validate.all_pred_bboxes",),
                    "all_pred_bboxes.append(",
                    "within",
                    ("batch",),
                    per_batch * (cells * 4 * float32 + array),
                ),
                Leak(
                    ("Trainer.validate.all_pred_scores",),
                    "all_pred_scores.append(",
                    "within",
                    ("batch",),
                    per_batch * (ways * cells * float32 + array),
                ),
                Leak(
                    ("Trainer.validate.all_pred_classes",),
                    "all_pred_classes.append(",
                    "within",
                    ("batch",),
                    per_batch * (cells * int64 + array),
                ),
                Leak(
                    ("Trainer.validate.all_st_ious",),
                    "all_st_ious.append(",
                    "within",
                    ("batch",),
                    per_batch * (cells * float32 + array),
                ),
            ),
            ("frames", "grad_norms", "triplets", "FrameCache"),
            (
                "--episodes=24",
                "--val-episodes=32",
                "--triplet-batch-size=16",
                "--grad-norm-window=50",
            ),
        ),
        "segmentation": Example(
            "segmentation",
            (
                Leak(
                    ("main.hard_examples", "train_epoch.hard_examples"),
                    "hard_examples.append(",
                    "across",
                    ("step",),
                    4 * 24 * 16 * 16 * float32,
                ),
                Leak(
                    ("ContextBank.features",),
                    "self.features[key] = ",
                    "across",
                    ("validation", "epoch"),
                    4 * 48 * 24 * 16 * 16 * float32,
                ),
            ),
            ("volumes", "loader"),
        ),
        **{
            f"classifier{'_checkpointing' * checkpointing}": Example(
                "classifier",
                (
                    Leak(
                        ("history['val_features']",),
                        'history["val_features"].append(',
                        "across",
                        ("validation", "epoch"),
                        256 * 24 * 16 * 16 * float32,
                    ),
                    Leak(
                        ("train_epoch.train_loss",),
                        "train_loss += ",
                        "within",
                        ("step",),
                        classifier_graph_bytes()[checkpointing],
                    ),
                ),
                ("val_accuracy", "model", "optimizer"),
                ("--steps=20", *("--checkpointing",) * checkpointing),
            )
            for checkpointing in (0, 1)
        },
        "vision_language": Example(
            "vision_language",
            (
                Leak(
                    (
                        "VisionLanguageTrainer.eval_logits",
                        "VisionLanguageTrainer.eval_logits[*]",
                    ),
                    "self.eval_logits[number]",
                    "across",
                    ("validation",),
                    128 * 16 * 800 * float32,
                ),
                Leak(
                    ("SampleGallery.images", "VisionLanguageTrainer.gallery.images"),
                    "self.images.append(image)",
                    "across",
                    ("step",),
                    8 * 96 * 96 * 4,  # Pillow keeps RGB in four bytes a pixel
                ),
            ),
            ("recent_losses", "loader"),
            ("--steps=40", "--eval-every=20"),
        ),
    }


NAMES = ("detector", "segmentation", "classifier", "classifier_checkpointing", "vision_language")


@pytest.fixture(scope="session")
def profiled(tmp_path_factory: pytest.TempPathFactory, leakscope_commands: Warm) -> Any:
    """Return `profiled(name, form)`: the run directory of an example, profiled once."""
    folder = tmp_path_factory.mktemp("examples")

    @cache
    def profile(name: str, form: str) -> Path:
        example = examples()[name]
        run = folder / f"{name}-{form}"
        command = ["-m", "leakscope", "run", "--out", str(run)]
        script = f"examples/{example.program}/{form}.py"
        leakscope_commands.run([*command, script, *example.options], ROOT, timeout_s=600.0).well()
        return run

    return profile


def report_of(run: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((run / "report.json").read_text())
    return report


def alarms(report: dict[str, Any]) -> list[dict[str, Any]]:
    entries = report["culprits"] + report["findings"]
    return [entry for entry in entries if entry["severity"] != "note"]


def line_of(program: str, statement: str) -> set[str]:
    path = f"examples/{program}/train.py"
    lines = (ROOT / path).read_text().splitlines()
    return {f"{number}" for number, line in enumerate(lines, 1) if statement in line}


@pytest.mark.parametrize("name", sampled(NAMES, ("detector", "classifier")))
def test_planted_leaks_are_the_top_culprits(name: str, profiled: Any) -> None:
    example = examples()[name]
    report = report_of(profiled(name, "train"))
    assert report["verdict"] == "leak"
    top = report["culprits"][: len(example.leaks)]
    named = {accepted for leak in example.leaks for accepted in leak.names}
    assert {culprit["name"] for culprit in top} <= named, [c["name"] for c in top]
    assert all(culprit["severity"] != "note" for culprit in top)


@pytest.mark.parametrize("name", sampled(NAMES, ("detector", "classifier")))
def test_each_planted_leak_has_line_growth_and_rate(name: str, profiled: Any) -> None:
    example = examples()[name]
    culprits = {c["name"]: c for c in report_of(profiled(name, "train"))["culprits"]}
    for leak in example.leaks:
        found = [culprits[accepted] for accepted in leak.names if accepted in culprits]
        assert found, (leak.names, list(culprits))
        culprit = found[0]
        fed_lines = {location.rpartition(":")[2] for location in culprit["fed_at"][:2]}
        assert fed_lines & line_of(example.program, leak.statement), (leak, culprit["fed_at"])
        assert culprit["growth"] == leak.growth
        assert culprit["unit"] in leak.units
        rate = culprit["bytes_per_unit"]
        assert rate == pytest.approx(leak.bytes_per_unit, rel=0.15), leak.names


@pytest.mark.parametrize("name", sampled(NAMES, ("detector", "classifier")))
def test_bounded_look_alikes_raise_no_alarm(name: str, profiled: Any) -> None:
    example = examples()[name]
    accused = [entry.get("name", "") for entry in alarms(report_of(profiled(name, "train")))]
    assert not [n for n in accused if any(part in n for part in example.innocent)]


@pytest.mark.parametrize("name", sampled(NAMES, ("detector", "classifier")))
def test_fixed_form_is_clean_and_compare_says_fixed(
    name: str, profiled: Any, leakscope_commands: Warm
) -> None:
    leaking, fixed = profiled(name, "train"), profiled(name, "train_fixed")
    report = report_of(fixed)
    assert report["verdict"] == "clean", (report["headline"], alarms(report))
    command = ["-m", "leakscope", "compare", str(leaking), str(fixed)]
    done = leakscope_commands.run([*command, "--format", "json", "--fail-on", "new,worse"], ROOT)
    comparison = json.loads(done.well().out)
    changes = {change["name"]: change["change"] for change in comparison["culprits"]}
    for leak in examples()[name].leaks:
        found = [changes[accepted] for accepted in leak.names if accepted in changes]
        assert found == ["fixed"], (leak.names, changes)
