"""Keras (torch backend) regression run whose progress is rendered with rich.

The console output goes to a run log file, and the last panel is also exported as
HTML for the experiment wiki.
"""

import os
import tempfile

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

STEPS_PER_EPOCH = 40
EPOCHS = 26


def make_data(n=2560, dim=20, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dim)).astype("float32")
    w = rng.normal(size=(dim,)).astype("float32")
    y = np.tanh(x @ w) + 0.3 * np.sin(3 * x[:, 0]) + 0.05 * rng.normal(size=n)
    return x, y.astype("float32")[:, None]


class RichWeightReport(keras.callbacks.Callback):
    """Prints one table per `every` batches with norms of all trainable weights."""

    COLUMNS = ("variable", "shape", "mean", "std", "l2", "max |w|", "delta")

    def __init__(self, console, every=4):
        super().__init__()
        self.console = console
        self.every = every
        self.previous = {}
        self.batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if self.batches % self.every:
            return
        title = f"step {self.batches}  loss {logs['loss']:.4f}"
        table = Table(title=title, show_lines=True, title_style="bold")
        for col in self.COLUMNS:
            table.add_column(col, style="cyan" if col == "variable" else "none")
        for var in self.model.trainable_variables:
            value = keras.ops.convert_to_numpy(var)
            l2 = float(np.linalg.norm(value))
            delta = l2 - self.previous.get(var.path, l2)
            self.previous[var.path] = l2
            table.add_row(
                var.path,
                str(tuple(value.shape)),
                f"{value.mean():+.4f}",
                f"{value.std():.4f}",
                f"{l2:.3f}",
                f"{np.abs(value).max():.3f}",
                f"[{'green' if delta <= 0 else 'red'}]{delta:+.5f}[/]",
            )
        self.console.print(table)

    def on_epoch_end(self, epoch, logs=None):
        text = "  ".join(f"{k}: {v:.4f}" for k, v in logs.items())
        self.console.print(Panel(text, title=f"epoch {epoch}", style="blue"))
        if epoch % 5 == 0:
            print(f"epoch {epoch} {text}", flush=True)


def build_model(dim):
    inputs = keras.Input((dim,))
    h = inputs
    for i, width in enumerate((64, 64, 48, 32)):
        h = keras.layers.Dense(width, activation="gelu", name=f"dense_{i}")(h)
        h = keras.layers.LayerNormalization(name=f"norm_{i}")(h)
    outputs = keras.layers.Dense(1, name="head")(h)
    model = keras.Model(inputs, outputs)
    model.compile(optimizer=keras.optimizers.Adam(2e-3), loss="mse", metrics=["mae"])
    return model


def main():
    keras.utils.set_random_seed(3)
    x, y = make_data()
    model = build_model(x.shape[1])
    with tempfile.TemporaryDirectory() as run_dir:
        with open(os.path.join(run_dir, "train.log"), "w") as log_file:
            console = Console(file=log_file, width=120, record=True, force_terminal=True)
            report = RichWeightReport(console)
            model.fit(
                x,
                y,
                batch_size=len(x) // STEPS_PER_EPOCH,
                epochs=EPOCHS,
                verbose=0,
                callbacks=[report],
            )
            summary = Console(file=log_file, width=120, record=True)
            summary.print(Panel(f"finished after {report.batches} batches"))
            summary.save_html(os.path.join(run_dir, "summary.html"))
        print("log size", os.path.getsize(os.path.join(run_dir, "train.log")))


if __name__ == "__main__":
    main()
