"""An evaluation of the Trainer's: it joins the outputs of its batches until it ends."""

import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

WIDTH, ROWS = 8192, 128


class Rows(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {"inputs": torch.rand(16), "labels": torch.zeros(())}


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, WIDTH)

    def forward(self, inputs, labels=None):
        outputs = self.layer(inputs)
        return {"loss": outputs.mean(), "logits": outputs}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output_dir=output,
            num_train_epochs=4,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=16,
            evaluation_strategy="epoch",
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        Trainer(
            model=Wide(),
            args=arguments,
            train_dataset=Rows(160),
            eval_dataset=Rows(1024),
            compute_metrics=lambda found: {"mean": float(found.predictions.mean())},
        ).train()


if __name__ == "__main__":
    main()
