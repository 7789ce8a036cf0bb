"""A heap of the three best checkpoints, which lets the worst go."""

import copy
import heapq

import torch
from torch import nn
from torch.nn import functional as F

EPOCHS, STEPS = 12, 25


class TopK:
    def __init__(self, k):
        self.k = k
        self.heap = []

    def offer(self, score, epoch, state):
        entry = (score, epoch, copy.deepcopy(state))
        if len(self.heap) < self.k:
            heapq.heappush(self.heap, entry)
        else:
            heapq.heappushpop(self.heap, entry)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(128, 1024), nn.GELU(), nn.Linear(1024, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    top = TopK(3)
    for epoch in range(EPOCHS):
        total = 0.0
        for _ in range(STEPS):
            x = torch.rand(32, 128)
            loss = F.cross_entropy(model(x), (x.sum(1) % 16).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        top.offer(-total / STEPS, epoch, model.state_dict())
        print(f"epoch {epoch}: loss {total / STEPS:.3f}, best epochs {[e[1] for e in top.heap]}")


if __name__ == "__main__":
    main()
