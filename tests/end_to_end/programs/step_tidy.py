"""Trains with two volumes per sample; nothing of one pass is left in the next."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.reduce = nn.Linear(2 * 2048, 1024)
        self.classify = nn.Linear(1024, 10)

    def forward(self, features):
        return self.classify(torch.relu(self.reduce(features)))


def extract(volumes):
    return torch.cat([volumes, volumes.flip(1)], 1)


def train(epochs=5):
    torch.manual_seed(0)
    volumes = TensorDataset(torch.randn(256, 2048), torch.randint(0, 10, (256,)))
    loader = DataLoader(volumes, batch_size=32, shuffle=True)
    model = Segmenter()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        model.train()
        for volume, label in loader:
            optimizer.zero_grad()
            features = extract(volume)
            logits = model(features)
            loss = criterion(logits, label)
            loss.backward()
            optimizer.step()
            if epoch >= 0:
                context = features.repeat(32, 1)
                spread = context.std()
                del context
        model.eval()
        with torch.no_grad():
            for held_out, _ in loader:
                predicted = model(extract(held_out)).argmax(1)
                confusion = predicted.repeat(100_000)
                bins = torch.bincount(confusion)
                del confusion
        print(epoch, round(loss.item(), 3), round(spread.item(), 3), bins.numel())


if __name__ == "__main__":
    train()
