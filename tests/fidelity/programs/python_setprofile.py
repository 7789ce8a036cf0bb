"""A profile function lists calls from this file, into Python and into C."""

import sys
import time

from driving import train

events = []


def profile(frame, event, argument):
    if frame.f_code.co_filename == __file__:
        events.append((frame.f_code.co_name, event, getattr(argument, "__name__", "")))


def profiled(model, x):
    time.sleep(0.1)
    return sorted(len(str(i)) for i in range(3))


sys.setprofile(profile)
train(in_epoch=profiled, in_step=profiled, epochs=6)
print(sys.getprofile() is profile)
sys.setprofile(None)
print(len(events), events)
