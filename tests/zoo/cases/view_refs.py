"""Classifies nodes of a graph of papers from sampled views; a tracker watches which are in use."""

import random
import weakref

import torch
from torch import nn

EPOCHS, STEPS, NODES, FEATURES, CLASSES, VIEW = 8, 40, 8000, 48, 7, 600


class Graph:
    def __init__(self, seed):
        random_ = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(CLASSES, (NODES,), generator=random_)
        by_class = [(self.labels == c).nonzero().flatten() for c in range(CLASSES)]
        dice = random.Random(seed)
        pairs = []
        for node in range(NODES):
            for _ in range(6):
                same = by_class[int(self.labels[node])]
                pool = same if dice.random() < 0.6 else range(NODES)
                pairs.append((node, int(pool[dice.randrange(len(pool))])))
        self.edges = torch.tensor(pairs).T
        centres = torch.randn(CLASSES, FEATURES, generator=random_)
        noise = 2.5 * torch.randn(NODES, FEATURES, generator=random_)
        self.features = centres[self.labels] + noise


class View:
    """A part of a graph: some nodes and the edges between them."""

    def __init__(self, graph, nodes):
        self.nodes = nodes
        place = torch.full((NODES,), -1)
        place[nodes] = torch.arange(len(nodes))
        edges = place[graph.edges]
        edges = edges[:, (edges >= 0).all(0)]
        values = torch.ones(edges.shape[1])
        adjacency = torch.zeros(len(nodes), len(nodes)).index_put((edges[0], edges[1]), values)
        self.mixing = (adjacency + adjacency.T + torch.eye(len(nodes))).clamp(max=1)
        self.mixing = self.mixing / self.mixing.sum(1, keepdim=True)


class ViewTracker:
    """Knows how often nodes are in views that are alive, so that others are drawn."""

    def __init__(self):
        self.refs = []

    def in_use(self):
        total = torch.zeros(NODES)
        for ref, mask in self.refs:
            if ref() is not None:
                total += mask
        return total

    def track(self, view):
        mask = torch.zeros(NODES).index_fill(0, view.nodes, 1.0)
        self.refs.append((weakref.ref(view), mask))
        return view

    def sample(self, graph, random_):
        chances = 1.0 / (1.0 + self.in_use())
        nodes = torch.multinomial(chances, VIEW, generator=random_)
        return self.track(View(graph, nodes))


class Mixer(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, width), nn.Linear(width, width)
        self.out = nn.Linear(width, CLASSES)

    def forward(self, mixing, x):
        x = (mixing @ self.first(x)).relu()
        return self.out((mixing @ self.second(x)).relu())


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random_ = torch.Generator().manual_seed(0)
    graph, tracker, model = Graph(0), ViewTracker(), Mixer()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
    for epoch in range(EPOCHS):
        total = right = 0.0
        for _ in range(STEPS):
            view = tracker.sample(graph, random_)
            logits = model(view.mixing, graph.features[view.nodes])
            wanted = graph.labels[view.nodes]
            loss = nn.functional.cross_entropy(logits, wanted)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
            right += (logits.argmax(1) == wanted).float().mean().item()
        print(f"epoch {epoch}: {total / STEPS:.3f}, {right / STEPS:.3f} right", flush=True)


if __name__ == "__main__":
    main()
