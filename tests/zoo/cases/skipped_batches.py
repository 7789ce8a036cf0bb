"""Batches that fail are skipped and their exceptions kept, with all that their frames hold.

After https://github.com/pytorch/pytorch/issues/10348.
"""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class BadBatchError(RuntimeError):
    pass


class Trainer:
    def __init__(self, model, loader):
        self.model = model
        self.loader = loader
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.errors = []
        self.good = 0

    def compute_loss(self, tokens, labels):
        hidden = self.model[0](tokens)
        pooled = self.model[1](hidden).mean(1)
        if (labels < 0).any():
            raise BadBatchError(f"labels out of range: {labels.min().item()}")
        return F.cross_entropy(pooled, labels)

    def train_step(self, tokens, labels):
        self.optimizer.zero_grad()
        loss = self.compute_loss(tokens, labels)
        loss.backward()
        self.optimizer.step()
        self.good += 1
        return loss.item()

    def run(self):
        for epoch in range(EPOCHS):
            loss = float("nan")
            for tokens, labels in self.loader:
                try:
                    loss = self.train_step(tokens, labels)
                except BadBatchError as error:
                    self.errors.append(error)  # feeds
            print(f"epoch {epoch}: loss {loss:.3f}, skipped {len(self.errors)}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokens = torch.randint(0, 2000, (800, 128))
    labels = torch.randint(0, 4, (800,))
    labels[::400] = -1
    net = nn.Sequential(nn.Embedding(2000, 64), nn.Linear(64, 4))
    trainer = Trainer(net, DataLoader(TensorDataset(tokens, labels), batch_size=16))
    trainer.run()
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"step": EPOCHS * len(trainer.loader), "epoch": EPOCHS}
        tell(globals(), {"errors": "freed(trainer.errors.clear)"}, done)
