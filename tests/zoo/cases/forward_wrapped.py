"""Every epoch wraps ``forward`` once more, and each wrapper keeps a sample of its own."""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 14


def compared_with(forward, sample):
    def forward_and_compare(x):
        out = forward(x)
        out.drift = float(sample.mean() - x.mean())
        return out

    return forward_and_compare


torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.rand(512, 128), torch.randint(0, 5, (512,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 5))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(EPOCHS):
    model.forward = compared_with(model.forward, torch.rand(64, 2048))  # feeds
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")

if "COUNT_KEPT" in os.environ:
    from weighing import tell

    kept = "[torch.rand(64, 2048) for _ in range(EPOCHS)]"
    tell(globals(), {"forward": kept}, {"epoch": EPOCHS})
