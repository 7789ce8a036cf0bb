"""A decoder in C whose handles nobody closes, while a curriculum brings new shapes every epoch."""

import ctypes

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, SERIES, CHANNELS, CLASSES, HANDLE = 16, 640, 24, 4, 64 * 1024

libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p


class Decoder:
    """Opens a handle for each batch; its rows would be decoded by native code."""

    def decode(self, rows):
        handle = libc.malloc(HANDLE)
        ctypes.memset(handle, 1, HANDLE)
        return rows / rows.abs().amax()


def batches(loader, length):
    decoder = Decoder()
    for rows, y in loader:
        yield decoder.decode(rows[..., :length]), y


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(SERIES, CHANNELS, 200), torch.randint(0, CLASSES, (SERIES,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Conv1d(CHANNELS, 32, 5, padding=2), nn.ReLU(), nn.Conv1d(32, 4, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for x, y in batches(loader, 16 + 12 * epoch):
            loss = F.cross_entropy(model(x).mean(2), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: length {x.shape[2]}, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
