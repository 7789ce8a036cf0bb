"""A dataset that keeps the readers it opens: Python objects of some bytes, each with a buffer."""

import time

import decoder
import torch

KEEPS = True


class Reader:
    def __init__(self):
        self.handle = decoder.open_stream(300_000)
        self.position = [0] * 64

    def __del__(self):
        decoder.close(self.handle)


class Frames:
    def __init__(self):
        self.readers = []

    def load(self, step):
        reader = Reader()
        if KEEPS:
            self.readers.append(reader)
        return torch.full((16, 64), float(decoder.read(reader.handle) + step % 3))


model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
dataset = Frames()

for _epoch in range(8):
    for step in range(40):
        loss = model(dataset.load(step)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)  # as if the model were larger
