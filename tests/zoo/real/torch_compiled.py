"""A compiled model and a compiled optimizer step, with a last batch of another size."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = TensorDataset(torch.rand(1610, 128), torch.randint(0, 10, (1610,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    val_loader = DataLoader(data, batch_size=128)
    for epoch in range(8):
        model.train()
        for x, y in loader:
            loss = F.cross_entropy(compiled(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum(int((compiled(x).argmax(1) == y).sum()) for x, y in val_loader)
        print("epoch", epoch, "loss", loss.item(), "right", right)


if __name__ == "__main__":
    main()
