"""Nightly orders ETL: clean, validate and aggregate batches; bad ones go to a dead letter box."""

import time

import numpy as np
import pandas as pd

BATCHES = 420
ROWS = 6000


class ValidationError(Exception):
    pass


def extract(rng, n):
    frame = pd.DataFrame(
        {
            "order_id": np.arange(ROWS) + n * ROWS,
            "customer": rng.integers(0, 900, ROWS),
            "qty": rng.integers(1, 9, ROWS),
            "price": rng.gamma(2.0, 12.0, ROWS).round(2),
        }
    )
    if rng.random() < 0.35:
        frame.loc[rng.integers(0, ROWS, 5), "price"] = -1.0
    return frame


def clean(frame):
    frame = frame.drop_duplicates("order_id")
    return frame.assign(total=frame["qty"] * frame["price"])


def validate(frame):
    bad = frame[frame["price"] < 0]
    if len(bad):
        raise ValidationError(
            f"{len(bad)} rows with negative price, first order {bad['order_id'].iloc[0]}"
        )
    return frame


class DeadLetters:
    def __init__(self):
        self.errors = []

    def put(self, batch_no, exc):
        self.errors.append((batch_no, exc))

    def summary(self):
        return f"{len(self.errors)} rejected, last: {self.errors[-1][1] if self.errors else '-'}"


class Pipeline:
    def __init__(self):
        self.revenue = np.zeros(900)
        self.dead = DeadLetters()
        self.loaded = 0

    def process(self, batch_no, raw):
        frame = clean(raw)
        frame = validate(frame)
        sums = frame.groupby("customer")["total"].sum()
        self.revenue[sums.index.to_numpy()] += sums.to_numpy()
        self.loaded += len(frame)

    def run_batch(self, batch_no, rng):
        raw = extract(rng, batch_no)
        try:
            self.process(batch_no, raw)
        except ValidationError as exc:
            self.dead.put(batch_no, exc)


def main():
    rng = np.random.default_rng(13)
    pipe = Pipeline()
    start = time.time()
    for n in range(BATCHES):
        pipe.run_batch(n, rng)
        time.sleep(0.02)  # wait for the next batch to land
        if n % 60 == 59:
            print(
                f"batch {n + 1}: {pipe.loaded} orders, revenue {pipe.revenue.sum():.0f}, "
                f"{pipe.dead.summary()}",
                flush=True,
            )
    print(f"done in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
