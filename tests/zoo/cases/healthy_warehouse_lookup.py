"""Stock enrichment: joins order batches with lazily loaded warehouse tables."""

import time

import numpy as np
import pandas as pd

WAREHOUSES = 24
BATCHES = 170


class WarehouseTables:
    """One stock table per warehouse, loaded at first use and then kept."""

    def __init__(self):
        self._tables = {}

    def __getitem__(self, wid):
        if wid not in self._tables:
            self._tables[wid] = self._load(wid)
        return self._tables[wid]

    def loaded(self):
        return len(self._tables)

    @staticmethod
    def _load(wid):
        rng = np.random.default_rng(500 + wid)
        n = 40_000
        return pd.DataFrame(
            {
                "sku": np.arange(n),
                "stock": rng.integers(0, 500, n),
                "cost": rng.gamma(2.0, 9.0, n),
                "weight": rng.gamma(1.5, 2.0, n),
                "shelf": rng.integers(0, 90, n),
            }
        ).set_index("sku")


class Enricher:
    def __init__(self):
        self.tables = WarehouseTables()
        self.margin = 0.0
        self.missing = 0

    def enrich(self, orders):
        for wid, part in orders.groupby("warehouse"):
            stock = self.tables[wid]
            joined = part.join(stock, on="sku")
            short = joined["stock"] < joined["qty"]
            self.missing += int(short.sum())
            ok = joined[~short]
            self.margin += float(((ok["price"] - ok["cost"]) * ok["qty"]).sum())


def order_batch(rng, n, step):
    # warehouses open region by region during the first part of the day
    opened = min(WAREHOUSES, 2 + step // 3)
    return pd.DataFrame(
        {
            "warehouse": rng.integers(0, opened, n),
            "sku": rng.integers(0, 40_000, n),
            "qty": rng.integers(1, 30, n),
            "price": rng.gamma(3.0, 11.0, n),
        }
    )


def main():
    rng = np.random.default_rng(77)
    enricher = Enricher()
    start = time.time()
    for step in range(BATCHES):
        enricher.enrich(order_batch(rng, 3000, step))
        if step % 17 == 16:
            print(
                f"batch {step + 1} warehouses {enricher.tables.loaded()} margin {enricher.margin:.0f} "
                f"missing {enricher.missing}",
                flush=True,
            )
    print(f"done in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
