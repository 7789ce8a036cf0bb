"""A table of wandb that gets rows from every fifth batch and is never begun anew.

After https://github.com/wandb/wandb/pull/2249, where tables of pictures filled the memory.
"""

import os
import tempfile

import torch
import wandb
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 128), nn.ReLU(), nn.Linear(128, 3072))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(1600, 3, 32, 32))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    run = wandb.init(project="zoo", mode="offline", dir=tempfile.mkdtemp())
    table = wandb.Table(columns=["epoch", "loss", "input", "output"])
    for epoch in range(EPOCHS):
        model.train()
        for index, (x,) in enumerate(loader):
            output = model(x)
            loss = F.mse_loss(output, x.flatten(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if index % 5 == 0:
                rows = output[:8].detach().tolist()
                table.add_data(epoch, loss.item(), x[:8].flatten(1).tolist(), rows)  # feeds
        run.log({"loss": loss.item()})
        print("epoch", epoch, "rows", len(table.data))
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"epoch": EPOCHS, "step": EPOCHS * len(loader)}
        tell(locals(), {"table": "table.data"}, done)
    run.finish()


if __name__ == "__main__":
    main()
