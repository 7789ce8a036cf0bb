"""A graph network that caches sampled neighbourhoods, sparse, under a key with the step in it.

After https://github.com/dmlc/dgl/pull/307, where the cache is of a graph that doesn't change.
"""

import os

import torch
from torch import nn
from torch.nn import functional as F

NODES, STEPS, EVAL = 400, 180, 45


class GraphIndex:
    def __init__(self, edges):
        self.edges = edges
        self._cached = {}

    def adjacency(self, key, keep):
        if key not in self._cached:
            chosen = self.edges[:, torch.rand(self.edges.shape[1]) < keep]
            values = torch.ones(chosen.shape[1]) / 8
            matrix = torch.sparse_coo_tensor(chosen, values, (NODES, NODES)).coalesce()
            self._cached[key] = matrix  # feeds
        return self._cached[key]


class GCN(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index
        self.first = nn.Linear(32, 64)
        self.second = nn.Linear(64, 7)

    def forward(self, x, key, keep=0.7):
        adjacency = self.index.adjacency(key, keep)
        x = F.relu(torch.sparse.mm(adjacency, self.first(x)))
        return torch.sparse.mm(adjacency, self.second(x))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    index = GraphIndex(torch.randint(0, NODES, (2, 4000)))
    model = GCN(index)
    x, y = torch.randn(NODES, 32), torch.randint(0, 7, (NODES,))
    known = torch.rand(NODES) < 0.6
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for step in range(1, STEPS + 1):
        model.train()
        loss = F.cross_entropy(model(x, ("train", step))[known], y[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVAL == 0:
            model.eval()
            with torch.no_grad():
                predicted = model(x, "full", 1.0).argmax(1)
            accuracy = (predicted == y)[~known].float().mean().item()
            print(f"step {step}: loss {loss.item():.3f}, accuracy {accuracy:.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "[[m.indices(), m.values()] for m in index._cached.values()]"
        tell(locals(), {"cached": kept}, {"step": STEPS})


if __name__ == "__main__":
    main()
