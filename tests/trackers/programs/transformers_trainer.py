"""Trains with the Hugging Face trainer, which reports to a tracker by a callback of its own."""

import os
import sys

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from leakscope.transformers import LeakScopeCallback

folder, tracker, recorded = sys.argv[1:]
os.chdir(folder)
kept = []


class Keeps(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        kept.append(torch.zeros(8192))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x):
        return {"loss": self.layer(x).square().mean()}


callbacks = [Keeps()]
if recorded == "callback":
    callbacks.append(LeakScopeCallback(out="run", quiet=True))
Trainer(
    model=Model(),
    args=TrainingArguments(
        output_dir="checkpoints", report_to=tracker, max_steps=150, logging_steps=10,
        save_strategy="no", use_cpu=True, disable_tqdm=True, per_device_train_batch_size=2,
    ),
    train_dataset=[{"x": torch.ones(8)} for _ in range(60)],
    callbacks=callbacks,
).train()  # fmt: skip
