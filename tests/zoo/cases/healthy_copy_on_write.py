"""Two workers read a list of small dicts; their reference counts unshare its pages, once.

After https://github.com/pytorch/pytorch/issues/13246: it looks like a leak and ends.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EPOCHS = 6


class Annotations(Dataset):
    def __init__(self, count):
        self.rows = [{"id": str(i), "box": [i, i + 1, i + 2, i + 3]} for i in range(count)]

    def __len__(self):
        return 1280

    def __getitem__(self, index):
        seen = self.rows[index::1280]
        box = seen[len(seen) // 2]["box"]
        return torch.tensor(box, dtype=torch.float32) / 1e6, index % 3


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        Annotations(150_000), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
