"""Walks a strategy over bars: pandas 2.1.0 keeps a dead weak reference for each window taken.

Repaired in 2.1.1 ("CoW: Clear dead references every time we add a new one",
https://github.com/pandas-dev/pandas/pull/55008).
"""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

BARS = 760_000
WINDOW = 60
REPORT_EVERY = 38_000


def make_bars(count: int, seed: int) -> pd.DataFrame:
    """A random walk with open/high/low/close/volume, one row per minute."""
    rng = np.random.default_rng(seed)
    close = 100.0 * np.exp(np.cumsum(rng.normal(0.0, 4e-4, size=count)))
    spread = np.abs(rng.normal(0.0, 0.02, size=count))
    bars = pd.DataFrame(
        {
            "open": np.roll(close, 1),
            "high": close + spread,
            "low": close - spread,
            "close": close,
            "volume": rng.integers(100, 5000, size=count).astype(float),
        }
    )
    bars.iloc[0, 0] = close[0]
    return bars


@dataclass
class Broker:
    """Keeps the position and the money; charges a small fee per trade."""

    cash: float = 100_000.0
    position: int = 0
    trades: int = 0
    fees: float = 0.0
    fee_per_share: float = 0.002

    def trade(self, quantity: int, price: float) -> None:
        if quantity == 0:
            return
        fee = abs(quantity) * self.fee_per_share
        self.cash -= quantity * price + fee
        self.position += quantity
        self.fees += fee
        self.trades += 1

    def equity(self, price: float) -> float:
        return self.cash + self.position * price


@dataclass
class MeanReversion:
    """Buys what is cheap against the last hour, sells what is dear."""

    entry: float = 2.0
    exit: float = 0.3
    lot: int = 100
    seen: int = field(default=0)

    def decide(self, window: np.ndarray, position: int) -> int:
        self.seen += 1
        close = window[:, 3]
        weight = window[:, 4]
        mean = float((close * weight).sum() / weight.sum())
        deviation = float(close.std()) or 1e-9
        score = (float(close[-1]) - mean) / deviation
        if position == 0:
            if score > self.entry:
                return -self.lot
            if score < -self.entry:
                return self.lot
            return 0
        if abs(score) < self.exit:
            return -position
        return 0


class Backtest:
    def __init__(self, bars: pd.DataFrame, strategy: MeanReversion, broker: Broker):
        self.bars = bars
        self.strategy = strategy
        self.broker = broker
        self.peak = broker.cash
        self.drawdown = 0.0

    def last_hour(self, index: int) -> pd.DataFrame:
        return self.bars.iloc[index - WINDOW : index]  # feeds

    def step(self, index: int) -> None:
        window = self.last_hour(index).to_numpy()
        price = float(window[-1, 3])
        self.broker.trade(self.strategy.decide(window, self.broker.position), price)
        equity = self.broker.equity(price)
        self.peak = max(self.peak, equity)
        self.drawdown = max(self.drawdown, self.peak - equity)

    def run(self) -> None:
        for index in range(WINDOW, len(self.bars)):
            self.step(index)
            if index % REPORT_EVERY == 0:
                price = float(self.bars.at[index, "close"])
                print(
                    f"bar {index}/{len(self.bars)}: {self.broker.trades} trades, "
                    f"equity {self.broker.equity(price):.0f}, "
                    f"drawdown {self.drawdown:.0f}",
                    flush=True,
                )


def main() -> None:
    bars = make_bars(BARS, seed=11)
    test = Backtest(bars, MeanReversion(), Broker())
    test.run()
    last = float(bars["close"].iloc[-1])
    print(f"done: equity {test.broker.equity(last):.2f}, fees {test.broker.fees:.2f}")


if __name__ == "__main__":
    main()
