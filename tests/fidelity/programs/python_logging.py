"""Logging, faulthandler and random numbers of every source, before and after."""

import faulthandler
import logging
import random
import sys

import numpy as np
import torch
from driving import train

logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format="%(name)s %(message)s")
faulthandler.enable()
generator = np.random.default_rng(1)


def draw(model, x):
    logging.info("%s %s", round(random.random(), 6), round(float(generator.random()), 6))
    logging.info("%s %s", round(float(np.random.random()), 6), round(float(torch.rand(1)), 6))


train(in_epoch=draw, in_step=draw)
print(faulthandler.is_enabled(), len(logging.getLogger().handlers))
