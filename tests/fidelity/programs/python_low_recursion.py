"""A low limit of recursion, which a program meets and catches, and a deep structure."""

import sys

from driving import train

deep: list[object] = []
for _ in range(5000):
    deep = [deep]
train()
sys.setrecursionlimit(400)


def down(n):
    return 0 if n == 0 else 1 + down(n - 1)


def meet(model, x):
    try:
        down(10_000)
    except RecursionError as error:
        print(type(error).__name__)
    print(down(20))


train(in_epoch=meet)
print(sys.getrecursionlimit())
