"""The remedy for what the Hugging Face trainer gathers in an evaluation, and for look-alikes."""

from __future__ import annotations

import pytest

from leakscope.analysis.remedies import propose
from leakscope.analysis.remedies.context import CulpritContext
from leakscope.analysis.source import SourceIndex
from leakscope.model.census import CensusRow, Owner, RootKind
from leakscope.model.report import Remedy

LOOP = "transformers.trainer.Trainer.evaluation_loop"


def remedy_of(name: str, *, growth: str = "within", on_device: bool = False) -> Remedy:
    row = CensusRow(
        path=name,
        name=name,
        root=RootKind.LOCAL,
        owner=Owner(kind="function", name=name, variable="x", file="/lib/trainer.py"),
        type="list",
        kind="list",
        host_bytes=0 if on_device else 1 << 20,
        device_bytes={"cuda:0": 1 << 20} if on_device else {},
        length=10,
    )
    return propose(CulpritContext(
        row, growth=growth, unit="batch", phase="validation", feeding=[],
        sources=SourceIndex({}, "/p"),
    ))  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [f"{LOOP}.all_preds", f"{LOOP}.all_preds.tensors", f"{LOOP}.preds_host",
     "transformers.trainer.Trainer.prediction_loop.preds_host"],
)  # fmt: skip
def test_gathered_predictions_have_the_trainers_own_remedy(name: str) -> None:
    remedy = remedy_of(name)
    assert remedy.title == "Set batch_eval_metrics=True"
    assert "preprocess_logits_for_metrics" in remedy.text
    assert "eval_accumulation_steps=N" in remedy.text
    assert "doesn't help here" in remedy.text


def test_on_a_device_they_may_move_to_the_host() -> None:
    remedy = remedy_of(f"{LOOP}.all_preds", on_device=True)
    assert remedy.title == "Set eval_accumulation_steps or batch_eval_metrics=True"
    assert "saves cuda:0's memory, not the host's" in remedy.text


def test_labels_have_no_logits_to_reduce() -> None:
    remedy = remedy_of(f"{LOOP}.all_labels")
    assert "gathers the labels" in remedy.text
    assert "preprocess_logits" not in remedy.text


@pytest.mark.parametrize(
    ("name", "growth"),
    [(f"{LOOP}.all_preds", "across"), (f"{LOOP}.metrics", "within"),
     ("mine.Trainer.evaluation_loop.all_preds", "within")],
)  # fmt: skip
def test_look_alikes_have_not(name: str, growth: str) -> None:
    assert "batch_eval_metrics" not in remedy_of(name, growth=growth).text
