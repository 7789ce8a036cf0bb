"""Threads that keep one small block each of all that they take: their arenas stay full of holes."""

import threading
import time

import decoder
import torch

THREADS = 4
POOLED = False

model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
marks = []


def decode(frames):
    taken = [decoder.scratch(60_000) for _ in range(frames)]
    for number, block in enumerate(taken):
        if number % 12:
            decoder.release(block)
        else:
            marks.append(block)


for epoch in range(8):
    for step in range(40):
        if POOLED:
            decoded = [decoder.scratch(60_000) for _ in range(12)]
            for block in decoded:
                decoder.release(block)
        else:
            threads = [threading.Thread(target=decode, args=(12,)) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        loss = model(torch.full((16, 64), 1.0 + step % 3)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)  # as if the model were larger
