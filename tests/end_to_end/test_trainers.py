"""Unmodified programs around other people's trainers, each run through ``leakscope run``.

The programs stand in ``programs/``. What their trainers did, and how fast their leaks grow, is
derived here from their sizes.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from sampling import sampled
from torch import nn
from warm import Warm

from leakscope.model.boundary import BoundaryKind
from leakscope.recording import open_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Work:
    """What a trainer did, in numbers."""

    epochs: int
    steps: int
    batches: int
    validated_at: tuple[int, ...]
    """The step after which each validation began."""


@dataclass(frozen=True)
class Leak:
    name: str
    line: str
    units: tuple[str, ...]
    bytes_per_unit: Callable[[], float]
    remedy: str
    also: tuple[str, ...] = ()
    """Culprits that follow from the first."""


@dataclass(frozen=True)
class Program:
    libraries: tuple[str, ...]
    work: Work
    leak: Leak | None = None


@dataclass(frozen=True)
class Outcome:
    output: str
    report: dict[str, Any]
    folder: Path

    @property
    def printed(self) -> str:
        keys = ("name", "severity", "unit", "bytes_per_unit", "fed_at")
        rows = [{key: c[key] for key in keys} for c in self.report["culprits"]]
        titles = [f"{f['severity']}: {f['title']}" for f in self.report["findings"]]
        return f"{self.report['headline']}\n{json.dumps(rows, indent=1)}\n{titles}"


HUGGING_FACE = ("transformers", "accelerate")
LIGHTNING = ("lightning",)

HEALTHY = {
    "transformers_healthy": Program(HUGGING_FACE, Work(6, 120, 240, (*range(10, 121, 10),))),
    "lightning_healthy": Program(LIGHTNING, Work(8, 240, 480, (0, *range(15, 241, 15)))),
    "torchmetrics_healthy": Program(("torchmetrics",), Work(8, 800, 800, (*range(100, 801, 100),))),
    "accelerate_healthy": Program(("accelerate",), Work(8, 200, 800, (*range(25, 201, 25),))),
}
COMPARED = ("transformers_healthy", "accelerate_healthy")
"""Those that also run without leakscope."""


def bytes_of_kept_graphs(step: Callable[[], torch.Tensor], count: int = 40) -> float:
    """What the C heap keeps of a loss after ``backward()``, by its own account."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        pytest.skip("only glibc 2.33 or newer tells what is in use")
    mallinfo2.restype = type(
        "MallInfo",
        (ctypes.Structure,),
        {"_fields_": [(f"f{i}", ctypes.c_size_t) for i in range(10)]},
    )
    kept, in_use = [], []
    for index in range(2 * count):
        kept.append(step())
        kept[-1].backward()
        if index % count == count - 1:
            gc.collect()
            reported = mallinfo2()
            in_use.append(reported.f7 + reported.f4)  # uordblks and hblkhd
    return float(in_use[1] - in_use[0]) / count


def loss_of_gpt2() -> torch.Tensor:
    from transformers import GPT2Config, GPT2LMHeadModel

    if not _models:
        config = GPT2Config(
            vocab_size=512, n_positions=32, n_embd=64, n_layer=4, n_head=2,
            bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        _models.append(GPT2LMHeadModel(config))
    tokens = torch.randint(0, 512, (8, 32))
    loss: torch.Tensor = _models[0](input_ids=tokens, labels=tokens).loss
    return loss


def loss_of_perceptron() -> torch.Tensor:
    logits = PERCEPTRON(torch.rand(16, 64))
    return nn.functional.cross_entropy(logits, torch.randint(0, 512, (16,)))


_models: list[nn.Module] = []
PERCEPTRON = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 512))

