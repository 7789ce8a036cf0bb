"""A recogniser that carries its state on through long recordings: ``python FILE CASE FOLDER``.

leak: the state is never detached, and its graph soon is tens of thousands of nodes deep;
beside: the same, and an extension leaks a reference in each step, for which ctypes stands here;
fixed: it is detached before each recording; cut: after every fifth, so that it gets deep as well.
"""

import ctypes
import sys
import time
from pathlib import Path

import torch
from torch import nn

import leakscope

FRAMES, WIDTH, STEPS = 200, 24, 80


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(32, WIDTH)
        self.head = nn.Linear(WIDTH, 10)
        self.hidden = torch.zeros(8, WIDTH)

    def forward(self, recording):
        for frame in recording:
            self.hidden = self.cell(frame, self.hidden)  # grows here
        return self.head(self.hidden)


def resident():
    with Path("/proc/self/statm").open() as numbers:
        return int(numbers.read().split()[1]) * 4096


def encode():
    rows = bytearray(400_000)  # leaks here
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(rows))


def main():
    torch.set_num_threads(1)
    case, model, sizes = sys.argv[1], Recogniser(), []
    with leakscope.profile(boundaries="manual", out=sys.argv[2], budget=0.1) as scope:
        for number in scope.steps(range(STEPS)):
            model(torch.rand(FRAMES, 8, 32))
            if case == "fixed" or (case == "cut" and number % 5 == 4):
                model.hidden = model.hidden.detach()
            if case == "beside":
                encode()
            time.sleep(0.01)
            sizes.append(resident())
    half = STEPS // 2
    print("bytes per step:", round((sizes[-1] - sizes[half]) / (STEPS - 1 - half)))


main()
