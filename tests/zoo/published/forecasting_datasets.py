"""Answers with a fitted scaling: pytorch-forecasting 1.4.0 keeps the data set of each request.

Properties of the data set are cached by ``lru_cache(None)``, whose keys are the data sets. Repaired
in 1.5.0, with ``cached_property`` (https://github.com/sktime/pytorch-forecasting/pull/1905).
"""

import warnings

import numpy as np
import pandas as pd
import torch
from pytorch_forecasting import TimeSeriesDataSet

warnings.filterwarnings("ignore")

REQUESTS, STATIONS, HOURS = 72, 4, 12000


def measured(rng):
    """Return the load of each station, hour by hour."""
    return pd.DataFrame(
        {
            "hour": np.tile(np.arange(HOURS), STATIONS),
            "station": np.repeat([f"station {index}" for index in range(STATIONS)], HOURS),
            "load": rng.normal(size=STATIONS * HOURS).cumsum(),
        }
    )


def main():
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    fitted = TimeSeriesDataSet(
        measured(rng), time_idx="hour", target="load", group_ids=["station"],
        max_encoder_length=24, max_prediction_length=6, time_varying_unknown_reals=["load"],
    )  # fmt: skip
    highest = 0.0
    for request in range(1, REQUESTS + 1):
        asked = TimeSeriesDataSet.from_dataset(fitted, measured(rng), predict=True)  # feeds
        for x, _ in asked.to_dataloader(train=False, batch_size=64, num_workers=0):
            highest = max(highest, x["encoder_cont"].max().item())
        if request % 2 == 0:
            print(f"request {request}/{REQUESTS}: highest {highest:.2f}", flush=True)


if __name__ == "__main__":
    main()
