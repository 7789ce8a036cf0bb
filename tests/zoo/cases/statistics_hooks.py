"""Every epoch hooks a new collector of feature statistics onto the backbone, and unhooks none.

After https://github.com/pytorch/pytorch/issues/46386.
"""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 9


class Covariance:
    def __init__(self, width):
        self.total = torch.zeros(width, width)
        self.count = 0

    def __call__(self, module, inputs, output):
        features = output.detach()
        self.total += features.T @ features
        self.count += len(features)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(96, 384), nn.ReLU())
        self.head = nn.Linear(384, 10)

    def forward(self, x):
        return self.head(self.backbone(x))


def effective_rank(covariance):
    values = torch.linalg.eigvalsh(covariance.total / covariance.count).clamp(min=1e-9)
    share = values / values.sum()
    return torch.exp(-(share * share.log()).sum()).item()


def fit(model, loader, optimizer):
    for epoch in range(EPOCHS):
        covariance = Covariance(384)
        model.backbone.register_forward_hook(covariance)  # feeds
        for x, y in loader:
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, rank {effective_rank(covariance):.1f}")


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(960, 96), torch.randint(0, 10, (960,)))
    model = Network()
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    fit(model, loader, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "[hook.total for hook in model.backbone._forward_hooks.values()]"
        tell(locals(), {"hooks": kept}, {"epoch": EPOCHS})


if __name__ == "__main__":
    main()
