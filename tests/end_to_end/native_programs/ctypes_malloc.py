"""A pipeline that takes C memory for each frame and gives none of it back."""

import ctypes
import time

import torch

FREES = False

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def make_frame(size):
    frame = libc.malloc(size)
    ctypes.memset(frame, 1, size)
    return frame


for _epoch in range(8):
    for step in range(40):
        frame = make_frame(200_000)
        loss = model(torch.full((16, 64), 1.0 + step % 3)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)  # as if the model were larger
        if FREES:
            libc.free(frame)
