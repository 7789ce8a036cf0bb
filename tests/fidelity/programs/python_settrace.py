"""A trace function lists the lines that this file runs."""

import sys

from driving import train

events = []


def trace(frame, event, argument):
    if frame.f_code.co_filename != __file__:
        return None
    events.append((frame.f_code.co_name, event, frame.f_lineno))
    return trace


def traced(model, x):
    total = 0
    for i in range(3):
        total += i
    model(x)
    return total


sys.settrace(trace)
train(in_epoch=traced, in_step=traced)
print(sys.gettrace() is trace)
sys.settrace(None)
print(len(events), events)
