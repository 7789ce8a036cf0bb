"""The features of the first token are kept of every batch, as a copy of the slice."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 64)
        self.mix = nn.Linear(64, 64)
        self.head = nn.Linear(64, 4)

    def forward(self, tokens):
        hidden = torch.tanh(self.mix(self.embed(tokens)))
        return hidden, self.head(hidden.mean(1))


class Probe:
    def __init__(self):
        self.features = []

    def keep(self, hidden):
        self.features.append(hidden.detach()[0, 0].clone())

    def spread(self):
        return torch.stack(self.features).std(0).mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, probe = Encoder(), Probe()
    data = TensorDataset(torch.randint(0, 100, (640, 48)), torch.randint(0, 4, (640,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for tokens, y in loader:
            hidden, logits = model(tokens)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            probe.keep(hidden)
        print(f"epoch {epoch}: spread of the features {probe.spread():.4f}")


if __name__ == "__main__":
    main()
