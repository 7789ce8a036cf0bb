"""Graph classification with DropEdge. Normalised adjacencies are cached per graph, weakly."""

import random
import weakref
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

NODES, FEATS = 84, 24


@dataclass(eq=False)
class Graph:
    features: torch.Tensor
    edges: torch.Tensor
    label: int

    def drop_edges(self, p):
        keep = torch.rand(self.edges.size(1)) > p
        return Graph(self.features, self.edges[:, keep], self.label)


class Propagation:
    """D^-1/2 (A + I) D^-1/2 of one graph."""

    def __init__(self, graph):
        self.graph = graph
        a = torch.eye(graph.features.size(0))
        a[graph.edges[0], graph.edges[1]] = 1.0
        a[graph.edges[1], graph.edges[0]] = 1.0
        d = a.sum(1).rsqrt()
        self.matrix = d[:, None] * a * d[None]

    def __matmul__(self, x):
        return self.matrix @ x

    def density(self):
        return self.graph.edges.size(1) / self.matrix.numel()


_propagations = weakref.WeakKeyDictionary()


def propagation_of(graph):
    found = _propagations.get(graph)
    if found is None:
        found = _propagations[graph] = Propagation(graph)  # feeds
    return found


class GCN(nn.Module):
    def __init__(self, hidden=224):
        super().__init__()
        self.a, self.b = nn.Linear(FEATS, hidden), nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, 2)

    def forward(self, graph):
        p = propagation_of(graph)
        h = F.relu(p @ self.a(graph.features))
        h = F.relu(p @ self.b(h))
        return self.head(h.mean(0))


def random_graph(label):
    """Two communities, or none."""
    side = torch.randint(2, (NODES,))
    i, j = torch.randint(NODES, (2, 900))
    keep = (side[i] == side[j]) | (torch.rand(900) < (0.25 if label else 0.9))
    features = torch.randn(NODES, FEATS)
    features[:, 0] += side * 0.7
    return Graph(features, torch.stack([i[keep], j[keep]]), label)


def batches(items, size):
    items = list(items)
    random.shuffle(items)
    for i in range(0, len(items), size):
        yield items[i : i + size]


def train_epoch(net, optimizer, graphs, size=4):
    net.train()
    total = 0.0
    for chunk in batches(graphs, size):
        logits = torch.stack([net(g.drop_edges(0.2)) for g in chunk])
        loss = F.cross_entropy(logits, torch.tensor([g.label for g in chunk]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / (len(graphs) / size)


@torch.no_grad()
def validate(net, graphs):
    net.eval()
    return sum(net(g).argmax().item() == g.label for g in graphs) / len(graphs)


if __name__ == "__main__":
    random.seed(1)
    torch.manual_seed(1)
    graphs = [random_graph(i % 2) for i in range(300)]
    train_set, val_set = graphs[:240], graphs[240:]
    net = GCN()
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for epoch in range(12):
        loss = train_epoch(net, optimizer, train_set)
        print(f"epoch {epoch} loss {loss:.3f} accuracy {validate(net, val_set):.3f}", flush=True)
