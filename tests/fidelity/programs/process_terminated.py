"""The program is asked to end, and has no handler for it."""

import os
import signal
import sys

from driving import train

train()
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGTERM)
