"""A writer thread that reads pictures from a queue far slower than the loop puts them in."""

import os
import queue
import threading
import time

import torch
from torch import nn

STEPS = 320


class PictureWriter:
    def __init__(self):
        self.pending = queue.Queue()
        self.written = 0
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while True:
            picture = self.pending.get()
            if picture is None:
                return
            time.sleep(0.2)  # a slow disk
            self.written += 1

    def add(self, picture):
        self.pending.put(picture)  # feeds


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1)
        )

    def forward(self, x):
        return x - self.net(x)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    writer = PictureWriter()
    for step in range(STEPS):
        clean = torch.rand(8, 1, 64, 64)
        denoised = model(clean + 0.1 * torch.randn_like(clean))
        loss = (denoised - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add(denoised.detach())
    print(f"loss {loss.item():.4f}, {writer.written} of {STEPS} written")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(locals(), {"pending": "writer.pending.queue"}, {"step": STEPS})


if __name__ == "__main__":
    main()
