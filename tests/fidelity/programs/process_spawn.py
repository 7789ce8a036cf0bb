"""A pool whose processes import the program anew."""

import multiprocessing
import sys


def work(number):
    return __name__, number, sys.argv


if __name__ == "__main__":
    from driving import train

    def pool(model, x):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(work, [1]))

    train(in_epoch=pool, epochs=2)
