"""Half an epoch of a training that is stopped early to see whether it starts."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
data = TensorDataset(torch.rand(1280, 64), torch.randint(0, 10, (1280,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in itertools.islice(DataLoader(data, batch_size=32, shuffle=True), 20):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
