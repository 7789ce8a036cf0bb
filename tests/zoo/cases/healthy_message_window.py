"""Learns from messages of sensors in protocol buffers; the latest are kept for a replay."""

import random
from collections import deque

import torch
from google.protobuf import struct_pb2
from torch import nn
from torch.nn import functional as F

STEPS, READINGS = 300, 160


class Recorder:
    """What sensors sent."""

    def __init__(self):
        self.messages = deque(maxlen=64)

    def receive(self, rng):
        message = struct_pb2.ListValue()
        message.extend([rng.gauss(0.0, 1.0) for _ in range(READINGS)])
        self.messages.append(message)
        return message


def main():
    rng = random.Random(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    recorder = Recorder()
    model = nn.Sequential(nn.Linear(READINGS, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        received = [recorder.receive(rng) for _ in range(8)]
        x = torch.tensor([[value.number_value for value in m.values] for m in received])
        loss = F.mse_loss(model(x), x.std(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
