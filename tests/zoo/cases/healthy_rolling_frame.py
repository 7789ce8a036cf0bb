"""Fits a forecast to orders as they come in; the frame of orders goes back some weeks only."""

import numpy as np
import pandas as pd
from sklearn.linear_model import SGDRegressor
from sklearn.preprocessing import StandardScaler

DAYS, PRODUCTS, KEEP, PRUNE_EVERY = 160, 160, 56, 14


class Shop:
    """Orders of a day: weekdays, seasons, promotions."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.level = self.rng.gamma(3.0, 2.0, PRODUCTS)
        self.week = self.rng.uniform(0.6, 1.4, (PRODUCTS, 7))

    def day(self, day):
        promoted = self.rng.random(PRODUCTS) < 0.05
        mean = self.level * self.week[:, day % 7] * (1 + 2 * promoted)
        self.level *= np.exp(0.01 * self.rng.standard_normal(PRODUCTS))
        sold = self.rng.poisson(mean)
        return pd.DataFrame(
            {
                "day": day,
                "product": np.arange(PRODUCTS),
                "sold": sold,
                "promoted": promoted,
                "price": self.rng.uniform(1, 30, PRODUCTS).round(2),
                "note": [f"p{p} sold {s} on day {day}" for p, s in enumerate(sold)],
            }
        )


class History:
    """The newest orders; old ones go once in two weeks."""

    def __init__(self):
        self.frame = pd.DataFrame()
        self.totals = []

    def add(self, orders):
        self.frame = pd.concat([self.frame, orders], ignore_index=True)
        day = int(orders["day"].iloc[0])
        self.totals.append(int(orders["sold"].sum()))
        if day % PRUNE_EVERY == PRUNE_EVERY - 1:
            recent = self.frame["day"] > day - KEEP
            self.frame = self.frame[recent].reset_index(drop=True)

    def features(self):
        """Return what is known before a day, and what was sold on it."""
        table = self.frame.sort_values(["product", "day"])
        by_product = table.groupby("product")["sold"]
        lags = {f"lag{n}": by_product.shift(n) for n in (1, 7, 14)}
        lags["mean"] = by_product.transform(lambda sold: sold.shift(1).rolling(7).mean())
        whole = table[["promoted", "price"]].assign(**lags).astype(float)
        known = whole.notna().all(axis=1)
        return whole[known].to_numpy(), table.loc[known, "sold"].to_numpy(float)


def main():
    shop, history = Shop(0), History()
    model, scaler = (
        SGDRegressor(random_state=0, learning_rate="adaptive", eta0=0.002),
        StandardScaler(),
    )
    errors = []
    for day in range(DAYS):
        history.add(shop.day(day))
        if day < 20 or day % 2:
            continue
        x, y = history.features()
        scaler.partial_fit(x)
        scaled = scaler.transform(x)
        if day > 20:
            errors.append(float(np.abs(model.predict(scaled[-PRODUCTS:]) - y[-PRODUCTS:]).mean()))
        model.partial_fit(scaled, y)
        if day % 30 == 0:
            recent = np.mean(errors[-10:]) if errors else float("nan")
            print(f"day {day}: {len(history.frame)} rows, error {recent:.2f}", flush=True)


if __name__ == "__main__":
    main()
