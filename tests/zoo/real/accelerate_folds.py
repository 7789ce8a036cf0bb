"""One ``Accelerator`` for all folds of a cross validation, which keeps what it ever prepared.

After https://github.com/huggingface/accelerate/issues/84; ``free_memory()`` between the folds lets
go.
"""

import os

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset

FOLDS = 8


def train_fold(accelerator, data, held_out):
    kept = [i for i in range(len(data)) if i not in held_out]
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, train_loader, val_loader = accelerator.prepare(  # feeds
        model,
        optimizer,
        DataLoader(Subset(data, kept), batch_size=16, shuffle=True),
        DataLoader(Subset(data, list(held_out)), batch_size=64),
    )
    model.train()
    for x, y in train_loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in val_loader)
    return right / len(held_out)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.rand(1600, 256), torch.randint(0, 10, (1600,)))
    for fold in range(FOLDS):
        held_out = range(fold * 200, fold * 200 + 200)
        print("fold", fold, "accuracy", train_fold(accelerator, data, held_out))
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "[(p, p.grad) for m in accelerator._models for p in m.parameters()]"
        tell(locals(), {"folds": kept}, {"validation": FOLDS, "epoch": FOLDS})


if __name__ == "__main__":
    main()
