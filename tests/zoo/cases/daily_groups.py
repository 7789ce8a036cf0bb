"""Daily sales with pandas: sums per shop, and the groups are kept to drill down."""

import time

import numpy as np
import pandas as pd


class SalesBook:
    def __init__(self):
        self.by_day = {}
        self.totals = {}

    def add(self, day, frame):
        groups = frame.groupby("shop")
        self.totals[day] = float(groups["amount"].sum().max())
        self.by_day[day] = groups  # feeds

    def best(self):
        return max(self.totals, key=self.totals.get)


def read_day(rng, day):
    count = 6000
    return pd.DataFrame(
        {
            "shop": rng.integers(0, 60, count),
            "article": rng.integers(0, 5000, count),
            "amount": rng.gamma(2.0, 10.0, count),
        }
    )


def main():
    rng = np.random.default_rng(5)
    book = SalesBook()
    for number in range(500):
        day = (pd.Timestamp("2020-01-01") + pd.Timedelta(days=number)).strftime("%Y-%m-%d")
        book.add(day, read_day(rng, day))
        time.sleep(0.02)
        if number % 100 == 0:
            print(day, "best day so far", book.best())


if __name__ == "__main__":
    main()
