"""A thread writes what the loop puts into its queue, and keeps up."""

import queue
import threading

import torch
from torch import nn

STEPS = 300


class Writer(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.pending = queue.Queue()
        self.total = 0.0

    def run(self):
        while (picture := self.pending.get()) is not None:
            self.total += float(picture.mean())


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    writer = Writer()
    writer.start()
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        clean = torch.rand(4, 1, 48, 48)
        denoised = model(clean + 0.1 * torch.randn_like(clean))
        loss = (denoised - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.pending.put(denoised.detach())
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    writer.pending.put(None)
    writer.join()
    print(f"mean brightness {writer.total / STEPS:.3f}")


if __name__ == "__main__":
    main()
