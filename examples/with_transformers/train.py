"""A classifier with the Hugging Face trainer; its metrics keep every prediction."""

import argparse
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from leakscope.transformers import LeakScopeCallback

CLASSES = 1000

parser = argparse.ArgumentParser()
parser.add_argument("--out", help="where to record; by default under leakscope-runs/")
parser.add_argument("--epochs", type=int, default=8)
arguments = parser.parse_args()


class Photos(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.pixels = torch.rand(count, 256, generator=generator)
        self.labels = torch.randint(0, CLASSES, (count,), generator=generator)

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return {"pixels": self.pixels[index], "labels": self.labels[index]}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, CLASSES))

    def forward(self, pixels, labels):
        logits = self.layers(pixels)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Metrics:
    def __init__(self):
        self.evaluations = []

    def __call__(self, prediction):
        accuracy = float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())
        self.evaluations.append((accuracy, prediction.predictions))
        return {"accuracy": accuracy}


torch.manual_seed(0)
metrics = Metrics()
with tempfile.TemporaryDirectory() as output:
    trainer = Trainer(
        model=Classifier(),
        args=TrainingArguments(
            output_dir=output,
            num_train_epochs=arguments.epochs,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=64,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Photos(640, seed=1),
        eval_dataset=Photos(512, seed=2),
        compute_metrics=metrics,
        callbacks=[LeakScopeCallback(out=arguments.out)],
    )
    trainer.train()
