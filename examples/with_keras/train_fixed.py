"""A classifier with Keras 3 on torch."""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np

from leakscope.keras import LeakScopeCallback

CLASSES = 1000

parser = argparse.ArgumentParser()
parser.add_argument("--out", help="where to record; by default under leakscope-runs/")
parser.add_argument("--epochs", type=int, default=8)
arguments = parser.parse_args()


def photos(count, seed):
    numbers = np.random.default_rng(seed)
    return numbers.random((count, 256), np.float32), numbers.integers(0, CLASSES, count)


class Confusions(keras.callbacks.Callback):
    """Tells after each epoch how sure the model is of what it confuses."""

    def __init__(self, photos):
        super().__init__()
        self.photos = photos
        self.outputs = []

    def on_epoch_end(self, epoch, logs=None):
        pixels, labels = self.photos
        self.outputs.append(self.model.predict(pixels, verbose=0))
        wrong = self.outputs[-1].argmax(1) != labels
        print(epoch + 1, float(self.outputs[-1][wrong].max(1).mean()))
        self.outputs.clear()


keras.utils.set_random_seed(0)
model = keras.Sequential(
    [keras.Input((256,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(CLASSES, "softmax")]
)
model.compile("adam", "sparse_categorical_crossentropy")
pixels, labels = photos(640, 1)
held_out = photos(512, 2)
model.fit(
    pixels,
    labels,
    batch_size=16,
    epochs=arguments.epochs,
    validation_data=held_out,
    verbose=0,
    callbacks=[LeakScopeCallback(out=arguments.out), Confusions(held_out)],
)
