"""Programs are started, fed and waited for."""

import os
import subprocess
import sys

from driving import train


def start(model, x):
    words = [sys.executable, "-c", "import sys; print(sys.argv, sys.stdin.read())", "a"]
    print(subprocess.run(words, input="text", capture_output=True, text=True, check=True).stdout)
    print(sorted(os.listdir("/proc/self/fd"))[:3], os.getpgrp() == os.getpgid(0))


train(in_epoch=start, epochs=2)
