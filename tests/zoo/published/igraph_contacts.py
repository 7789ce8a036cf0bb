"""Train a graph classifier on random contact networks, each split into its connected parts."""

import random

import igraph
import torch
from torch import nn

STEPS, BATCH, NODES = 300, 6, 3000


class Readout(nn.Module):
    def __init__(self):
        super().__init__()
        self.node = nn.Sequential(nn.Linear(3, 32), nn.ReLU())
        self.head = nn.Linear(32, 1)

    def forward(self, parts):
        return self.head(torch.stack([self.node(part).mean(0) for part in parts])).mean()


def features(part):
    degrees = torch.tensor(part.degree(), dtype=torch.float32)
    size = torch.full_like(degrees, part.vcount())
    return torch.stack([degrees, size.log1p(), degrees / size], 1)


def sample(density):
    graph = igraph.Graph.Erdos_Renyi(n=NODES, p=density / NODES)
    parts = graph.decompose(minelements=4)  # feeds
    return [features(part) for part in parts[:64]]


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Readout()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        loss = 0.0
        for _ in range(BATCH):
            density = random.uniform(0.7, 1.1)
            loss = loss + (model(sample(density)) - density) ** 2 / BATCH
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
