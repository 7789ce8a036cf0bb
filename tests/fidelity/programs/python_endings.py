"""Exit handlers in their order, then an exit code."""

import atexit
import sys
import threading

from driving import train

for i in range(3):
    atexit.register(print, "handler", i)


class Late:
    def __del__(self):
        print("deleted at the end")


late = Late()
threading.Thread(target=lambda: print("thread", threading.main_thread().is_alive())).start()
train()
sys.exit(7)
