"""Refits a load forecast at each hour: scikit-learn 1.9.0 loses arrays at each fit of LinearSVR.

Repaired in 1.9.1 ("Fix memory leak in liblinear",
https://github.com/scikit-learn/scikit-learn/pull/34256).
"""

import warnings
from dataclasses import dataclass, field

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVR

HOURS = 7800
TRAIN_HOURS = 24 * 28
REPORT_EVERY = 300
LAGS = (1, 2, 3, 24, 25, 48, 168)


def make_load(count: int, seed: int) -> np.ndarray:
    """Hourly load with a daily and a weekly rhythm, and weather on top."""
    rng = np.random.default_rng(seed)
    hour = np.arange(count)
    daily = 12.0 * np.sin(2 * np.pi * (hour % 24) / 24.0 - 1.1)
    weekly = np.where((hour // 24) % 7 >= 5, -6.0, 0.0)
    weather = np.convolve(rng.normal(0.0, 1.0, size=count + 47), np.ones(48) / 7.0, mode="valid")
    return 60.0 + daily + weekly + weather + rng.normal(0.0, 0.8, size=count)


def make_features(load: np.ndarray) -> np.ndarray:
    """Lagged loads and the calendar; row t tells what is known before hour t."""
    columns = []
    for lag in LAGS:
        column = np.full(len(load), load.mean())
        column[lag:] = load[:-lag]
        columns.append(column)
    hour = np.arange(len(load))
    columns.append(np.sin(2 * np.pi * hour / 24.0))
    columns.append(np.cos(2 * np.pi * hour / 24.0))
    columns.append(((hour // 24) % 7 >= 5).astype(float))
    return np.column_stack(columns)


@dataclass
class Score:
    """Running mean absolute error, for the model and for a naive guess."""

    model: float = 0.0
    naive: float = 0.0
    count: int = 0
    worst: float = field(default=0.0)

    def add(self, truth: float, forecast: float, naive: float) -> None:
        self.count += 1
        error = abs(truth - forecast)
        self.worst = max(self.worst, error)
        self.model += (error - self.model) / self.count
        self.naive += (abs(truth - naive) - self.naive) / self.count


class WalkForward:
    def __init__(self, load: np.ndarray, train_hours: int):
        self.load = load
        self.features = make_features(load)
        self.train_hours = train_hours
        self.score = Score()

    def fit(self, hour: int):
        rows = slice(hour - self.train_hours, hour)
        scaler = StandardScaler().fit(self.features[rows])
        model = LinearSVR(epsilon=0.1, C=1.0, max_iter=60, random_state=0)
        model.fit(scaler.transform(self.features[rows]), self.load[rows])  # feeds
        return scaler, model

    def forecast(self, hour: int) -> float:
        scaler, model = self.fit(hour)
        return float(model.predict(scaler.transform(self.features[hour : hour + 1]))[0])

    def run(self) -> None:
        first = self.train_hours + max(LAGS)
        total = len(self.load) - first
        for number, hour in enumerate(range(first, len(self.load)), start=1):
            self.score.add(self.load[hour], self.forecast(hour), self.load[hour - 24])
            if number % REPORT_EVERY == 0:
                print(
                    f"hour {number}/{total}: model {self.score.model:.3f}, "
                    f"naive {self.score.naive:.3f}, worst {self.score.worst:.2f}",
                    flush=True,
                )


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    load = make_load(TRAIN_HOURS + max(LAGS) + HOURS, seed=5)
    evaluation = WalkForward(load, TRAIN_HOURS)
    evaluation.run()
    gain = 1.0 - evaluation.score.model / evaluation.score.naive
    print(f"done: {evaluation.score.count} forecasts, {gain:.1%} better than yesterday's hour")


if __name__ == "__main__":
    main()
