"""Dataset cartography: for each sample the logits of every epoch, under the sample's index."""

import os
from collections import defaultdict

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EPOCHS = 8


class Indexed(Dataset):
    def __init__(self, count):
        self.x, self.y = torch.rand(count, 48), torch.randint(0, 2000, (count,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return index, self.x[index], self.y[index]


class Cartographer:
    def __init__(self):
        self.by_sample = defaultdict(list)

    def record(self, indices, logits):
        for index, row in zip(indices.tolist(), logits.detach(), strict=True):
            self.by_sample[index].append(row.clone())  # feeds

    def variability(self):
        stacked = [torch.stack(rows).std(0).mean() for rows in self.by_sample.values()]
        return torch.stack(stacked).mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Indexed(640)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 2000))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    cartographer = Cartographer()
    for epoch in range(EPOCHS):
        for indices, x, y in loader:
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cartographer.record(indices, logits)
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"variability {cartographer.variability():.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"step": EPOCHS * len(loader), "epoch": EPOCHS}
        tell(locals(), {"by_sample": "cartographer.by_sample"}, done)


if __name__ == "__main__":
    main()
