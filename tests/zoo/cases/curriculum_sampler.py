"""A sampler that remembers the easiest samples of every epoch: views that keep whole arrays."""

import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

EPOCHS, SAMPLES, POOL = 10, 800, 250_000


class Pool(Dataset):
    def __init__(self):
        self.features = torch.randn(SAMPLES, 32)
        self.labels = (self.features[:, 0] > 0).long()

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.features[index], self.labels[index], index


class CurriculumSampler(Sampler):
    def __init__(self, count, seed=0):
        self.count = count
        self.rng = np.random.default_rng(seed)
        self.difficulty = np.ones(POOL)
        self.easiest = []

    def __iter__(self):
        ranking = np.argsort(self.difficulty + 0.1 * self.rng.random(POOL))
        chosen = ranking[:50]
        self.easiest.append(chosen)  # feeds
        yield from (int(i) % SAMPLES for i in ranking[: self.count])

    def update(self, indices, losses):
        self.difficulty[indices] = losses

    def __len__(self):
        return self.count


torch.manual_seed(0)
torch.set_num_threads(1)
dataset = Pool()
sampler = CurriculumSampler(SAMPLES)
loader = DataLoader(dataset, batch_size=20, sampler=sampler)
model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(EPOCHS):
    correct = 0
    for x, y, index in loader:
        logits = model(x)
        losses = F.cross_entropy(logits, y, reduction="none")
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        sampler.update(index.numpy(), losses.detach().numpy())
        correct += (logits.argmax(1) == y).sum().item()
    print(f"epoch {epoch}: accuracy {correct / SAMPLES:.3f}")

if "COUNT_KEPT" in os.environ:
    from weighing import tell

    tell(globals(), {"easiest": "sampler.easiest"}, {"epoch": EPOCHS})
