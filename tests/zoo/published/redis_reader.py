"""Reports that each use their own client: redis 4.5.4 keeps the parser of each closed connection.

Repaired in 4.5.5 ("asyncio: memory leak caused by hiredis",
https://github.com/redis/redis-py/issues/2693). The circle goes through an object of C that the
collector can't see through.
"""

import asyncio
import json
import multiprocessing
import random
import statistics
import time
from collections import Counter

import redis.asyncio as redis

REPORTS = 4500
SHOPS = 60
REPORT_EVERY = 150
WORKERS = 3


# --------------------------------------------------------- redis stand-in


class StandIn:
    def __init__(self, seed):
        rnd = random.Random(seed)
        self.data = {}
        for shop in range(SHOPS):
            orders = [
                [rnd.randint(1, 9), round(rnd.uniform(2, 400), 2)]
                for _ in range(rnd.randint(250, 350))
            ]
            self.data[b"orders:%d" % shop] = json.dumps(orders).encode()

    async def command(self, reader):
        head = await reader.readline()
        if not head:
            return None
        parts = []
        for _ in range(int(head[1:])):
            size = int((await reader.readline())[1:])
            parts.append((await reader.readexactly(size + 2))[:-2])
        return parts

    async def serve(self, reader, writer):
        while (parts := await self.command(reader)) is not None:
            name = parts[0].upper()
            if name == b"GET":
                value = self.data.get(parts[1])
                writer.write(
                    b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)
                )
            elif name == b"SET":
                self.data[parts[1]] = parts[2]
                writer.write(b"+OK\r\n")
            else:
                writer.write(b"-ERR unknown command\r\n")
            await writer.drain()
        writer.close()


def run_stand_in(pipe, seed):
    async def body():
        stand_in = StandIn(seed)
        server = await asyncio.start_server(stand_in.serve, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(body())


# ---------------------------------------------------------------- reports


class ReportJob:
    def __init__(self, port, shop):
        self.port = port
        self.shop = shop

    @staticmethod
    def figures(orders):
        amounts = [pieces * price for pieces, price in orders]
        amounts.sort()
        return {
            "orders": len(orders),
            "turnover": round(sum(amounts), 2),
            "median": round(statistics.median(amounts), 2),
            "spread": round(statistics.pstdev(amounts), 2),
            "top": amounts[-5:],
        }

    async def run(self):
        client = redis.Redis(host="127.0.0.1", port=self.port)
        try:
            orders = json.loads(await client.get(f"orders:{self.shop}"))  # feeds
            result = self.figures(orders)
            await client.set(f"report:{self.shop}", json.dumps(result))
        finally:
            await client.close()
        return result


class Reporting:
    def __init__(self, port, seed):
        self.port = port
        self.random = random.Random(seed)
        self.done = 0
        self.turnover = Counter()
        self.started = time.time()

    async def worker(self, queue):
        while (shop := await queue.get()) is not None:
            result = await ReportJob(self.port, shop).run()
            self.turnover[shop] += result["turnover"]
            self.done += 1
            if self.done % REPORT_EVERY == 0:
                print(
                    f"report {self.done}/{REPORTS}  shops {len(self.turnover)}  "
                    f"{time.time() - self.started:5.1f} s",
                    flush=True,
                )
            await asyncio.sleep(0.01)

    async def run(self):
        queue = asyncio.Queue(maxsize=2 * WORKERS)
        workers = [asyncio.create_task(self.worker(queue)) for _ in range(WORKERS)]
        for _ in range(REPORTS):
            await queue.put(self.random.randrange(SHOPS))
        for _ in workers:
            await queue.put(None)
        await asyncio.gather(*workers)


def main():
    mine, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=run_stand_in, args=(theirs, 5), daemon=True)
    server.start()
    reporting = Reporting(mine.recv(), seed=6)
    asyncio.run(reporting.run())
    best = reporting.turnover.most_common(3)
    print("best shops:", ", ".join(f"{shop} ({amount:.0f})" for shop, amount in best))
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
