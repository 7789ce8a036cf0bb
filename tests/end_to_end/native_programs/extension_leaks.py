"""A training that opens a native decoder in each step and never closes it."""

import time

import decoder
import torch

CLOSES = False

model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def load_batch(step):
    stream = decoder.open_stream(300_000)
    pixel = decoder.read(stream)
    if CLOSES:
        decoder.close(stream)
    return torch.full((16, 64), float(pixel + step % 3))


for _epoch in range(8):
    for step in range(40):
        loss = model(load_batch(step)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)  # as if the model were larger
