"""What the Hugging Face trainer gathers in an evaluation: logits, labels, inputs, losses.

Recognises the locals of its loop, in the names that they have had over its versions
(https://github.com/huggingface/transformers/issues/7767). Offers no diff: the settings stand where
the arguments are made. Silent for growth across evaluations: then somebody else keeps them.
"""

from __future__ import annotations

import re

from leakscope.analysis.remedies.case import Case
from leakscope.model.report import Remedy

_GATHERED = re.compile(
    r"^transformers\..*\b(?:evaluation_loop|prediction_loop)\."
    r"(?:all_(preds|labels|inputs|losses)|(preds|labels|inputs|losses)_host)\b"
)
_WORDS = {"preds": "predictions", "labels": "labels", "inputs": "inputs", "losses": "losses"}
_FEWER = (
    "Trainer(preprocess_logits_for_metrics=…) keeps only what the metric reads, such as "
    "logits.argmax(-1); prediction_loss_only=True keeps none, if the loss is enough."
)
_MOVING = "eval_accumulation_steps=N moves what was gathered from the device every N batches"


def recognise(case: Case) -> Remedy | None:
    """Return the settings of the trainer that gather less."""
    found = _GATHERED.match(case.row.path) or _GATHERED.match(case.name)
    if found is None or case.growth != "within":
        return None
    what = _WORDS[found[1] or found[2]]
    measure = f" ({case.measure()})" if case.measure() else ""
    batches = "batch_eval_metrics=True"
    return case.remedy(
        f"Set eval_accumulation_steps or {batches}" if case.on_device else f"Set {batches}",
        f"The trainer gathers the {what} of a whole evaluation in {case.name}{measure} and hands "
        "them to compute_metrics at the end.",
        f"With TrainingArguments({batches}) compute_metrics is called for each batch, with "
        "compute_result=True for the last one, and nothing is gathered.",
        _FEWER if what == "predictions" else "",
        f"{_MOVING}: that saves {case.on_device}'s memory, not the host's."
        if case.on_device
        else f"{_MOVING}: that doesn't help here, where the host's memory is filled.",
    )
