"""Each epoch forks a child that trains on by itself."""

import os

import torch
from driving import train


def fork(model, x):
    child = os.fork()
    if child == 0:
        with torch.no_grad():
            total = float(model(x).sum())
        os._exit(3 if total == total else 4)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


train(in_epoch=fork, in_step=lambda model, x: None)
