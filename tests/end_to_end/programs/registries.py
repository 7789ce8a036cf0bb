"""Registers things with the interpreter and its library: ``python FILE CASE leak|fixed FOLDER``.

A fixed twin does as much work and takes back what it registered, or registers once. What is healthy
by itself has no twin.
"""

import asyncio
import atexit
import codecs
import contextvars
import copyreg
import ctypes
import gc
import importlib.util
import io
import linecache
import logging
import multiprocessing
import multiprocessing.util
import signal
import sys
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from paced_rounds import keeping, made_class, rounds, run


def finalizers(leaks):
    class Model:
        pass

    model = Model()
    for _ in rounds():
        buffer = bytearray(300_000)
        owner = model if leaks else Model()
        weakref.finalize(owner, bytearray.clear, buffer)  # registered here


def import_paths(leaks):
    for number in rounds():
        for plugin in range(200):
            folder = f"/plugins/{number}/{plugin}/{'x' * 1000}"
            sys.path.append(folder)  # registered here
            if not leaks:
                sys.path.remove(folder)


def error_handlers(leaks):
    for number in rounds():
        table = bytearray(300_000)
        codecs.register_error(  # registered here
            f"mine{number if leaks else 0}", lambda error, table=table: ("", error.end)
        )


def numbered_classes(leaks):
    for number in rounds():
        name = f"Batch{number}"
        kind = type(f"Batch{number}", (), {"table": bytearray(300_000)})  # registered here
        if leaks:
            globals()[name] = kind


def exit_handlers(leaks):
    for _ in rounds():
        save = keeping()
        atexit.register(save)  # registered here
        if not leaks:
            atexit.unregister(save)


def interned_strings(leaks):
    """Texts of requests as keys that are compared fast: CPython 3.12 never lets go of them."""
    for number in rounds():
        for place in range(100):
            sys.intern(f"{number if leaks else 0}-{place}-{'x' * 3000}")  # registered here


def collector_callbacks(leaks):
    for _ in rounds():
        note = keeping()
        gc.callbacks.append(note)  # registered here
        if not leaks:
            gc.callbacks.remove(note)


def signal_handlers(leaks):
    """A handler that calls the one before it, as libraries do that share a signal."""

    def save_at_signal(table):
        before = signal.getsignal(signal.SIGUSR1) if leaks else None

        def save(number, frame):
            if table and callable(before):
                before(number, frame)

        signal.signal(signal.SIGUSR1, save)  # registered here

    for _ in rounds():
        save_at_signal(bytearray(300_000))


def import_hooks(leaks):
    class Finder:
        def __init__(self):
            self.sources = bytearray(300_000)

        def find_spec(self, name, path=None, target=None):
            return None

    for _ in rounds():
        finder = Finder()
        sys.meta_path.append(finder)  # registered here
        if not leaks:
            sys.meta_path.remove(finder)


