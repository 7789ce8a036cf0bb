"""Trains on shape descriptors that a C routine puts into memory which the caller must free.

Samples that are skipped for a low score return before they are freed.
"""

import ctypes

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

STEPS, WIDTH, BATCH = 400, 6144, 8

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def describe(points):
    """Return the address of WIDTH floats, as the routine of a C library would."""
    address = libc.malloc(4 * WIDTH)
    found = np.ctypeslib.as_array((ctypes.c_float * WIDTH).from_address(address))
    found[:] = np.repeat(points, WIDTH // len(points))
    return address


def descriptor(rng):
    """Return the descriptor of a random shape; None where it is too flat to learn from."""
    points = rng.normal(size=96).astype(np.float32)
    address = describe(points)
    if points.std() < 1.0:
        return None
    values = np.frombuffer((ctypes.c_float * WIDTH).from_address(address), np.float32).copy()
    libc.free(address)
    return values


def batch(rng):
    found = (descriptor(rng) for _ in range(2 * BATCH))
    rows = [values for values in found if values is not None]
    return torch.from_numpy(np.stack(rows)) if rows else torch.zeros(1, WIDTH)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        x = batch(rng)
        loss = F.mse_loss(model(x), x.mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
