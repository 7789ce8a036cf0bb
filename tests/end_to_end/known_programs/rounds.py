"""Runs one case of a file for some rounds: ``python FILE CASE leak|fixed FOLDER``.

A case is named after the entry of the catalogue; its fixed twin does the same by the remedy.
"""

import sys
import time
from collections.abc import Callable, Iterator

import leakscope

ROUNDS, PACE_S = 60, 0.02


def rounds(count: int = ROUNDS) -> Iterator[int]:
    """Yield the numbers of steps, each of a length at least, so that censuses have their time."""
    with leakscope.profile(boundaries="manual", out=sys.argv[3], budget=0.2) as scope:
        for number in scope.steps(range(count)):
            began = time.perf_counter()
            yield number
            time.sleep(max(0.0, PACE_S - (time.perf_counter() - began)))


def run(cases: dict[str, Callable[[bool], None]]) -> None:
    """Run the case that the command line names."""
    cases[sys.argv[1].replace("-", "_")](sys.argv[2] == "leak")