LEAKS = {
    "transformers_kept_logits": Program(
        HUGGING_FACE,
        Work(4, 160, 160, (*range(20, 161, 20),)),
        Leak(
            "KeepLogits.kept",
            "self.kept.append(",
            ("validation",),
            lambda: 96 * 32 * 512 * 4,
            "Keep only the last entry of KeepLogits.kept",
        ),
    ),
    "transformers_kept_predictions": Program(
        HUGGING_FACE,
        Work(6, 240, 240, (*range(40, 241, 40),)),
        Leak(
            "history",
            "history.append(",
            ("validation", "epoch"),
            lambda: 640 * 1000 * 4,
            "Keep only the last entry of history",
        ),
    ),
    "transformers_kept_losses": Program(
        HUGGING_FACE,
        Work(2, 120, 120, (*range(20, 121, 20),)),
        Leak(
            "CurveTrainer.losses",
            "self.losses.append(loss)",
            ("step",),
            lambda: bytes_of_kept_graphs(loss_of_gpt2),
            "Store loss.detach() in CurveTrainer.losses",
        ),
    ),
    "lightning_kept_outputs": Program(
        LIGHTNING,
        Work(6, 360, 360, (0, *range(60, 361, 60))),
        Leak(
            "LitModel.validation_outputs",
            "self.validation_outputs.append(",
            ("validation",),
            lambda: 640 * (512 * 4 + 8),
            "Empty LitModel.validation_outputs in each validation",
        ),
    ),
    "lightning_kept_losses": Program(
        LIGHTNING,
        Work(6, 600, 600, (0, *range(100, 601, 100))),
        Leak(
            "LitModel.train_losses",
            "self.train_losses.append(loss)",
            ("step",),
            lambda: bytes_of_kept_graphs(loss_of_perceptron),
            "Store loss.detach() in LitModel.train_losses",
        ),
    ),
    "torchmetrics_never_reset": Program(
        ("torchmetrics",),
        Work(8, 800, 800, (*range(100, 801, 100),)),
        Leak(
            "Evaluator.curve.target",
            "self.curve.update(",
            ("validation",),
            lambda: 40960 * 8,
            "Reset self.curve after each round",
            also=("Evaluator.curve.preds", "Evaluator.curve._computed"),
        ),
    ),
}


@pytest.fixture(scope="module")
def outcome_of(
    tmp_path_factory: pytest.TempPathFactory, leakscope_commands: Warm
) -> Callable[[str], Outcome]:
    """Run a program under leakscope, once."""

    @functools.cache
    def run(name: str) -> Outcome:
        for library in (HEALTHY | LEAKS)[name].libraries:
            pytest.importorskip(library)
        folder = tmp_path_factory.mktemp(name)
        command = ["-m", "leakscope", "run", "--out", "run", str(PROGRAMS / f"{name}.py")]
        done = leakscope_commands.run(command, folder).well()
        assert "Traceback" not in done.err
        report = json.loads((folder / "run" / "report.json").read_text())
        return Outcome(done.out, report, folder / "run")

    return run


def assert_work(outcome: Outcome, expected: Work) -> None:
    """The boundaries that were found tell what the trainer did."""
    work = outcome.report["work"]
    assert (work["epochs"], work["steps"], work["batches"]["train"]) == (
        *(expected.epochs, expected.steps, expected.batches),
    )
    begun = [
        m.boundary.step
        for m in open_run(outcome.folder).main.measurements
        if m.boundary.kind is BoundaryKind.PHASE_BEGIN and m.boundary.phase == "validation"
    ]
    assert tuple(begun) == expected.validated_at
    assert work["validations"] == len(expected.validated_at)


@pytest.mark.parametrize("name", sampled(HEALTHY, COMPARED))
def test_a_healthy_training_is_clean(name: str, outcome_of: Callable[[str], Outcome]) -> None:
    outcome, work = outcome_of(name), HEALTHY[name].work
    assert outcome.report["verdict"] == "clean", outcome.printed
    assert not outcome.report["culprits"], outcome.printed
    assert not outcome.report["errors"]
    assert_work(outcome, work)
    assert f"{work.epochs} epochs, {work.steps:,} steps" in outcome.report["headline"]


@pytest.mark.parametrize(
    "name",
    sampled(LEAKS, ("transformers_kept_predictions", "lightning_kept_outputs")),
)
def test_a_leak_next_to_a_trainer_is_named_with_line_unit_and_rate(
    name: str, outcome_of: Callable[[str], Outcome]
) -> None:
    outcome, leak = outcome_of(name), LEAKS[name].leak
    assert leak is not None
    assert outcome.report["verdict"] == "leak", outcome.printed
    first, *others = outcome.report["culprits"]
    assert first["name"] == leak.name, outcome.printed
    assert first["unit"] in leak.units, outcome.printed
    assert first["bytes_per_unit"] == pytest.approx(leak.bytes_per_unit(), rel=0.15), (
        outcome.printed
    )
    source = (PROGRAMS / f"{name}.py").read_text().splitlines()
    assert leak.line in source[int(first["fed_at"][0].rpartition(":")[2]) - 1], outcome.printed
    assert first["remedy"]["title"] == leak.remedy
    assert tuple(c["name"] for c in others) == leak.also, outcome.printed
    assert not outcome.report["errors"]
    assert_work(outcome, LEAKS[name].work)


@pytest.mark.parametrize("name", COMPARED)
def test_a_trainer_computes_the_same_with_and_without(
    name: str, outcome_of: Callable[[str], Outcome], tmp_path: Path, torch_programs: Warm
) -> None:
    observed = outcome_of(name).output.splitlines()[-1]
    plain = torch_programs.run([str(PROGRAMS / f"{name}.py")], tmp_path).well()
    assert plain.out.splitlines()[-1] == observed
    assert observed.startswith("steps")
