"""The program ends by sys.exit(main()), from a trace function's view, with a daemon at work."""

import sys
import threading

from driving import train

seen = []
stopped = threading.Event()


class Loud:
    """Says when it dies."""

    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("gone", self.name)


def count():
    return 1 + count() if sys.getrecursionlimit() < 0 else 1


def tick():
    while not stopped.wait(0.001):
        count()


def trace(frame, event, argument):
    if frame.f_code.co_filename == __file__:
        seen.append((event, frame.f_code.co_name, frame.f_lineno))
        return trace
    return None


def main():
    kept = Loud("kept")
    train(epochs=4)
    sys.settrace(trace)
    count()
    print(kept.name)
    return 3


threading.Thread(target=tick, daemon=True).start()
result = main()
sys.settrace(None)
stopped.set()
print(result, seen)
sys.exit(result)
