"""Scores customers in short-lived threads that read their history from a database."""

import os
import random
import sqlite3
import tempfile
import threading
import time

import numpy as np

CUSTOMERS, EVENTS, JOBS, PER_SECOND, AT_ONCE = 400, 90000, 260, 20, 3


class Database:
    """One connection for each thread, as sqlite wants it."""

    def __init__(self, path):
        self.path = path
        self.local = threading.local()
        self.lock = threading.Lock()
        self.connections = []

    def connection(self):
        found = getattr(self.local, "connection", None)
        if found is None:
            found = sqlite3.connect(self.path, check_same_thread=False)
            found.execute("PRAGMA cache_size = -600")
            found.row_factory = sqlite3.Row
            with self.lock:
                self.connections.append(found)
            self.local.connection = found
        return found

    def close(self):
        for connection in self.connections:
            connection.close()


def fill(path, seed):
    rng = np.random.default_rng(seed)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE event (customer INT, day INT, amount REAL, note TEXT)")
    rows = zip(
        rng.integers(0, CUSTOMERS, EVENTS).tolist(),
        rng.integers(0, 365, EVENTS).tolist(),
        rng.gamma(2.0, 20.0, EVENTS).tolist(),
        (f"order {n} of this and that" for n in range(EVENTS)),
        strict=True,
    )
    connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?)", rows)
    connection.execute("CREATE INDEX by_customer ON event (customer, day)")
    connection.commit()
    connection.close()


def features(database, customer):
    rows = database.connection().execute(
        "SELECT day, amount, length(note) AS size FROM event WHERE customer = ? ORDER BY day",
        (customer,),
    )
    series = np.zeros((365, 2))
    for row in rows:
        series[row["day"]] += row["amount"], row["size"]
    spectrum = np.abs(np.fft.rfft(series, axis=0))
    return np.concatenate([series.mean(0), series.std(0), spectrum[:16].ravel()])


def score_part(database, customers, weights, scores, lock):
    part = {customer: float(features(database, customer) @ weights) for customer in customers}
    with lock:
        scores.update(part)


def main():
    dice = random.Random(0)
    weights = np.random.default_rng(1).standard_normal(36)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "events.db")
        fill(path, 0)
        database = Database(path)
        scores, lock, running = {}, threading.Lock(), []
        begun = time.monotonic()
        for job in range(JOBS):
            time.sleep(max(0.0, begun + job / PER_SECOND - time.monotonic()))
            customers = dice.sample(range(CUSTOMERS), 14)
            worker = threading.Thread(
                target=score_part, args=(database, customers, weights, scores, lock)
            )
            worker.start()
            running.append(worker)
            if len(running) >= AT_ONCE:
                running.pop(0).join()
            if job % 40 == 39:
                print(f"job {job + 1}: {len(scores)} customers", flush=True)
        for worker in running:
            worker.join()
        print(f"mean {sum(scores.values()) / len(scores):.3f}", flush=True)
        database.close()


if __name__ == "__main__":
    main()
