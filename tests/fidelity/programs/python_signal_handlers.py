"""A timer's handler evaluates the model and prints; the loop itself may be anywhere."""

import signal
import time

import torch
from driving import train

told = []
models: list[torch.nn.Module] = []


def on_alarm(number, frame):
    told.append(number)
    if models:
        with torch.no_grad():
            models[-1](torch.ones(8, 16))


class OnTerm:
    def handle(self, number, frame):
        told.append(frame is not None)


signal.signal(signal.SIGALRM, on_alarm)
signal.signal(signal.SIGTERM, OnTerm().handle)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)


def step(model, x):
    models.append(model)
    time.sleep(0.06)
    signal.raise_signal(signal.SIGTERM)


train(in_step=step, in_epoch=step)
signal.setitimer(signal.ITIMER_REAL, 0)
print(set(told) == {signal.SIGALRM, True}, told.count(True))
print(signal.getsignal(signal.SIGALRM) is on_alarm, signal.getsignal(signal.SIGINT).__name__)
