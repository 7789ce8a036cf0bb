"""A contrastive memory bank of constant size, written round and round."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class MomentumContrast(nn.Module):
    def __init__(self, size=8192, width=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, width))
        self.register_buffer("bank", F.normalize(torch.randn(size, width)))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def enqueue(self, keys):
        index = (self.place + torch.arange(len(keys))) % len(self.bank)
        self.bank[index] = keys
        self.place.add_(len(keys)).remainder_(len(self.bank))

    def forward(self, x):
        query = F.normalize(self.encoder(x))
        key = F.normalize(self.encoder(x + 0.05 * torch.randn_like(x))).detach()
        logits = (
            torch.cat([(query * key).sum(1, keepdim=True), query @ self.bank.clone().T], 1) / 0.1
        )
        self.enqueue(key)
        return F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = MomentumContrast()
    loader = DataLoader(TensorDataset(torch.rand(1280, 96)), batch_size=64, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    for epoch in range(EPOCHS):
        for (x,) in loader:
            loss = model(x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
