"""Keeps frames by what refers to them: ``python FILE CASE leak|fixed FOLDER``.

Each frame has a buffer of 200,000 bytes among its locals. A fixed twin keeps the words of an
exception, or ends what is suspended.
"""

import asyncio
import concurrent.futures
import logging
import sys
import time

import leakscope

ROUNDS, PACE_S, SIZE = 60, 0.02, 200_000


def rounds():
    with leakscope.profile(boundaries="manual", out=sys.argv[3], budget=0.2) as scope:
        for number in scope.steps(range(ROUNDS)):
            began = time.perf_counter()
            yield number
            time.sleep(max(0.0, PACE_S - (time.perf_counter() - began)))


def parse(number):
    buffer = bytearray(SIZE)
    raise ValueError(f"record {number} of {len(buffer)} bytes")


class Records(logging.Handler):
    def __init__(self, leaks):
        super().__init__()
        self.records, self.leaks = [], leaks

    def emit(self, record):
        self.records.append(record if self.leaks else record.getMessage())  # kept here


def log_records(leaks):
    handler = Records(leaks)
    logger = logging.getLogger("program")
    logger.propagate = False
    logger.addHandler(handler)
    for number in rounds():
        try:
            parse(number)
        except ValueError:
            logger.exception("can't be read: %d", number)


class Runner:
    """Raises what failed from what failed before."""

    def __init__(self):
        self.last_error = None

    def attempt(self, number, leaks):
        try:
            parse(number)
        except ValueError as error:
            error.__cause__ = self.last_error if leaks else None
            self.last_error = error  # kept here


def chained(leaks):
    runner = Runner()
    for number in rounds():
        runner.attempt(number, leaks)


class Pool:
    def __init__(self):
        self.executor = concurrent.futures.ThreadPoolExecutor(1)
        self.done = []

    def submit(self, number, leaks):
        future = self.executor.submit(parse, number)
        failed = str(future.exception())
        self.done.append(future if leaks else failed)  # kept here


def futures(leaks):
    pool = Pool()
    for number in rounds():
        pool.submit(number, leaks)
    pool.executor.shutdown()


class Service:
    def __init__(self):
        self.requests = set()

    async def serve(self, leaks):
        async def handle(number):
            await asyncio.sleep(0)
            parse(number)

        for number in rounds():
            task = asyncio.ensure_future(handle(number))
            self.requests.add(task)  # kept here
            if not leaks:
                task.add_done_callback(self.requests.discard)
            await asyncio.wait([task])
            task.exception()
            await asyncio.sleep(0)


def tasks(leaks):
    asyncio.run(Service().serve(leaks))


class Readers:
    def __init__(self):
        self.open = []

    def read(self, number):
        buffer = bytearray(SIZE)
        yield number
        yield len(buffer)


def generators(leaks):
    readers = Readers()
    for number in rounds():
        reader = readers.read(number)
        next(reader)
        readers.open.append(reader)  # kept here
        if not leaks:
            readers.open.pop().close()


def last_exception(leaks):
    """As an interactive shell does: only the last is kept, and healthy unless they are chained."""
    for number in rounds():
        try:
            parse(number)
        except ValueError as error:
            if leaks and number:
                error.__context__ = sys.last_value
            sys.last_value = error  # kept here


globals()[sys.argv[1]](sys.argv[2] == "leak")
