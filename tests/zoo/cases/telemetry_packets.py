"""A model of a wind turbine that learns online from the packets of its telemetry stream."""

import struct
import zlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SENSORS, SAMPLES, WIDTH, STEPS = 24, 640, 160, 420
HEAD = struct.Struct("<4sII")
MARK = b"WTRB"


class Turbine:
    """Sends packets of samples, now and then with noise of the line between them."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.phase = self.rng.uniform(0, 6.28, SENSORS)
        self.clock = 0

    def send(self):
        times = (self.clock + np.arange(SAMPLES))[:, None]
        self.clock += SAMPLES
        waves = np.sin(times / (20 + np.arange(SENSORS)) + self.phase)
        waves += 0.1 * self.rng.standard_normal(waves.shape)
        body = waves.astype("<f4").tobytes()
        noise = self.rng.bytes(7) if self.rng.random() < 0.2 else b""
        return noise + HEAD.pack(MARK, len(body), zlib.crc32(body)) + body


class PacketParser:
    """Finds the packets in a stream that comes in pieces of any size."""

    def __init__(self):
        self.buffer = bytearray()
        self.offset = 0
        self.damaged = 0

    def feed(self, piece):
        self.buffer += piece
        packets = []
        while (packet := self.next_packet()) is not None:
            packets.append(packet)
        return packets

    def next_packet(self):
        start = self.buffer.find(MARK, self.offset)
        if start < 0 or len(self.buffer) < start + HEAD.size:
            return None
        _, size, checksum = HEAD.unpack_from(self.buffer, start)
        end = start + HEAD.size + size
        if len(self.buffer) < end:
            return None
        self.offset = end
        body = bytes(self.buffer[start + HEAD.size : end])
        if zlib.crc32(body) != checksum:
            self.damaged += 1
            return self.next_packet()
        return np.frombuffer(body, dtype="<f4").reshape(SAMPLES, SENSORS)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(SENSORS, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, SENSORS)

    def forward(self, windows):
        return self.out(self.gru(windows)[0])


def pieces(turbine, generator):
    """Yield the stream as a socket would give it, in pieces of about one packet."""
    waiting = b""
    while True:
        waiting += turbine.send()
        cut = int(generator.integers(len(waiting) // 2, len(waiting) + 1))
        yield waiting[:cut]
        waiting = waiting[cut:]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    parser, model = PacketParser(), Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for piece in pieces(Turbine(0), np.random.default_rng(1)):
        for packet in parser.feed(piece):
            windows = torch.from_numpy(packet.copy()).view(SAMPLES // 32, 32, SENSORS)
            loss = F.mse_loss(model(windows[:, :-1]), windows[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 30 == 0:
                print(f"step {step}: loss {loss.item():.4f}", flush=True)
        if step >= STEPS:
            break


if __name__ == "__main__":
    main()
