"""How often `find_growth` accuses clean functions: it should be never.

    python benchmarks/clean_functions.py [--runs 10000] [--fresh 50] [--seed 0] [--torch]

Functions that leave nothing behind, and look-alikes that do for a while, take turns. One run in
`--fresh` begins with new caches and buffers, which then fill while they are watched; in the
others they are full already. With `--torch` functions that train are among them, and each look at
the heap costs more. Each accusation is printed; the exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import logging
import random
import re
import sys
import threading
import time
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator

import leakscope

BOUND = 16
NUMBERS = iter(range(1 << 62))
WEAK: weakref.WeakSet[Node] = weakref.WeakSet()


class Node:
    """An object that others may refer to."""

    def __init__(self) -> None:
        self.next: Node | None = None
        self.payload = bytes(1000)


class State:
    """What the functions keep: it ends at a bound, which some of it doesn't declare."""

    def __init__(self) -> None:
        self.ring: deque[bytes] = deque(maxlen=64)
        self.recent: OrderedDict[int, bytes] = OrderedDict()
        self.window: list[bytes] = []
        self.buffer = bytearray()
        self.pool: list[Node] = [Node() for _ in range(BOUND)]
        self.cached = functools.lru_cache(maxsize=64)(_value)
        self.by_key: dict[int, bytes] = {}
        self.last: object = None


def _value(number: int) -> bytes:
    return bytes(1000 + number % 2)


STATE = State()


def makes_garbage() -> None:
    """Leave circles for the collector."""
    first, second = Node(), Node()
    first.next, second.next = second, first


def fills_a_ring() -> None:
    """Fill a bounded deque."""
    STATE.ring.append(bytes(1000))


def fills_a_cache() -> None:
    """Fill a bounded lru_cache with keys that are new each time."""
    STATE.cached(next(NUMBERS))


def evicts_by_hand() -> None:
    """Keep the latest of a dict, as many as nothing declares."""
    STATE.recent[next(NUMBERS)] = bytes(1000)
    if len(STATE.recent) > BOUND:
        STATE.recent.popitem(last=False)


def keeps_a_window() -> None:
    """Cut a list back to its latest items."""
    STATE.window.append(bytes(1000))
    del STATE.window[:-BOUND]


def doubles_a_buffer() -> None:
    """Grow a buffer by doubling until what comes fits."""
    wanted = 100 + 50 * random.randrange(BOUND)
    while len(STATE.buffer) < wanted:
        STATE.buffer.extend(bytes(max(1, len(STATE.buffer))))


def replaces() -> None:
    """Replace what was kept before by something of another size."""
    STATE.last = bytes(random.randrange(5000))


def takes_from_a_pool() -> None:
    """Take an object and give it back: a free list."""
    node = STATE.pool.pop()
    node.payload = bytes(1000)
    STATE.pool.insert(random.randrange(len(STATE.pool) + 1), node)


def keys_that_repeat() -> None:
    """Remember by a key of which there are few."""
    STATE.by_key[next(NUMBERS) % BOUND] = bytes(1000)


def compiles_patterns() -> None:
    """Fill re's cache."""
    re.compile(f"a{next(NUMBERS)}b*")


def interns() -> None:
    """Intern strings that nothing keeps."""
    sys.intern(f"name_{next(NUMBERS)}")


def makes_a_class() -> None:
    """Make a class, which refers to itself, and drop it."""
    type(f"Made{next(NUMBERS)}", (Node,), {})().next = Node()


def logs() -> None:
    """Log through a handler that is taken off again."""
    handler = logging.StreamHandler(io.StringIO())
    logger = logging.getLogger("clean")
    logger.addHandler(handler)
    try:
        logger.warning("number %d", next(NUMBERS))
    finally:
        logger.removeHandler(handler)


def raises() -> None:
    """Raise and catch, with a circle of traceback and frame."""
    try:
        raise ValueError(bytes(1000))
    except ValueError as error:
        kept = error
        kept.__traceback__ = error.__traceback__


def starts_a_thread() -> None:
    """Start a thread and wait for it."""
    thread = threading.Thread(target=Node)
    thread.start()
    thread.join()


def refers_weakly() -> None:
    """Refer weakly to what is gone at once."""
    WEAK.add(Node())


def leaves_a_generator() -> None:
    """Leave a generator in the middle."""
    next(_numbers())


def _numbers() -> Iterator[int]:
    yield from range(10)


def encodes() -> None:
    """Encode and decode what is new each time."""
    json.loads(json.dumps({f"key{next(NUMBERS)}": [1, 2.5, "text"] * 5}))


def imports() -> None:
    """Import what is imported already, and make a module by hand."""
    import string

    types.ModuleType(string.ascii_letters[:5])


def closes_over() -> None:
    """Make closures, call them, and drop them."""
    kept = defaultdict(list)
    [functools.partial(kept["a"].append, number)() for number in range(20)]


def enters_contexts() -> None:
    """Enter contexts that undo what they do."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        print("printed")


CLEAN: list[Callable[[], None]] = [
    makes_garbage, fills_a_ring, fills_a_cache, evicts_by_hand, keeps_a_window, doubles_a_buffer,
    replaces, takes_from_a_pool, keys_that_repeat, compiles_patterns, interns, makes_a_class, logs,
    raises, starts_a_thread, refers_weakly, leaves_a_generator, encodes, imports, closes_over,
    enters_contexts,
]  # fmt: skip


def training() -> list[Callable[[], None]]:
    """Return functions that train and leave nothing behind."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def trains() -> None:
        optimizer.zero_grad()
        model(torch.rand(8, 16)).mean().backward()
        optimizer.step()

    def hooks() -> None:
        handle = model.register_forward_hook(lambda *_: None)
        with torch.no_grad():
            model(torch.rand(8, 16))
        handle.remove()

    def saves() -> None:
        torch.save(model.state_dict(), io.BytesIO())

    return [trains, hooks, saves]


def main() -> int:
    """Run the functions in turn and tell how often one was accused."""
    global STATE
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--fresh", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--quick", action="store_true", help="200 runs")
    requested = parser.parse_args()
    random.seed(requested.seed)
    functions = CLEAN + (training() if requested.torch else [])
    runs, accused, named, began = (
        200 if requested.quick else requested.runs,
        0,
        0,
        time.perf_counter(),
    )
    for run in range(runs):
        if run % requested.fresh == 0:
            STATE = State()
        function = functions[run % len(functions)]
        number = [0]
        found = leakscope.find_growth(functools.partial(_counted, function, number))
        accused += bool(found)
        named += number[0] > 63
        for growth in found:
            print(f"run {run}: {function.__name__}: {growth}", flush=True)
        if run % 500 == 499:
            took = time.perf_counter() - began
            print(f"{run + 1} runs, {accused} accused, {took:.0f} s", flush=True)
    took = time.perf_counter() - began
    print(
        f"{runs:,} runs of {len(functions)} clean functions: {accused} accused; {named} were "
        f"followed to the end; {took / runs:.2f} s each"
    )
    return 1 if accused else 0


def _counted(function: Callable[[], None], number: list[int]) -> None:
    number[0] += 1
    function()


if __name__ == "__main__":
    sys.exit(main())
