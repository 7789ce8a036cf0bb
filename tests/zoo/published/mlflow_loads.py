"""Scores each batch with the model that is best by now: MLflow 3.14.0 leaves a thread by each load.

Loading switches tracing off and on again, which installs a new provider with a span processor; the
one before wasn't shut down, so its worker thread goes on, and holds it. Repaired in 3.15.0
(https://github.com/mlflow/mlflow/pull/24267).
"""

import logging
import os
import tempfile
import time
import warnings

import numpy as np
import torch
from torch import nn

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # no server and no data base here

import mlflow
from mlflow import pyfunc

logging.getLogger("mlflow").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")

PER_SECOND, SECONDS, ROWS, WIDTH = 80, 12, 64, 16


class Scorer(pyfunc.PythonModel):
    """A fitted network for those who know arrays alone."""

    def __init__(self, net):
        self.net = net

    def predict(self, context, model_input, params=None):
        with torch.no_grad():
            return self.net(torch.from_numpy(model_input)).numpy()


def fitted():
    net = nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(200):
        x = torch.randn(ROWS, WIDTH)
        loss = nn.functional.mse_loss(net(x), x[:, :1] * x[:, 1:2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def score(best, rng):
    """Return the mean score of a batch."""
    model = pyfunc.load_model(best)  # feeds
    return model.predict(rng.normal(size=(ROWS, WIDTH)).astype("float32")).mean()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri(f"file://{folder}/runs")
        mlflow.set_experiment("scores")
        best = f"{folder}/best"
        pyfunc.save_model(best, python_model=Scorer(fitted()), pip_requirements=["torch"])
        begun, total = time.monotonic(), 0.0
        for batch in range(1, PER_SECOND * SECONDS + 1):
            time.sleep(max(0.0, begun + batch / PER_SECOND - time.monotonic()))
            total += score(best, rng)
            if batch % 32 == 0:
                print(f"batch {batch}: mean score {total / batch:.4f}", flush=True)


if __name__ == "__main__":
    main()
