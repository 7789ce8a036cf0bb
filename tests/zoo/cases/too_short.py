"""Two epochs of a few steps that keep their outputs: too short to be sure."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1000))
    data = TensorDataset(torch.rand(96, 64), torch.randint(0, 1000, (96,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    outputs = []
    for epoch in range(2):
        for x, y in DataLoader(data, batch_size=32, shuffle=True):
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            outputs.append(logits.detach())  # feeds
        print(f"epoch {epoch}: loss {loss.item():.3f}, {len(outputs)} outputs")


if __name__ == "__main__":
    main()
