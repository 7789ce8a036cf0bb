"""Threads that give back most of what they take: what is left keeps their arenas full of holes."""

import threading
import time

import decoder
import torch

THREADS = 4
FREES = False

model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def decode(frames):
    taken = [decoder.scratch(60_000) for _ in range(frames)]
    for number, block in enumerate(taken):
        if number % 4 or FREES:
            decoder.release(block)


for _epoch in range(8):
    for step in range(40):
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
