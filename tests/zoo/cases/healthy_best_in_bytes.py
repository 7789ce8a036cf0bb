"""Fits a forecaster with early stopping; the best state so far is held as bytes and put back."""

import copy
import io

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Best:
    """The best weights, serialised, and a copy of the model that made them for comparison."""

    def __init__(self, patience):
        self.patience, self.waited = patience, 0
        self.loss, self.data, self.model = float("inf"), b"", None
        self.replaced = 0

    def offer(self, loss, model, optimizer):
        if loss >= self.loss:
            self.waited += 1
            return self.waited < self.patience
        buffer = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
        self.loss, self.data, self.waited = loss, buffer.getvalue(), 0
        self.model = copy.deepcopy(model)
        self.replaced += 1
        return True

    def restore(self, model):
        model.load_state_dict(torch.load(io.BytesIO(self.data))["model"])


class Forecaster(nn.Module):
    def __init__(self, channels=8, width=192, ahead=6):
        super().__init__()
        self.cell = nn.LSTM(channels, width, batch_first=True)
        self.head = nn.Linear(width, ahead)

    def forward(self, past):
        return self.head(self.cell(past)[0][:, -1])


def demand(count, seed, length=24, ahead=6):
    random = torch.Generator().manual_seed(seed)
    time = torch.arange(length + ahead) + 100 * torch.rand(count, 1, generator=random)
    curve = torch.sin(time / 3.8) + 0.5 * torch.sin(time / 11 + 1)
    noise = 0.2 * torch.randn(count, length + ahead, generator=random)
    past = torch.stack([(curve + noise)[:, :length] * (1 + 0.1 * k) for k in range(8)], -1)
    return TensorDataset(past, curve[:, length:])


def train(epochs=40, batch=64):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader, held = DataLoader(demand(1024, 0), batch, shuffle=True), demand(256, 1)
    model, best = Forecaster(), Best(patience=6)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    for epoch in range(epochs):
        model.train()
        for past, ahead in loader:
            loss = nn.functional.mse_loss(model(past), ahead)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            error = nn.functional.mse_loss(model(held.tensors[0]), held.tensors[1]).item()
        print(f"epoch {epoch}: {error:.4f}, the best {best.loss:.4f}", flush=True)
        if not best.offer(error, model, optimizer):
            break
    best.restore(model)
    print(f"replaced {best.replaced} times")


if __name__ == "__main__":
    train()
