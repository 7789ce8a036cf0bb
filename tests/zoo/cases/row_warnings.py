"""Loads the exports of many shops into one table of sales and leaves out what can't be right."""

import csv
import io
import logging
import random
import time
import warnings
from collections import defaultdict
from decimal import Decimal, InvalidOperation

PER_SECOND, SECONDS, ROWS = 25, 12, 60
logging.basicConfig(filename="shops.log", level=logging.WARNING)
logging.captureWarnings(True)


class RowWarning(UserWarning):
    """A row was left out."""


class Exports:
    """Files as shops send them: a basket in each row, with all that was in it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.articles = [f"{self.random.choice('ABCDE')}-{n:05d}" for n in range(4000)]

    def file(self, number):
        out = io.StringIO()
        writer = csv.writer(out, delimiter=";")
        writer.writerow(["shop", "receipt", "total", "basket"])
        for row in range(ROWS):
            basket = self.random.choices(self.articles, k=300)
            total = f"{self.random.uniform(5, 900):.2f}"
            if row % 4 == 3:
                total = total.replace(".", ",")
            writer.writerow([number % 40, f"{number}-{row}", total, "|".join(basket)])
        return out.getvalue()


class Loader:
    def __init__(self):
        self.by_shop = defaultdict(Decimal)
        self.by_article = defaultdict(int)
        self.left_out = 0

    def load(self, text):
        for row in csv.DictReader(io.StringIO(text), delimiter=";"):
            try:
                total = Decimal(row["total"])
            except InvalidOperation:
                warnings.warn(f"left out, no total: {row}", RowWarning, stacklevel=1)
                self.left_out += 1
                continue
            self.by_shop[row["shop"]] += total
            for article in row["basket"].split("|"):
                self.by_article[article] += 1


def main():
    exports, loader = Exports(2), Loader()
    begun = time.monotonic()
    for number in range(PER_SECOND * SECONDS):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        loader.load(exports.file(number))
        if number % 50 == 49:
            best = max(loader.by_shop, key=loader.by_shop.get)
            print(
                f"{number + 1} files, {loader.left_out} rows left out, shop {best} leads",
                flush=True,
            )


if __name__ == "__main__":
    main()
