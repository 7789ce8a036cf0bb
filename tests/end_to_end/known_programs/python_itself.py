"""What Python's own library keeps."""

import asyncio
import concurrent.futures
import ctypes
import io
import logging
import logging.handlers
import multiprocessing.pool
import re
import shelve
import tarfile
import tempfile
import time
import unittest.mock
import weakref
import xml.etree.ElementTree as ET

from rounds import rounds, run

TEXT = "x" * 4000


def python_mock_calls(leaks):
    send = unittest.mock.Mock()
    for i in rounds():
        for j in range(20):
            send(f"{TEXT}{i}.{j}")
        if not leaks:
            send.reset_mock()


def python_tar_members(leaks):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as made:
        for i in range(2400):
            made.addfile(tarfile.TarInfo(f"{i:0100d}"))
    written.seek(0)
    with tarfile.open(fileobj=written, mode="r|") as archive:
        for _ in rounds():
            for _ in range(40):
                archive.next()
            if not leaks:
                archive.members.clear()


def python_memory_handler(leaks):
    target = None if leaks else logging.NullHandler()
    handler = logging.handlers.MemoryHandler(10, target=target)
    logger = logging.getLogger("program")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    for i in rounds():
        for j in range(5):
            logger.info("%s", f"{TEXT}{i}.{j}")


def python_tasks_kept(leaks):
    async def work(i):
        return f"{TEXT}{i}"

    async def main():
        tasks = set()
        for i in rounds():
            for _ in range(10):
                task = asyncio.create_task(work(i))
                tasks.add(task)
                if not leaks:
                    task.add_done_callback(tasks.discard)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(main())


def python_futures_kept(leaks):
    futures = []
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for _ in rounds():
            future = pool.submit(bytearray, 20_000)
            future.result()
            if leaks:
                futures.append(future)


def python_matches_kept(leaks):
    found = []
    for i in rounds():
        for j in range(5):
            match = re.search(r"\d+", f"{TEXT}{i}-{j}")
            found.append(match if leaks else match.group())


def python_async_queue(leaks):
    async def main():
        queue = asyncio.Queue()
        for i in rounds():
            for j in range(5):
                queue.put_nowait(f"{TEXT}{i}.{j}")
            while not leaks and not queue.empty():
                queue.get_nowait()

    asyncio.run(main())


def python_timers(leaks):
    async def main():
        loop = asyncio.get_running_loop()
        for i in rounds():
            for j in range(5):
                timer = loop.call_later(3600, len, f"{TEXT}{i}.{j}")
                if not leaks:
                    timer.cancel()
            await asyncio.sleep(0)

    asyncio.run(main())


def python_xml_elements(leaks):
    parser = ET.XMLPullParser(["start", "end"])
    parser.feed("<log>")
    root = next(iter(parser.read_events()))[1]
    for i in rounds():
        for j in range(20):
            parser.feed(f"<entry id='{i}'>{TEXT[:500]}{j}</entry>")
        for _ in parser.read_events():
            pass
        if not leaks:
            root.clear()


def python_loggers_by_name(leaks):
    for i in rounds():
        for j in range(300):
            logging.getLogger(f"connection.{i}.{j}" if leaks else "connection")


def python_finalizers(leaks):
    class Thing:
        pass

    lasting = Thing()
    for i in rounds():
        for j in range(60):
            weakref.finalize(lasting if leaks else Thing(), len, f"{TEXT}{i}.{j}")


def python_shelf_written_back(leaks):
    with (
        tempfile.TemporaryDirectory() as folder,
        shelve.open(f"{folder}/shelf", writeback=True) as shelf,
    ):
        for i in rounds():
            shelf[str(i)] = [f"{TEXT}{i}.{j}" for j in range(5)]
            if not leaks:
                shelf.sync()


def slow(text):
    time.sleep(0.015)


def python_executor_tasks(leaks):
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        for i in rounds():
            for j in range(4):
                future = pool.submit(slow, f"{TEXT * 4}{i}.{j}")
            if not leaks:
                future.result()
        pool.shutdown(cancel_futures=True)


def python_thread_pool_tasks(leaks):
    with multiprocessing.pool.ThreadPool(1) as pool:
        for i in rounds():
            for j in range(4):
                result = pool.apply_async(slow, (f"{TEXT * 4}{i}.{j}",))
            if not leaks:
                result.wait()
        pool.terminate()


def python_pointer_types(leaks):
    class Fixed(ctypes.Structure):
        pass

    for _ in rounds():
        for _ in range(60):

            class Packet(ctypes.Structure):
                pass

            ctypes.POINTER(Packet if leaks else Fixed)


if __name__ == "__main__":
    run(globals())
