"""An exception leaves main(), whose variables die with the traceback, and says where it was."""

import sys
import weakref

from driving import train


class Loud:
    """Says when it dies."""

    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("gone", self.name)


class RefusedError(Exception):
    """Not allowed."""


def inner(kept):
    mine = Loud("inner")
    if kept:
        raise RefusedError(mine.name)


def main():
    kept, model = Loud("kept"), train(epochs=4)
    weakref.finalize(kept, print, "finalized")
    try:
        inner([])
        inner([model])
    finally:
        print("finally", sys.getrefcount(kept))


def hook(kind, value, tb):
    names = []
    while tb is not None:
        names.append((tb.tb_frame.f_code.co_name, tb.tb_lineno, sorted(tb.tb_frame.f_locals)[:3]))
        tb = tb.tb_next
    print(kind.__name__, value, names[1:], sys.getrefcount(value) - sys.getrefcount(value))
    sys.__excepthook__(kind, value, value.__traceback__)


sys.excepthook = hook
if __name__ == "__main__":
    main()
