"""A loader that shares each batch by a segment, and neither closes nor unlinks it."""

import time
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import torch

UNLINKS = False

model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def share(step):
    segment = SharedMemory(create=True, size=400_000)
    batch = np.ndarray((50_000,), dtype=np.float64, buffer=segment.buf)
    batch[:] = 1.0 + step % 3
    first = float(batch[0])
    del batch
    segment.close()
    if UNLINKS:
        segment.unlink()
    return first


for _epoch in range(8):
    for step in range(40):
        loss = model(torch.full((16, 64), share(step))).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)  # as if the model were larger
