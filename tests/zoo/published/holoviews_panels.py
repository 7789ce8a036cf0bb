"""Viewers of a training run come and go: holoviews 1.22.1 keeps each panel that followed the run.

A stream held what subscribed to it. Repaired in 1.23.0 and 1.23.1 ("fix: Memory leak in
`Stream._subscribers`", https://github.com/holoviz/holoviews/pull/6875).
"""

import time
from collections import Counter

import holoviews as hv
import numpy as np
import torch
from holoviews.streams import Stream
from torch import nn

STEPS, PER_SECOND, BATCH, WIDTH = 550, 50, 32, 24
LASTING, ARRIVE_EVERY, HISTORY, REPORT_EVERY = 80, 3, 16000, 100

Progress = Stream.define("Progress", step=0, loss=0.0)


class Panel:
    """One viewer's panel: a curve of the loss, smoothed as the viewer likes."""

    def __init__(self, progress, smoothing):
        self.smoothing, self.level, self.seen = smoothing, None, 0
        self.values = np.full(HISTORY, np.nan)
        progress.add_subscriber(self.follow)  # feeds

    def follow(self, step, loss):
        """Take the next loss of the run."""
        before = loss if self.level is None else self.level
        self.level = self.smoothing * before + (1.0 - self.smoothing) * loss
        self.values[self.seen % HISTORY] = self.level
        self.seen += 1

    def draw(self):
        """Return the curve of the last steps."""
        return hv.Curve(self.values[max(0, self.seen - 50) : self.seen], "step", "loss")


class Page:
    """The run's page, with the panels of those who look at it now."""

    def __init__(self, progress):
        self.progress, self.panels, self.counts = progress, {}, Counter()

    def tick(self, step):
        if step % ARRIVE_EVERY == 0:
            self.panels[step] = Panel(self.progress, 0.5 + 0.4 * (step % 7) / 7)
            self.panels[step].draw()
            self.counts["came"] += 1
        for arrived in [arrived for arrived in self.panels if arrived + LASTING < step]:
            del self.panels[arrived]
            self.counts["left"] += 1


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    progress = Progress()
    page, truth, begun = Page(progress), torch.randn(WIDTH, 1) / WIDTH**0.5, time.monotonic()
    for step in range(1, STEPS + 1):
        time.sleep(max(0.0, begun + step / PER_SECOND - time.monotonic()))
        x = torch.randn(BATCH, WIDTH)
        loss = (model(x) - torch.tanh(x @ truth)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        page.tick(step)
        progress.event(step=step, loss=loss.item())
        if step % REPORT_EVERY == 0:
            points = sum(len(panel.draw()) for panel in page.panels.values())
            print(f"step {step}: {dict(page.counts)}, {points} points drawn", flush=True)


if __name__ == "__main__":
    main()
