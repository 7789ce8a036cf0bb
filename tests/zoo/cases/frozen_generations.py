"""Message passing over small graphs; the collector only runs between rounds, so as not to pause."""

import gc

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, WIDTH, NODES, GRAPHS, ROUNDS, STEPS = 64, 384, 40, 4, 16, 20


class Node:
    def __init__(self, graph, features):
        self.graph = graph
        self.features = features
        self.neighbours = []


class Graph:
    """A graph of nodes that know it and each other."""

    def __init__(self, label, generator):
        self.label = label
        rows = torch.randn(NODES, FEATURES, generator=generator)
        rows[:, : label + 1] += 0.5
        self.nodes = [Node(self, row.clone()) for row in rows]
        for place, node in enumerate(self.nodes):
            for other in torch.randint(0, NODES, (2 + label,), generator=generator).tolist():
                node.neighbours.append(self.nodes[other])
                self.nodes[other].neighbours.append(self.nodes[place])

    def tensors(self):
        place = {id(node): number for number, node in enumerate(self.nodes)}
        features = torch.stack([node.features for node in self.nodes])
        adjacency = torch.zeros(NODES, NODES)
        for number, node in enumerate(self.nodes):
            for neighbour in node.neighbours:
                adjacency[number, place[id(neighbour)]] = 1.0
        return features, adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(4))
        self.out = nn.Linear(WIDTH, 4)

    def forward(self, features, adjacency):
        hidden = F.relu(self.first(features))
        for layer in self.layers:
            hidden = hidden + F.relu(layer(torch.cat([hidden, adjacency @ hidden], -1)))
        return self.out(hidden.mean(-2))


class QuietCollector:
    """Keeps the collector's pauses out of the steps, and its walks short."""

    def __enter__(self):
        gc.disable()

    def __exit__(self, *exception):
        gc.freeze()
        gc.enable()


def train_round(model, optimizer, generator):
    total = 0.0
    for _ in range(STEPS):
        labels = torch.randint(0, 4, (GRAPHS,), generator=generator)
        graphs = [Graph(label, generator) for label in labels.tolist()]
        features, adjacency = zip(*(graph.tensors() for graph in graphs), strict=True)
        loss = F.cross_entropy(model(torch.stack(features), torch.stack(adjacency)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / STEPS


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(5)
    model = GraphNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(ROUNDS):
        with QuietCollector():
            loss = train_round(model, optimizer, generator)
        print(f"round {number}: loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
