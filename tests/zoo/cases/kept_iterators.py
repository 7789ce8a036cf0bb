"""A look at one batch after every epoch; the generator that gave it is kept, and its batch."""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 14


def enlarged(loader):
    for x, _ in loader:
        large = x.repeat(16, 4)
        yield large.mean(), large


torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.rand(512, 128), torch.randint(0, 5, (512,)))
model = nn.Linear(128, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
looks = []
for epoch in range(EPOCHS):
    for x, y in DataLoader(data, batch_size=32, shuffle=True):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    look = enlarged(DataLoader(data, batch_size=64))
    mean, _ = next(look)
    looks.append(look)  # feeds
    print(f"epoch {epoch}: loss {loss.item():.3f}, mean {mean:.3f}")

if "COUNT_KEPT" in os.environ:
    from weighing import tell

    kept = "[look.gi_frame.f_locals['large'] for look in looks]"
    tell(globals(), {"looks": kept}, {"epoch": EPOCHS})
