"""A quotation desk with two tasks for each inquiry: celery 5.5.3 keeps results that were forgotten.

Repaired in 5.6.0 ("Fix pending_result memory leak", https://github.com/celery/celery/pull/9806).
"""

import asyncio
import functools
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from celery import Celery
from celery.contrib.testing.worker import start_worker

INQUIRIES = 1200
REPORT_EVERY = 40
SUPPLIERS = {"north": 1.04, "south": 0.99, "coast": 1.01, "hills": 0.97}

app = Celery("desk", broker="memory://")
app.conf.update(
    worker_hijack_root_logger=False,
    result_expires=600,
    broker_transport_options={"polling_interval": 0.002},
)


@app.task(name="desk.offer")
def offer(supplier, positions):
    factor = SUPPLIERS[supplier]
    time.sleep(0.008)  # the supplier's answering time
    total = sum(p["pieces"] * p["list_price"] * factor for p in positions)
    return {"supplier": supplier, "total": round(total, 2), "positions": len(positions)}


# ------------------------------------------------------ result store (stand-in)


KEYS = 200


class Store:
    """As much of redis as celery's result backend needs."""

    def __init__(self):
        self.data, self.channels = {}, {}

    @staticmethod
    def bulk(value):
        return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)

    def execute(self, writer, name, args):
        if name in (b"GET", b"MGET"):
            found = [self.bulk(self.data.get(key)) for key in args]
            return found[0] if name == b"GET" else b"*%d\r\n" % len(found) + b"".join(found)
        if name in (b"SET", b"SETEX"):
            self.data[args[0]] = args[-1] if name == b"SETEX" else args[1]
            while len(self.data) > KEYS:  # they expire
                self.data.pop(next(iter(self.data)))
            return b"+OK\r\n"
        if name == b"DEL":
            return b":%d\r\n" % sum(self.data.pop(key, None) is not None for key in args)
        if name == b"PUBLISH":
            listener = self.channels.get(args[0])
            if listener is not None:
                listener.write(b"*3\r\n$7\r\nmessage\r\n" + self.bulk(args[0]) + self.bulk(args[1]))
            return b":%d\r\n" % (listener is not None)
        if name in (b"SUBSCRIBE", b"UNSUBSCRIBE"):
            out = b""
            for channel in args:
                if name == b"SUBSCRIBE":
                    self.channels[channel] = writer
                else:
                    self.channels.pop(channel, None)
                out += b"*3\r\n" + self.bulk(name.lower()) + self.bulk(channel) + b":1\r\n"
            return out
        return b"+OK\r\n"

    async def serve(self, reader, writer):
        batch = None
        while head := await reader.readline():
            parts = []
            for _ in range(int(head[1:])):
                size = int((await reader.readline())[1:])
                parts.append((await reader.readexactly(size + 2))[:-2])
            name = parts[0].upper()
            if name == b"MULTI":
                batch = []
                writer.write(b"+OK\r\n")
            elif name == b"EXEC":
                writer.write(
                    b"*%d\r\n" % len(batch) + b"".join(self.execute(writer, *c) for c in batch)
                )
                batch = None
            elif batch is not None:
                batch.append((name, parts[1:]))
                writer.write(b"+QUEUED\r\n")
            else:
                writer.write(self.execute(writer, name, parts[1:]))


def run_store():
    """Runs until the parent is gone (end of file on stdin)."""

    async def body():
        server = await asyncio.start_server(Store().serve, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        os._exit(0)

    asyncio.run(body())


def start_store():
    here = str(Path(__file__).absolute().parent)
    code = f"import sys; sys.path.insert(0, {here!r}); import celery_results as c; c.run_store()"
    store = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return store, int(store.stdout.readline())


# ------------------------------------------------------------------- the desk


class Inquiry:
    def __init__(self, number, rnd):
        self.number = number
        self.customer = f"c{rnd.randrange(3000):05d}"
        self.positions = [
            {
                "article": f"{rnd.getrandbits(36):09x}",
                "pieces": rnd.randint(1, 40),
                "list_price": round(rnd.uniform(0.5, 120.0), 2),
                "note": f"pallet {rnd.randrange(10**6):06d}",
            }
            for _ in range(rnd.randint(30, 40))
        ]
        self.best = None

    def consider(self, answer):
        if self.best is None or answer["total"] < self.best["total"]:
            self.best = answer


class Desk:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.won = Counter()
        self.improved = 0

    def improve(self, inquiry, result):
        before = inquiry.best
        inquiry.consider(result.result)
        self.improved += inquiry.best is not before

    def ask(self, inquiry):
        first, second = self.random.sample(sorted(SUPPLIERS), 2)
        leading = offer.delay(first, inquiry.positions)
        trailing = offer.delay(second, inquiry.positions)
        trailing.then(functools.partial(self.improve, inquiry))  # feeds
        inquiry.consider(leading.get(timeout=20))
        leading.forget()
        trailing.forget()
        self.won[inquiry.best["supplier"]] += 1
        return inquiry.best


def main():
    _store, port = start_store()
    app.conf.result_backend = f"redis://127.0.0.1:{port}/0"
    with start_worker(app, pool="solo", perform_ping_check=False, loglevel="ERROR"):
        work()


def work():
    desk = Desk(seed=9806)
    started = time.time()
    turnover = 0.0
    for number in range(1, INQUIRIES + 1):
        best = desk.ask(Inquiry(number, desk.random))
        turnover += best["total"]
        if number % REPORT_EVERY == 0:
            print(
                f"inquiry {number}/{INQUIRIES}  turnover {turnover / 1e6:7.2f} M  "
                f"improved {desk.improved}  {time.time() - started:5.1f} s",
                flush=True,
            )
    print("orders:", dict(desk.won))


if __name__ == "__main__":
    main()
