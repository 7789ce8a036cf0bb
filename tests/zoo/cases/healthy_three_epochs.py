"""Three epochs of a hundred steps with a validation after each, and nothing gathers."""

import time

import torch
from torch import nn

EPOCHS = 3


def batches(n):
    for _ in range(n):
        x = torch.randn(24, 40)
        yield x, (x.sum(1) > 0).long()


def main():
    torch.manual_seed(8)
    model = nn.Sequential(nn.Linear(40, 160), nn.GELU(), nn.Linear(160, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(2400, 40), torch.randint(0, 2, (2400,)))
    train = torch.utils.data.DataLoader(data, batch_size=24, shuffle=True)
    valid = torch.utils.data.DataLoader(torch.utils.data.Subset(data, range(240)), batch_size=24)
    for epoch in range(EPOCHS):
        model.train()
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
        model.eval()
        right = 0
        with torch.no_grad():
            for x, y in valid:
                right += (model(x).argmax(1) == y).sum().item()
        print(epoch, round(loss.item(), 3), right)


main()
