"""One pass over embeddings in a memory-mapped file, read in order while a probe is trained."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

ROWS, WIDTH, BATCH = 134400, 384, 192


def write(path):
    rng = np.random.default_rng(0)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(ROWS, WIDTH))
    for begin in range(0, ROWS, 4096):
        piece = out[begin : begin + 4096]
        piece[:] = rng.standard_normal(piece.shape, dtype=np.float32)
    out.flush()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "embeddings.npy"
        write(path)
        embeddings = np.load(path, mmap_mode="r")
        probe = nn.Sequential(nn.Linear(WIDTH, 768), nn.ReLU(), nn.Linear(768, 2))
        optimizer = torch.optim.Adam(probe.parameters(), lr=1e-3)
        for step, begin in enumerate(range(0, ROWS, BATCH), 1):
            x = torch.from_numpy(np.array(embeddings[begin : begin + BATCH]))
            y = (x[:, 0] > x[:, 1]).long()
            loss = nn.functional.cross_entropy(probe(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 80 == 0:
                print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
