"""Forecasts the load of a grid and refits the forest each time that a day of readings is in."""

import time
import warnings

import click
import numpy as np
from sklearn.ensemble import RandomForestRegressor

warnings.filterwarnings("ignore", category=UserWarning)


class Grid:
    """Readings of quarters of an hour with weather and calendar as features."""

    def __init__(self, seed, features=12):
        self.rng = np.random.default_rng(seed)
        self.effect = self.rng.standard_normal(features)

    def day(self, number, quarters=96):
        rows = self.rng.standard_normal((quarters, len(self.effect)))
        rows[:, 0] = np.sin(np.arange(quarters) / quarters * 2 * np.pi)
        rows[:, 1] = number % 7 >= 5
        load = 40 + 8 * rows[:, 0] - 5 * rows[:, 1] + np.tanh(rows @ self.effect) * 6
        return rows, load + self.rng.standard_normal(quarters)


class Forecaster:
    """A forest that learns from the last four weeks."""

    def __init__(self, window=28, trees_per_day=6):
        self.window, self.trees_per_day = window, trees_per_day
        self.days = []
        self.forest = RandomForestRegressor(
            n_estimators=0, warm_start=True, max_leaf_nodes=700, n_jobs=1, random_state=0
        )

    def learn(self, day):
        self.days = [*self.days, day][-self.window :]
        rows, load = (np.concatenate(part) for part in zip(*self.days, strict=True))
        self.forest.n_estimators += self.trees_per_day
        self.forest.fit(rows, load)

    def error(self, day):
        rows, load = day
        return float(np.abs(self.forest.predict(rows) - load).mean())


@click.command()
@click.option("--days", default=56)
@click.option("--pace", default=0.2, help="Seconds that stand for a day.")
def main(days, pace):
    grid, forecaster = Grid(0), Forecaster()
    for number in range(28):
        forecaster.days.append(grid.day(number))
    forecaster.learn(grid.day(28))
    begun = time.monotonic()
    for number in range(days):
        time.sleep(max(0.0, begun + number * pace - time.monotonic()))
        day = grid.day(29 + number)
        error = forecaster.error(day)
        forecaster.learn(day)
        if number % 8 == 7:
            print(f"day {number + 1}: off by {error:.2f}", flush=True)


if __name__ == "__main__":
    main()
