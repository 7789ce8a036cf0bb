"""A regression with an average of its weights, and the four best checkpoints held in memory."""

import copy
import heapq

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BEST = 64, 4


class Best:
    """The best few states so far, the worst of them on top of the heap."""

    def __init__(self, size):
        self.size, self.heap = size, []

    def offer(self, score, epoch, model):
        entry = -score, epoch, {name: v.clone() for name, v in model.state_dict().items()}
        if len(self.heap) < self.size:
            heapq.heappush(self.heap, entry)
        else:
            heapq.heappushpop(self.heap, entry)


@torch.no_grad()
def follow(average, model, decay=0.99):
    for mean, now in zip(average.parameters(), model.parameters(), strict=True):
        mean.lerp_(now, 1 - decay)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(2400, 256)
    y = (x @ torch.randn(256, 1)).tanh()
    loader = DataLoader(TensorDataset(x[:2000], y[:2000]), batch_size=50, shuffle=True)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1))
    average, best = copy.deepcopy(model), Best(BEST)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for epoch in range(EPOCHS):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            follow(average, model)
        schedule.step()
        with torch.no_grad():
            score = nn.functional.mse_loss(average(x[2000:]), y[2000:]).item()
        best.offer(score, epoch, average)
        if epoch % 6 == 5:
            print(f"epoch {epoch}: held out {score:.4f}", flush=True)
    print("best epochs", sorted(epoch for _, epoch, _ in best.heap))


if __name__ == "__main__":
    main()
