"""An engine in a thread of its own answers requests from a queue and keeps a block for each prefix.

The main thread only hands requests in and reads answers; prefixes are hardly ever the same twice.
"""

import os
import queue
import random
import threading
import time

import numpy as np


class Engine(threading.Thread):
    def __init__(self):
        super().__init__()
        self.requests = queue.Queue()
        self.answers = queue.Queue()
        self.blocks = {}

    def run(self):
        while (request := self.requests.get()) is not None:
            prefix = request // 2
            if prefix not in self.blocks:
                self.blocks[prefix] = np.full((32, 128), request, dtype=np.float32)  # feeds
            self.answers.put(float(self.blocks[prefix].sum()))


def main(seconds=18):
    rng = random.Random(1)
    engine = Engine()
    engine.start()
    end = time.monotonic() + seconds
    asked = 0
    while time.monotonic() < end:
        engine.requests.put(asked)
        engine.answers.get()
        asked += 1
        time.sleep(rng.uniform(0.001, 0.009))
    engine.requests.put(None)
    engine.join()
    print("answered", asked)
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(locals(), {"blocks": "engine.blocks"}, {"minute": seconds / 60})


if __name__ == "__main__":
    main()
