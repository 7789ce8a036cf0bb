"""Trains a recurrent forecaster: pytorch-forecasting 1.4.0 keeps the graph of each step's loss.

What a step returns, the loss in it, is appended to a list of the model, which the end of the epoch
clears. Repaired in 1.5.0, which detaches it
(https://github.com/sktime/pytorch-forecasting/pull/1924).
"""

import logging
import tempfile
import warnings

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from pytorch_forecasting import RecurrentNetwork, TimeSeriesDataSet

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

STATIONS, HOURS, BATCH = 8, 630, 8


class Progress(pl.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if (batch_idx + 1) % 20 == 0:
            print(f"step {batch_idx + 1}: loss {outputs['loss'].item():.3f}", flush=True)


def data_set():
    rng = np.random.default_rng(0)
    load = rng.normal(size=(STATIONS, HOURS)) + np.sin(np.arange(HOURS) / 4)
    frame = pd.DataFrame(
        {
            "hour": np.tile(np.arange(HOURS), STATIONS),
            "station": np.repeat([f"station {index}" for index in range(STATIONS)], HOURS),
            "load": load.ravel(),
        }
    )
    return TimeSeriesDataSet(
        frame, time_idx="hour", target="load", group_ids=["station"], max_encoder_length=24,
        max_prediction_length=6, time_varying_unknown_reals=["load"],
    )  # fmt: skip


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = data_set()
    model = RecurrentNetwork.from_dataset(data, cell_type="GRU", hidden_size=12, rnn_layers=2)
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=[Progress()],
            default_root_dir=folder,
        )  # fmt: skip
        loader = data.to_dataloader(train=True, batch_size=BATCH, num_workers=0)
        trainer.fit(model, loader)  # feeds


if __name__ == "__main__":
    main()
