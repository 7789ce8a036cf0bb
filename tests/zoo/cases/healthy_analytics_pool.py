"""Analytics jobs on a thread pool with a connection pool of in-memory sqlite databases."""

import queue
import random
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

JOBS = 640
POOL_SIZE = 6


class ConnectionPool:
    """Opens connections on demand up to `size`, then reuses them."""

    def __init__(self, size):
        self.size = size
        self.idle = queue.LifoQueue()
        self.opened = 0
        self.lock = threading.Lock()

    def _connect(self, n):
        con = sqlite3.connect(":memory:", check_same_thread=False)
        rng = random.Random(n)
        con.execute("create table visits(user int, page text, ms real)")
        con.executemany(
            "insert into visits values (?,?,?)",
            (
                (rng.randrange(3000), f"/page/{rng.randrange(400)}/index.html", rng.random() * 900)
                for _ in range(60_000)
            ),
        )
        con.commit()
        return con

    def acquire(self):
        try:
            return self.idle.get_nowait()
        except queue.Empty:
            pass
        with self.lock:
            if self.opened < self.size:
                self.opened += 1
                return self._connect(self.opened)
        return self.idle.get()

    def release(self, con):
        self.idle.put(con)


def job(pool, n):
    con = pool.acquire()
    try:
        con.execute("create temp table if not exists scratch(user int, total real)")
        con.execute(
            "insert into scratch select user, sum(ms) from visits where user % 7 = ? group by user",
            (n % 7,),
        )
        rows = con.execute(
            "select v.user, v.page, s.total from visits v join scratch s on s.user = v.user "
            "where v.ms > 500"
        ).fetchall()
        con.execute("drop table scratch")
        time.sleep(0.02)
        return len(rows), max(r[2] for r in rows)
    finally:
        pool.release(con)


def main():
    pool = ConnectionPool(POOL_SIZE)
    start = time.time()
    done = rows = 0
    # load grows during the morning: one thread, then two, ... six
    with ThreadPoolExecutor(POOL_SIZE, thread_name_prefix="job") as executor:
        pending = []
        for n in range(JOBS):
            width = min(POOL_SIZE, 1 + n // 12)
            pending.append(executor.submit(job, pool, n))
            while len(pending) >= width:
                count, top = pending.pop(0).result()
                done += 1
                rows += count
            if n % 40 == 39:
                print(
                    f"{done} jobs, {rows} rows, {pool.opened} connections, top {top:.0f}",
                    flush=True,
                )
        for f in pending:
            f.result()
    print(f"done in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
