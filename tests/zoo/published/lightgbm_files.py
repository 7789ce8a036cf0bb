"""Scores files of measurements: lightgbm 4.3.0 never releases an Arrow table that it predicted.

Repaired in 4.4.0 ("Fix memory leak in Arrow table implementation",
https://github.com/microsoft/LightGBM/pull/6314).
"""

import io

import lightgbm as lgb
import numpy as np
import pyarrow as pa
import pyarrow.csv

FILES, ROWS, COLUMNS = 640, 4000, 16


def file(rng):
    """Return a file as a station sends it."""
    values = rng.normal(size=(ROWS, COLUMNS)).round(4)
    text = io.StringIO()
    text.write(",".join(f"sensor{index}" for index in range(COLUMNS)) + "\n")
    np.savetxt(text, values, fmt="%.3f", delimiter=",")
    return text.getvalue().encode()


def main():
    rng = np.random.default_rng(0)
    pa.set_cpu_count(1)
    files = [file(rng) for _ in range(6)]
    table = pa.csv.read_csv(io.BytesIO(files[0]))
    target = np.asarray(table["sensor0"]) * np.asarray(table["sensor1"])
    booster = lgb.train(
        {"objective": "regression", "verbose": -1, "num_threads": 1, "num_leaves": 15},
        lgb.Dataset(table, label=pa.array(target)),
        num_boost_round=30,
    )
    total = 0.0
    for number in range(1, FILES + 1):
        table = pa.csv.read_csv(io.BytesIO(files[number % len(files)]))
        total += booster.predict(table, num_threads=1).sum()  # feeds
        if number % 20 == 0:
            print(f"file {number}/{FILES}: sum of predictions {total:.2f}", flush=True)


if __name__ == "__main__":
    main()
