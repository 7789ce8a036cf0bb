"""Loss curves are drawn every few steps: their figures stand in a list, and pyplot holds them too."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import nn

EPOCHS = 6


class Dashboard:
    def __init__(self):
        self.panels = []

    def add(self, losses, step):
        panel = plt.figure(figsize=(5, 3))  # feeds
        axes = panel.add_subplot()
        axes.plot(losses)
        axes.set_title(f"step {step}")
        self.panels.append(panel)  # feeds


def main():
    torch.manual_seed(6)
    board = Dashboard()
    model = nn.GRU(24, 48, batch_first=True)
    head = nn.Linear(48, 24)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
    series = torch.randn(640, 12, 24)
    for epoch in range(EPOCHS):
        losses = []
        for step, start in enumerate(range(0, 640, 16)):
            x = series[start : start + 16]
            loss = (head(model(x)[0])[:, :-1] - x[:, 1:]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step % 8 == 7:
                board.add(losses, epoch * 40 + step)
        print(epoch, round(losses[-1], 3), len(board.panels))


main()
