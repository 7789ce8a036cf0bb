"""Denoising autoencoder; a background writer turns events into a log, pictures are written
when the run closes.
"""

import queue
import threading

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Event:
    def __init__(self, kind, tag, step, payload):
        self.kind, self.tag, self.step, self.payload = kind, tag, step, payload


class BackgroundWriter(threading.Thread):
    STOP = object()

    def __init__(self):
        super().__init__(name="writer", daemon=True)
        self.inbox = queue.Queue(maxsize=256)
        self.pictures = queue.Queue()
        self.latest = {}

    def run(self):
        while (event := self.inbox.get()) is not self.STOP:
            if event.kind == "scalar":
                self.latest[event.tag] = event.payload
            elif event.kind == "picture":
                # encoding is slow: leave it for close()
                self.pictures.put((event.tag, event.step, event.payload))  # feeds

    def scalar(self, tag, step, value):
        self.inbox.put(Event("scalar", tag, step, float(value)))

    def picture(self, tag, step, array):
        self.inbox.put(Event("picture", tag, step, array))

    def close(self):
        self.inbox.put(self.STOP)
        self.join()
        written = 0
        while not self.pictures.empty():
            self.pictures.get()
            written += 1
        return written


class DenoisingNet(nn.Module):
    def __init__(self, c=20):
        super().__init__()
        self.down = nn.Conv2d(3, c, 4, stride=2, padding=1)
        self.mid = nn.Conv2d(c, c, 3, padding=1)
        self.up = nn.ConvTranspose2d(c, 3, 4, stride=2, padding=1)

    def forward(self, x):
        return torch.sigmoid(self.up(F.relu(self.mid(F.relu(self.down(x))))))


def clean_images(n, seed):
    rng = np.random.default_rng(seed)
    freq = rng.uniform(0.5, 4, size=(n, 3, 1, 1)).astype(np.float32)
    grid = np.linspace(0, np.pi, 32, dtype=np.float32)
    return torch.from_numpy(
        0.5 + 0.5 * np.sin(freq * grid[None, None, :, None]) * np.cos(freq * grid[None, None, None])
    )


def as_grid(noisy, clean, restored):
    stacked = torch.stack([noisy, restored, clean], dim=1).flatten(0, 1)
    rows = stacked.numpy().transpose(0, 2, 3, 1)
    return np.ascontiguousarray(rows)


def validate(net, images, writer, epoch, noise):
    net.eval()
    total = 0.0
    with torch.inference_mode():
        for i, clean in enumerate(images.split(40)):
            noisy = (clean + noise * torch.randn_like(clean)).clamp(0, 1)
            restored = net(noisy)
            total += F.mse_loss(restored, clean).item()
            writer.picture(f"val/{i}", epoch, as_grid(noisy, clean, restored))
    return total


def train(epochs=11, steps=130, batch=24, noise=0.2):
    torch.manual_seed(1)
    train_images, val_images = clean_images(1500, 1), clean_images(120, 2)
    net = DenoisingNet()
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    writer = BackgroundWriter()
    writer.start()
    for epoch in range(epochs):
        net.train()
        for step in range(steps):
            clean = train_images[torch.randint(len(train_images), (batch,))]
            loss = F.mse_loss(net((clean + noise * torch.randn_like(clean)).clamp(0, 1)), clean)
            opt.zero_grad()
            loss.backward()
            opt.step()
            writer.scalar("train/loss", epoch * steps + step, loss.item())
        score = validate(net, val_images, writer, epoch, noise)
        writer.scalar("val/mse", epoch, score)
        print(f"[{epoch}] val mse {score:.4f}", flush=True)
    print("pictures written:", writer.close())


train()
