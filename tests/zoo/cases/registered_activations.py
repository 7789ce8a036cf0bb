"""A module registers what it computes in evaluation as buffers, one for each batch."""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 12


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 256)
        self.head = nn.Linear(256, 5)
        self.calls = 0

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        if not self.training:
            name = f"activation_{self.calls}"
            self.register_buffer(name, hidden.detach(), persistent=False)  # feeds
            self.calls += 1
        return self.head(hidden)


@torch.no_grad()
def accuracy(net, loader):
    net.eval()
    right = sum(int((net(x).argmax(1) == y).sum()) for x, y in loader)
    net.train()
    return right / len(loader.dataset)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.rand(512, 64), torch.randint(0, 5, (512,)))
    train, val = DataLoader(data, batch_size=32, shuffle=True), DataLoader(data, batch_size=64)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    for epoch in range(EPOCHS):
        for x, y in train:
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy(net, val):.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "list(net._buffers.values())"
        tell(locals(), {"net": kept}, {"validation": EPOCHS, "epoch": EPOCHS})


if __name__ == "__main__":
    main()
