"""Loss tensors logged to wandb, offline, and the gradients of the model watched.

Kept loss tensors were reported in https://github.com/wandb/wandb/issues/354 and memory that grows
with ``watch`` in https://github.com/wandb/wandb/issues/2644. With version 0.31 neither is seen any
more: what is logged is turned into numbers at once, and the histograms are let go.
"""

import tempfile

import torch
import wandb
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(3200, 256), torch.randint(0, 10, (3200,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    folder = tempfile.mkdtemp()
    run = wandb.init(project="zoo", mode="offline", dir=folder)
    run.watch(model, log="all", log_freq=20)
    for epoch in range(6):
        model.train()
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log({"loss": loss, "epoch": epoch})
        model.eval()
        with torch.no_grad():
            outputs = torch.cat([model(x) for x, _ in loader])
        run.log({"outputs": wandb.Histogram(outputs.numpy())})
        print("epoch", epoch, "loss", loss.item())
    run.finish()


if __name__ == "__main__":
    main()
