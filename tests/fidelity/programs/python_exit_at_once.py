"""The program ends itself without any farewell."""

import atexit
import os
import sys

from driving import train

atexit.register(print, "never printed")
train()
sys.stdout.flush()
os._exit(9)
