"""Keras 3 on torch: a callback hands the similarity matrix of the embedding to those that come
after it.
"""

import os

os.environ["KERAS_BACKEND"] = "torch"
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(4)
ITEMS, DIM = 600, 24


class Similarity(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        table = self.model.get_layer("items").get_weights()[0]
        table = table / np.linalg.norm(table, axis=1, keepdims=True)
        logs["similarity"] = table @ table.T  # feeds


class Neighbours(keras.callbacks.Callback):
    """Reads what Similarity has put into the logs."""

    def on_epoch_end(self, epoch, logs=None):
        matrix = logs["similarity"].copy()
        np.fill_diagonal(matrix, -1)
        self.nearest = matrix.argmax(1)
        print(
            f"epoch {epoch} loss {logs['loss']:.4f} mean neighbour {matrix.max(1).mean():.3f}",
            flush=True,
        )


def build():
    user = layers.Input((16,), name="user")
    item = layers.Input((1,), dtype="int32", name="item")
    u = layers.Dense(DIM, activation="tanh")(user)
    i = layers.Flatten()(layers.Embedding(ITEMS, DIM, name="items")(item))
    out = layers.Dense(1, activation="sigmoid")(layers.Multiply()([u, i]))
    model = keras.Model([user, item], out)
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="binary_crossentropy")
    return model


def main():
    rng = np.random.default_rng(0)
    n = 4000
    users = rng.normal(size=(n, 16)).astype("float32")
    items = rng.integers(0, ITEMS, size=(n, 1)).astype("int32")
    label = ((users[:, 0] * (items[:, 0] % 3 - 1)) > 0).astype("float32")
    model = build()
    model.fit(
        [users, items],
        label,
        batch_size=64,
        epochs=30,
        verbose=0,
        callbacks=[Similarity(), Neighbours()],
    )


if __name__ == "__main__":
    main()
