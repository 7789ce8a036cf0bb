"""Small tensors of every size come and go by the thousand; what is freed stays with malloc."""

import random

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 240


def graph_batch(count):
    """Return node features of graphs of many sizes."""
    return [torch.rand(random.randint(3, 400), 16) for _ in range(count)]


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.node = nn.Linear(16, 32)
        self.head = nn.Linear(32, 2)

    def forward(self, graphs):
        pooled = [F.relu(self.node(nodes)).mean(0) for nodes in graphs]
        return self.head(torch.stack(pooled))


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = GraphNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    prefetched = graph_batch(32)
    for step in range(STEPS):
        graphs, prefetched = prefetched, graph_batch(random.randint(8, 64))
        loss = F.cross_entropy(model(graphs), torch.randint(0, 2, (len(graphs),)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 59:
            print(f"step {step + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
