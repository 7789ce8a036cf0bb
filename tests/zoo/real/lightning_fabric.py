"""A loop with Lightning Fabric: two optimizers, checkpoints, a metric that is reset."""

import tempfile
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy


def main():
    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    fabric.seed_everything(0, verbose=False)
    body = nn.Sequential(nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2))
    head = nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(32 * 6 * 6, 10))
    body, body_optimizer = fabric.setup(body, torch.optim.SGD(body.parameters(), lr=0.01))
    head, head_optimizer = fabric.setup(head, torch.optim.Adam(head.parameters(), lr=1e-3))
    data = TensorDataset(torch.rand(1600, 1, 28, 28), torch.randint(0, 10, (1600,)))
    train_loader, val_loader = fabric.setup_dataloaders(
        DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=64)
    )
    accuracy = MulticlassAccuracy(10)
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(8):
            body.train()
            head.train()
            for x, y in train_loader:
                loss = nn.functional.cross_entropy(head(body(x)), y)
                body_optimizer.zero_grad()
                head_optimizer.zero_grad()
                fabric.backward(loss)
                body_optimizer.step()
                head_optimizer.step()
            body.eval()
            head.eval()
            with torch.no_grad():
                for x, y in val_loader:
                    accuracy(head(body(x)), y)
            fabric.save(Path(folder) / "last.ckpt", {"body": body, "head": head, "epoch": epoch})
            print("epoch", epoch, "accuracy", float(accuracy.compute()))
            accuracy.reset()


if __name__ == "__main__":
    main()
