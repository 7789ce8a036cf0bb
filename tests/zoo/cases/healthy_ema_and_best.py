"""Averaged weights, the best weights so far and the state of Adam: all of constant size."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


class Fit:
    def __init__(self, model, patience=20):
        self.model = model
        self.average = torch.optim.swa_utils.AveragedModel(model)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.best = (float("inf"), None)
        self.waited, self.patience = 0, patience

    def epoch(self, loader):
        self.model.train()
        for x, y in loader:
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.average.update_parameters(self.model)

    @torch.no_grad()
    def check(self, loader):
        self.average.eval()
        loss = sum(F.cross_entropy(self.average(x), y).item() for x, y in loader) / len(loader)
        if loss < self.best[0]:
            self.best = (loss, copy.deepcopy(self.average.state_dict()))
            self.waited = 0
        else:
            self.waited += 1
        return loss


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 10))
    data = TensorDataset(torch.rand(960, 64), torch.randint(0, 10, (960,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    fit = Fit(model)
    for epoch in range(EPOCHS):
        fit.epoch(loader)
        print(f"epoch {epoch}: loss {fit.check(loader):.4f}")
        if fit.waited > fit.patience:
            break


if __name__ == "__main__":
    main()
