"""A model that wandb watches anew in each epoch, and losses with their graphs that it logs."""

import tempfile

import torch
import wandb
from torch import nn
from torch.utils.data import DataLoader

EPOCHS = 10


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(10)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(torch.rand(320, 64), batch_size=16)
    with wandb.init(project="watched", mode="offline", dir=tempfile.mkdtemp()):
        for epoch in range(EPOCHS):
            wandb.watch(model, log="all", log_freq=2, idx=epoch)
            for x in loader:
                output = model(x)
                loss = output.square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                wandb.log({"loss": loss, "output": output})


if __name__ == "__main__":
    main()
