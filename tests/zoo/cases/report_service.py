"""Sales report service: a thread pool answers report requests from a shared sqlite file."""

import os
import random
import sqlite3
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

_local = threading.local()
REQUESTS = 800


def build_db(path):
    rng = random.Random(4)
    con = sqlite3.connect(path)
    con.execute("create table sales(id integer primary key, shop int, sku text, amount real)")
    con.executemany(
        "insert into sales(shop, sku, amount) values (?,?,?)",
        (
            (rng.randrange(40), f"SKU-{rng.randrange(500):05d}", rng.random() * 100)
            for _ in range(40_000)
        ),
    )
    con.execute("create index by_shop on sales(shop)")
    con.commit()
    con.close()


class QueryStats:
    def __init__(self):
        self.samples = []
        self.count = 0

    def observe(self, sql, rows, took):
        self.count += 1
        self.samples.append((took, sql, rows))

    def slowest(self):
        return max(self.samples, key=lambda s: s[0])[0] if self.samples else 0.0


class Session:
    def __init__(self, path):
        self.con = sqlite3.connect(path)
        self.stats = QueryStats()

    def query(self, sql, args):
        t = time.perf_counter()
        rows = self.con.execute(sql, args).fetchall()
        self.stats.observe(sql, rows, time.perf_counter() - t)
        return rows


def session(path):
    if not hasattr(_local, "session"):
        _local.session = Session(path)
    return _local.session


def shop_report(path, shop, limit):
    s = session(path)
    rows = s.query(
        "select id, sku, amount from sales where shop=? order by id limit ?", (shop, limit)
    )
    total = sum(r[2] for r in rows)
    by_sku = {}
    for _, sku, amount in rows:
        by_sku[sku] = by_sku.get(sku, 0.0) + amount
    best = max(by_sku, key=by_sku.get)
    time.sleep(0.04)  # rendering
    return shop, total, best, s.stats.slowest()


def main():
    rng = random.Random(9)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "sales.db")
        build_db(path)
        start = time.time()
        slowest = 0.0
        with ThreadPoolExecutor(3, thread_name_prefix="report") as pool:
            waiting = []
            for n in range(REQUESTS):
                waiting.append(pool.submit(shop_report, path, rng.randrange(40), 450))
                if len(waiting) >= 6:
                    shop, total, best, slow = waiting.pop(0).result()
                    slowest = max(slowest, slow)
                if n % 100 == 99:
                    print(
                        f"request {n + 1}: shop {shop} total {total:.0f} best {best} "
                        f"slowest {slowest * 1000:.1f} ms",
                        flush=True,
                    )
            for f in waiting:
                f.result()
        print(f"served {REQUESTS} in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
