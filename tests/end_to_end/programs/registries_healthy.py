"""Registers things and lets go of them in time: ``python FILE CASE fixed FOLDER``."""

import atexit
import copyreg
import gc
import importlib.util
import io
import linecache
import logging
import multiprocessing.util
import queue
import re
import sys
import warnings
import weakref
from pathlib import Path

import torch
import torch.utils._pytree as pytree
from paced_rounds import keeping, made_class, rounds, run
from torch import nn


def living_finalizers(leaks):
    """A bounded number of objects that are replaced, each with its finalizer: healthy."""

    class Buffer:
        pass

    ring = [Buffer() for _ in range(64)]
    for number in rounds():
        for place in range(8):
            ring[(8 * number + place) % 64] = buffer = Buffer()
            weakref.finalize(buffer, bytearray.clear, bytearray(30_000))


def bounded_patterns(_):
    """Compiled patterns, of which ``re`` keeps some hundred."""
    for number in rounds():
        for place in range(20):
            re.compile(f"{number} {place} {'x' * 60}")


PLACES = 16


def replaced_in_turn(_):
    """As many entries as there are places, each of which is replaced after some time: healthy."""

    class Finder:
        def find_spec(self, name, path=None, target=None):
            return None

    def fill(place):
        callback, finder = keeping(30_000), Finder()
        gc.callbacks.append(callback)
        sys.meta_path.append(finder)
        atexit.register(callback)
        name = f"<formula {place}>"
        linecache.cache[name] = (30_000, None, ["x" * 30_000], name)
        spec = importlib.util.spec_from_file_location(f"plugin_{place}", "plugin.py")
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])
        return callback, finder

    Path("plugin.py").write_text("TABLE = bytearray(30_000)\n")
    entries = [fill(place) for place in range(PLACES)]
    for number in rounds():
        callback, finder = entries[number % PLACES]
        gc.callbacks.remove(callback)
        sys.meta_path.remove(finder)
        atexit.unregister(callback)
        entries[number % PLACES] = fill(number % PLACES)


def taken_back_in_batches(_):
    """Entries are taken back eight steps at a time: healthy."""
    waiting = []
    log = logging.getLogger("epochs")
    for number in rounds():
        callback, handler = keeping(60_000), logging.StreamHandler(io.StringIO("x" * 15_000))
        gc.callbacks.append(callback)
        atexit.register(callback)
        log.addHandler(handler)
        finalizer = multiprocessing.util.Finalize(None, keeping(60_000), exitpriority=1)
        waiting.append((callback, handler, finalizer))
        if number % 8 == 7:
            for callback, handler, finalizer in waiting:
                gc.callbacks.remove(callback)
                atexit.unregister(callback)
                log.removeHandler(handler)
                handler.close()
                finalizer.cancel()
            waiting.clear()


def filled_at_first(_):
    """The first steps register what the work needs, and the others nothing more: healthy."""
    for number in rounds():
        work = bytearray(300_000)
        for place in range(60 if number < 6 else 0):
            name = f"stage.{number}.{place}"
            logging.getLogger(name).debug("ready")
            atexit.register(keeping(2_000))
            warnings.filterwarnings("ignore", message=name)
            copyreg.pickle(made_class(2_000), lambda each: (type(each), ()))
            linecache.cache[name] = (2_000, None, ["x" * 2_000], name)
        del work


def hooks_of_a_phase(_):
    """Hooks of all modules that are removed after some steps: healthy."""
    handles = []
    for number in rounds():
        handles.append(nn.modules.module.register_module_forward_hook(keeping(60_000)))
        if number % 8 == 7:
            for handle in handles:
                handle.remove()
            handles.clear()


def nodes_at_first(_):
    """Classes are registered in the first steps, and no more of them later: healthy."""
    for number in rounds():
        for _ in range(10 if number < 6 else 0):
            pytree.register_pytree_node(
                made_class(10_000), lambda tree: ([], None), lambda leaves, context: None
            )
        torch.ones(1000).sum()


def shared_tensors(_):
    """Tensors go through shared memory; torch drops handles of those that are gone: healthy."""
    sent = torch.multiprocessing.get_context("spawn").SimpleQueue()
    for _ in rounds():
        for _ in range(8):
            sent.put(torch.ones(10_000))
            sent.get()


def _receive(sent, ready):
    ready.set()
    while sent.get() is not None:
        pass


def received_elsewhere(_):
    """Tensors are sent to a process that takes and drops them: healthy."""
    context = torch.multiprocessing.get_context("spawn")
    sent, ready = context.SimpleQueue(), context.Event()
    receiver = context.Process(target=_receive, args=(sent, ready))
    receiver.start()
    ready.wait()
    for _ in rounds():
        sent.put(torch.ones(75_000))
    sent.put(None)
    receiver.join()


def filled_queue(_):
    """A queue with sixteen places that is full after some steps and stays so: healthy."""
    places = torch.multiprocessing.get_context("spawn").Queue(16)
    for _ in rounds():
        work = torch.ones(75_000)
        try:
            places.put_nowait(work)
        except queue.Full:
            work.sum()
    places.cancel_join_thread()


if __name__ == "__main__":
    run(globals())
