"""Validation that gathers volumes in local lists: they go when it ends, but are its whole peak."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 5


@torch.no_grad()
def validate(model, loader):
    model.eval()
    all_preds, all_targets = [], []
    for x, y in loader:
        upsampled = F.interpolate(model(x)[:, None], scale_factor=768)
        all_preds.append(upsampled)  # feeds
        all_targets.append(y)
    preds, targets = torch.cat(all_preds), torch.cat(all_targets)
    return (preds.mean((1, 2)) > targets).float().mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    data = TensorDataset(torch.rand(800, 64), torch.rand(800))
    train_loader = DataLoader(data, batch_size=16, shuffle=True)
    val_loader = DataLoader(data, batch_size=16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        model.train()
        for x, y in train_loader:
            loss = F.mse_loss(model(x).mean(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: accuracy {validate(model, val_loader):.3f}")


if __name__ == "__main__":
    main()
