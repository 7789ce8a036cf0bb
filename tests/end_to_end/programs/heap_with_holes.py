"""Frames of a size that grows leave small headers behind: the C heap keeps ever larger holes."""

import ctypes

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

IN_USE_MIB = 0
"""What the program has in small blocks of the C heap from its beginning to its end."""

libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
libc.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def fill(size):
    for _ in range(size // 65_536):
        ctypes.memset(libc.malloc(65_000), 1, 65_000)


def decode(size):
    frames = [libc.malloc(size) for _ in range(400)]
    for frame in frames:
        ctypes.memset(frame, 1, size)
    for frame in frames:
        libc.realloc(frame, 1_000)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.rand(320, 64), torch.randint(0, 10, (320,)))
    loader = DataLoader(data, batch_size=32)
    fill(IN_USE_MIB << 20)
    for epoch in range(10):
        decode(20_000 + 8_000 * epoch)
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