def modules(leaks):
    """A plugin that is loaded again under a name of its own."""
    Path("plugin.py").write_text("TABLE = bytearray(300_000)\n")
    for number in rounds():
        name = f"plugin_{number}"
        spec = importlib.util.spec_from_file_location(name, "plugin.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # registered here
        spec.loader.exec_module(module)
        if not leaks:
            del sys.modules[name]


def picklers(leaks):
    once = made_class(300_000)
    for _ in rounds():
        record = made_class(300_000) if leaks else once
        copyreg.pickle(record, lambda each: (type(each), ()))  # registered here


def encodings_looked_up(leaks):
    """Names of encodings as clients send them, most of which there are not."""
    for number in rounds():
        for client in range(100):
            name = f"x-{number}-{client}-{'x' * 2000}" if leaks else "x-unknown"
            try:
                codecs.lookup(name)  # registered here
            except LookupError:
                pass


def overloads(leaks):
    """Generated modules that are not kept, with functions of which one has overloads."""
    source = (
        "from typing import overload\n"
        "table = bytearray(300_000)\n"
        "@overload\ndef area(side: int, table=table) -> int: ...\n"
        "@overload\ndef area(side: float, table=table) -> float: ...\n"
        "def area(side): return side * side\n"
    ) + "".join(f"def area_{sides}(side): return {sides} * side\n" for sides in range(20))
    for number in rounds():
        names = {"__name__": f"generated_{number if leaks else 0}"}
        exec(source, names)  # registered here


def source_lines(leaks):
    """Generated functions whose text is to be shown in tracebacks."""
    for number in rounds():
        for place in range(10):
            name = f"<formula {number if leaks else 0}.{place}>"
            lines = [f"def f{place}(x):\n", f"    return x + {'1' * 30_000}\n"]
            size = sum(map(len, lines))
            linecache.cache[name] = (size, None, lines, name)  # registered here


def warning_filters(leaks):
    for number in rounds():
        for place in range(25):
            text = f"step {number if leaks else 0}, part {place}: {'x' * 2000}"
            warnings.filterwarnings("ignore", message=text)  # registered here


def warnings_once(leaks):
    """Warnings of workers that are shown once, in the process that gathers them."""
    warnings.simplefilter("once")
    warnings.showwarning = lambda *arguments, **more: None
    for number in rounds():
        for place in range(10):
            text = f"step {number if leaks else 0}, part {place}: {'x' * 30_000}"
            warnings.warn_explicit(text, UserWarning, "worker.py", 1)  # registered here


def loggers(leaks):
    for number in rounds():
        for job in range(400):
            name = f"job.{number}.{job}" if leaks else f"job.{job}"
            logging.getLogger(name).debug("done")  # registered here


def log_handlers(leaks):
    log = logging.getLogger("epochs")
    for _ in rounds():
        handler = logging.StreamHandler(io.StringIO("x" * 75_000))
        log.addHandler(handler)  # registered here
        if not leaks:
            log.removeHandler(handler)
            handler.close()


def finished_threads(leaks):
    jobs = []
    for _ in rounds():
        job = threading.Thread(target=len, args=((),))
        job.image = bytearray(300_000)
        job.start()
        job.join()
        if leaks:
            jobs.append(job)  # registered here


def executors(leaks):
    """A pool for each step, whose job waits for what never comes."""
    ended = threading.Event()

    def wait(buffer):
        ended.wait(None if leaks else 0.001)

    for _ in rounds():
        pool = ThreadPoolExecutor(1)  # registered here
        pool.submit(wait, bytearray(300_000))
        pool.shutdown(wait=not leaks)
    ended.set()


def tasks(leaks):
    async def wait(buffer):
        await asyncio.sleep(3600 if leaks else 0)

    async def main():
        for _ in rounds():
            kept = asyncio.create_task(wait(bytearray(300_000)))  # registered here
            await asyncio.sleep(0.001)
            del kept

    asyncio.run(main())


def foreign_types(leaks):
    """Pointers to arrays of any length, as frames of a device have them."""
    for number in rounds():
        for place in range(100):
            length = 100 * number + place if leaks else place
            ctypes.POINTER(ctypes.c_char * (1 + length))  # registered here


def process_finalizers(leaks):
    for _ in rounds():
        finalizer = multiprocessing.util.Finalize(  # registered here
            None, keeping(), exitpriority=1
        )
        if not leaks:
            finalizer.cancel()


class Watcher(multiprocessing.get_context("fork").Process):
    """A process that waits, with what it was given for its work."""

    def __init__(self, ended):
        super().__init__(daemon=True)
        self.ended = ended
        self.frames = bytearray(300_000)

    def run(self):
        self.ended.wait()


def process_children(leaks):
    ended = multiprocessing.get_context("fork").Event()
    if not leaks:
        ended.set()
    for _ in rounds():
        watcher = Watcher(ended)
        watcher.start()  # registered here
        if not leaks:
            watcher.join()
    ended.set()


def patches(leaks):
    class Clock:
        now = 0

    for _ in rounds():
        patch = mock.patch.object(Clock, "now", keeping())  # registered here
        patch.start()
        if not leaks:
            patch.stop()


def audit_hooks(leaks):
    seen = {}

    def watch(event, arguments):
        return seen.get("table")

    if not leaks:
        sys.addaudithook(watch)
    for _ in rounds():
        seen["table"] = bytearray(300_000)
        if leaks:
            sys.addaudithook(lambda *_, table=seen["table"]: None)  # registered here


def codec_searches(leaks):
    for _ in rounds():
        search = keeping()
        codecs.register(search)  # registered here
        if not leaks:
            codecs.unregister(search)


def context_variables(leaks):
    once = contextvars.ContextVar("batch")
    for number in rounds():
        batch = contextvars.ContextVar(f"batch{number}") if leaks else once
        batch.set(bytearray(300_000))  # registered here


if __name__ == "__main__":
    run(globals())
