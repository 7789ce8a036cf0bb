"""Recorded steps of programs that register things, none faster than others."""

import sys
import time

import leakscope

ROUNDS, PACE_S = 60, 0.02


def rounds(number_of_them=ROUNDS):
    with leakscope.profile(boundaries="manual", out=sys.argv[3], budget=0.2) as scope:
        for number in scope.steps(range(number_of_them)):
            began = time.perf_counter()
            yield number
            time.sleep(max(0.0, PACE_S - (time.perf_counter() - began)))


def keeping(size=300_000):
    """Return a function that takes anything and keeps a buffer."""
    buffer = bytearray(size)
    return lambda *arguments, **more: len(buffer) and None


def made_class(size=10_000):
    return type("Made", (), {"table": bytes(size)})


def run(cases):
    cases[sys.argv[1]](sys.argv[2] == "leak")
