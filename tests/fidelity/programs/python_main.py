"""What a program can ask about itself."""

import inspect
import locale
import os
import pickle
import sys
import threading

from driving import train


class Item:
    """An item."""

    def method(self):
        return 1


def look(model, x):
    frame = inspect.currentframe()
    names = []
    while frame is not None:
        names.append((os.path.basename(frame.f_code.co_filename), frame.f_code.co_name))
        frame = frame.f_back
    print(names[:3])


train(in_epoch=look)
print(sys.argv, os.path.basename(__file__), __name__, __spec__, __package__, sys.path[0] != "")
print(inspect.getsource(Item), inspect.getsourcelines(look)[1])
print(type(pickle.loads(pickle.dumps(Item()))) is Item, Item.__module__)
print(locale.getlocale(), locale.setlocale(locale.LC_ALL), sys.flags, sys.getrecursionlimit())
print(
    sys.modules["__main__"].__dict__ is globals(), threading.main_thread().name, os.getcwd() != ""
)
print(sorted(os.environ) == sorted(os.environ), "LEAKSCOPE" in os.environ, sys.getswitchinterval())
