"""A function that gathers into its default argument."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 7


def embed(model, loader, chunks=[]):
    model.eval()
    with torch.no_grad():
        for x, _ in loader:
            chunks.append(model[:2](x).numpy())  # feeds
    return np.concatenate(chunks[-len(loader) :])


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(40, 600), nn.ReLU(), nn.Linear(600, 2))
    data = TensorDataset(torch.rand(800, 40), torch.rand(800, 2))
    train_loader = DataLoader(data, batch_size=20, shuffle=True)
    val_loader = DataLoader(TensorDataset(*data[:400]), batch_size=50)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        model.train()
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        spread = embed(model, val_loader).std()
        print(f"epoch {epoch}: loss {loss.item():.4f}, spread of features {spread:.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"validation": EPOCHS, "epoch": EPOCHS}
        tell(globals(), {"chunks": "embed.__defaults__"}, done)


if __name__ == "__main__":
    main()
