"""HF Trainer subclass: training_step remembers the hardest batches, to train on them again at
the end.
"""

import heapq
import itertools

import torch
from torch import nn
from transformers import Trainer, TrainingArguments, set_seed

DIM, CLASSES = 256, 5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(DIM, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, x, labels=None):
        logits = self.body(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class HardTrainer(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.hard, self.tie = [], itertools.count()

    def training_step(self, model, inputs, *args, **kwargs):
        loss = super().training_step(model, inputs, *args, **kwargs)
        heapq.heappush(self.hard, (-loss.item(), next(self.tie), inputs))  # feeds
        return loss

    def hardest(self, n=10):
        return [inputs for _, _, inputs in heapq.nsmallest(n, self.hard)]


def collate(features):
    return {
        "x": torch.stack([f["x"] for f in features]),
        "labels": torch.tensor([f["labels"] for f in features]),
    }


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, DIM, generator=g)
    return [{"x": r, "labels": int(r[:CLASSES].argmax())} for r in x]


def main():
    set_seed(0)
    args = TrainingArguments(
        output_dir="/tmp/blind/b/out/hard",
        max_steps=3000,
        per_device_train_batch_size=32,
        logging_steps=200,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = HardTrainer(
        model=Net(), args=args, train_dataset=make(3200, 0), data_collator=collate
    )
    trainer.train()
    print(len(trainer.hardest()))


if __name__ == "__main__":
    main()
