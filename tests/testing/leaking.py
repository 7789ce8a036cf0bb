"""Scenarios that leave a kilobyte behind with every call, each in a place of its own."""

from __future__ import annotations

import atexit
import functools
import logging
from itertools import count

NUMBERS = count()
PIECES: list[bytes] = []
SAME: list[int] = []
LISTS: list[list[int]] = []
BY_KEY: dict[int, bytes] = {}
MEMBERS: set[bytes] = set()
CALLBACKS: list[object] = []
ERRORS: list[Exception] = []
BUFFER = bytearray()
TEXT = ""
HEAD: object = None
PAIRS: object = None
RECORDS: object = None


class Server:
    """Somebody who remembers."""

    def __init__(self) -> None:
        self.seen: dict[int, bytes] = {}

    def handle(self, number: int) -> None:
        self.seen[number] = bytes(1000)


SERVER = Server()


class Node:
    """A link of a chain."""

    def __init__(self, following: object) -> None:
        self.next = following
        self.payload = bytes(1000)


def bytes_objects() -> None:
    PIECES.append(bytes(1000))


def the_same_object() -> None:
    SAME.append(1)


def lists() -> None:
    LISTS.append([0] * 125)


def dict_entries() -> None:
    BY_KEY[next(NUMBERS)] = bytes(1000)


def set_members() -> None:
    MEMBERS.add(b"%0999d" % next(NUMBERS))


def closures() -> None:
    kept = bytes(1000)
    CALLBACKS.append(lambda: kept)


def exceptions() -> None:
    payload = bytes(1000)
    try:
        raise ValueError(len(payload))
    except ValueError as error:
        ERRORS.append(error)


def a_buffer() -> None:
    BUFFER.extend(bytes(1000))


def text() -> None:
    global TEXT
    TEXT += "x" * 1000


def a_chain() -> None:
    global HEAD
    HEAD = Node(HEAD)


def a_chain_of_pairs() -> None:
    global PAIRS
    PAIRS = (PAIRS, bytes(1000))


def a_chain_of_dicts() -> None:
    global RECORDS
    RECORDS = {"before": RECORDS, "payload": bytes(1000)}


def an_attribute() -> None:
    SERVER.handle(next(NUMBERS))


@functools.lru_cache(maxsize=None)  # noqa: UP033
def cached(number: int) -> bytes:
    return bytes(1000 + number % 2)


def a_cache() -> None:
    cached(next(NUMBERS))


def a_default(gathered: list[bytes] = []) -> None:  # noqa: B006
    gathered.append(bytes(1000))


def handlers() -> None:
    logging.getLogger("leaking").addHandler(logging.NullHandler())


def loggers() -> None:
    logging.getLogger(f"leaking.{next(NUMBERS)}")


def callbacks_at_exit() -> None:
    atexit.register(functools.partial(len, bytes(1000)))


def new_names() -> None:
    globals()[f"NAME_{next(NUMBERS)}"] = bytes(1000)


def buffers_at_exit() -> None:
    atexit.register(len, bytes(1000))
