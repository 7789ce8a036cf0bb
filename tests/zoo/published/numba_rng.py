"""Prices barrier options with a compiled kernel: numba 0.60.0 loses references to what it unboxes.

Repaired in 0.61.0 ("Fix some memory leaks/poor memory behaviour",
https://github.com/numba/numba/pull/9757, issues 9103 and 9733).
"""

import math
import time
from dataclasses import dataclass

import numba
import numpy as np

QUOTES = 64_000
REPORT_EVERY = 3_200
PATHS = 48
STEPS = 32


@numba.njit
def knocked_out_payoff(rng, spot, strike, barrier, rate, vol, years):
    """Mean discounted payoff of a down-and-out call, and its spread."""
    dt = years / STEPS
    drift = (rate - 0.5 * vol * vol) * dt
    shock = vol * math.sqrt(dt)
    total = 0.0
    square = 0.0
    for _ in range(PATHS):
        price = spot
        alive = True
        for _ in range(STEPS):
            price *= math.exp(drift + shock * rng.standard_normal())
            if price <= barrier:
                alive = False
                break
        payoff = max(price - strike, 0.0) if alive else 0.0
        total += payoff
        square += payoff * payoff
    discount = math.exp(-rate * years)
    mean = total / PATHS
    variance = max(square / PATHS - mean * mean, 0.0)
    return discount * mean, discount * math.sqrt(variance / PATHS)


@dataclass(frozen=True)
class Option:
    strike: float
    barrier: float
    years: float


@dataclass
class Market:
    """Spot and volatility wander while the desk is asked for quotes."""

    rng: np.random.Generator
    spot: float = 100.0
    vol: float = 0.22
    rate: float = 0.03

    def tick(self) -> None:
        self.spot *= math.exp(self.rng.normal(0.0, 5e-4))
        self.vol = min(max(self.vol + self.rng.normal(0.0, 2e-4), 0.08), 0.6)

    def random_option(self) -> Option:
        strike = self.spot * self.rng.uniform(0.9, 1.1)
        barrier = self.spot * self.rng.uniform(0.7, 0.95)
        return Option(strike, barrier, float(self.rng.choice([0.25, 0.5, 1.0])))


class Desk:
    def __init__(self, market: Market, seed: int):
        self.market = market
        self.rng = np.random.default_rng(seed)
        self.quotes = 0
        self.volume = 0.0
        self.wide = 0

    def quote(self, option: Option) -> tuple:
        market = self.market
        value, error = knocked_out_payoff(  # feeds
            self.rng,
            market.spot,
            option.strike,
            option.barrier,
            market.rate,
            market.vol,
            option.years,
        )
        margin = 0.02 * value + error
        return value - margin, value + margin

    def serve(self) -> None:
        self.market.tick()
        bid, ask = self.quote(self.market.random_option())
        self.quotes += 1
        self.volume += 0.5 * (bid + ask)
        if ask - bid > 2.0:
            self.wide += 1


def main() -> None:
    desk = Desk(Market(np.random.default_rng(1)), seed=2)
    desk.serve()  # compiles
    for number in range(1, QUOTES + 1):
        desk.serve()
        if number % 100 == 0:
            time.sleep(0.03)  # wait for the next burst of requests
        if number % REPORT_EVERY == 0:
            print(
                f"quote {number}/{QUOTES}: mean value {desk.volume / desk.quotes:.3f}, "
                f"{desk.wide} wide, spot {desk.market.spot:.2f}",
                flush=True,
            )
    print("done:", desk.quotes, "quotes")


if __name__ == "__main__":
    main()
