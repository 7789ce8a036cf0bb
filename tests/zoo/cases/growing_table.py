"""A pandas table of predictions that grows by every validation."""

import os

import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


class Experiment:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 40))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.predictions = pd.DataFrame()

    def train(self, loader):
        self.model.train()
        for x, y in loader:
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self, loader, epoch):
        self.model.eval()
        frames = []
        for x, _ in loader:
            frame = pd.DataFrame(self.model(x).numpy())
            frame["epoch"] = epoch
            frames.append(frame)
        self.predictions = pd.concat([self.predictions, *frames], ignore_index=True)  # feeds
        return self.predictions.iloc[-1000:, 0].mean()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.rand(4000, 30), torch.rand(4000, 40))
    train_loader = DataLoader(data, batch_size=80, shuffle=True)
    val_loader = DataLoader(data, batch_size=400)
    experiment = Experiment()
    for epoch in range(EPOCHS):
        experiment.train(train_loader)
        print(f"epoch {epoch}: mean {experiment.validate(val_loader, epoch):.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "int(experiment.predictions.memory_usage(index=False).sum())"
        tell(locals(), {"predictions": kept}, {"validation": EPOCHS, "epoch": EPOCHS})


if __name__ == "__main__":
    main()
