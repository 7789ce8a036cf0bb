"""Finds motion in a video whose frames a C decoder puts in buffers that it allocates."""

import ctypes
import ctypes.util

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HEIGHT, WIDTH, STEPS, SHUTTER = 360, 480, 450, 3
FRAME = HEIGHT * WIDTH

libc = ctypes.CDLL(ctypes.util.find_library("c"))
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


class Decoder:
    """Hands out decoded frames by their address, which the caller gives back."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.number = 0
        rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
        self.scene = (128 + 60 * np.sin(columns / 17) * np.cos(rows / 23)).astype(np.uint8)

    def decode(self):
        """Return the address of the next frame and whether it is a key frame."""
        picture = np.roll(self.scene, self.number % WIDTH, axis=1)
        picture = picture + self.rng.integers(0, 12, picture.shape, dtype=np.uint8)
        address = libc.malloc(FRAME)
        ctypes.memmove(address, picture.ctypes.data, FRAME)
        self.number += 1
        return address, self.number % 12 == 0

    def release(self, address):
        libc.free(address)


class MotionNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 12, 5, stride=3, padding=2),
            nn.ReLU(),
            nn.Conv2d(12, 24, 5, stride=4, padding=2),
            nn.ReLU(),
        )
        self.out = nn.Linear(24, 2)

    def forward(self, pair):
        return self.out(self.body(pair).mean((2, 3)))


class Camera:
    def __init__(self, decoder):
        self.decoder = decoder
        self.last = None

    def read(self):
        """Return the next frame; None where the shutter was still opening."""
        address, is_key = self.decoder.decode()
        if self.decoder.number % SHUTTER == 0 and not is_key:
            return None
        view = (ctypes.c_uint8 * FRAME).from_address(address)
        frame = np.frombuffer(view, dtype=np.uint8).reshape(HEIGHT, WIDTH).astype(np.float32)
        del view
        self.decoder.release(address)
        return frame / 255

    def pair(self):
        frame = self.read()
        before, self.last = self.last, frame if frame is not None else self.last
        if frame is None or before is None:
            return None
        return torch.from_numpy(np.stack([before, frame]))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    camera, model = Camera(Decoder(0)), MotionNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    target = torch.tensor([[0.5, 0.0], [-0.5, 0.0]])
    loss = torch.zeros(())
    for step in range(1, STEPS + 1):
        while (pair := camera.pair()) is None:
            pass
        loss = F.mse_loss(model(torch.stack([pair, pair.flip(0)])), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
