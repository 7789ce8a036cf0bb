"""The work is done in main(): what dies when as it returns, and how often it is referred to."""

import atexit
import functools
import gc
import sys
import threading
import traceback
import weakref

from driving import train


class Loud:
    """Says when it dies."""

    def __init__(self, name):
        self.name = name

    def __del__(self):
        caller = sys._getframe(1)
        print("gone", self.name, sys.getrefcount(self), caller.f_code.co_name, caller.f_lineno)


class Circle(Loud):
    """Dies when the collector runs."""

    def __init__(self, name):
        super().__init__(name)
        self.me = self


watched = weakref.WeakValueDictionary()
limits = []


def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)


def depth():
    """Return how far down one can go from here."""
    low, high = 1, sys.getrecursionlimit()
    while low < high:
        middle = (low + high + 1) // 2
        try:
            deep(middle)
            low = middle
        except RecursionError:
            high = middle - 1
    return low


def timed(function):
    @functools.wraps(function)
    def wrapper(*args):
        before = Loud("of the wrapper")
        result = function(*args)
        print("wrapped", sys.getrefcount(before), sys._getframe(1).f_code.co_name)
        return result

    return wrapper


def made():
    kept = Loud("of a generator")
    yield kept.name
    train()
    yield kept.name


def helper(depth_at):
    return [frame.name for frame in traceback.extract_stack()][-2:], depth_at


@timed
def main(name):
    """Do the work."""
    first, circle, last = Loud("first"), Circle("circle"), Loud(name)
    watched["first"], watched["circle"] = first, circle
    kept = [Loud(f"item {i}") for i in range(2)]
    inner = Loud("in a cell")
    model = train(epochs=4)
    read = lambda: inner.name  # noqa: E731
    limits.insert(0, depth())
    print(read(), sys.getrefcount(first), sys.getrefcount(kept), len(gc.get_referrers(model)))
    print(sorted(threading.current_thread().name for _ in (0,)), helper(sys.getrecursionlimit()))
    try:
        raise ValueError(name)
    except ValueError as error:
        print(traceback.format_exc(), error.__traceback__.tb_lineno, last.name)
    return Loud("result")


def at_exit():
    print("at exit", sorted(watched), gc.collect() > 0, sorted(watched))
    print(limits[0] == limits[1] - 1, sys.gettrace(), sys.getprofile())


atexit.register(at_exit)
print(sys.gettrace(), sys.getprofile(), depth() == depth())
limits.append(depth())
for name in made():
    print("made", name)
print("returned", main("last").name, sys.getrefcount(watched))
