"""Registers things with libraries: ``python FILE CASE leak|fixed FOLDER``.

A fixed twin does as much work and takes back what it registered, or registers once. What is healthy
by itself has no twin. Each case imports its own library.
"""

import io
import os
import time

from paced_rounds import keeping, rounds, run


def tracker_records(leaks):
    """A tracker whose thread writes more slowly than the program logs."""
    from torch.utils.tensorboard import SummaryWriter

    def write(data):
        time.sleep(0.05 if leaks else 0.0)

    writer = SummaryWriter("events", max_queue=0)
    thread = writer._get_file_writer().event_writer._async_writer._worker
    thread._record_writer.write = write
    del thread
    for number in rounds():
        for layer in range(8):
            writer.add_text(f"layer{layer}", f"{number}" * 20_000, number)  # registered here


def image_formats(leaks):
    from PIL import Image

    for number in rounds():
        name = f"FORMAT{number if leaks else 0}"
        Image.register_save(name, keeping())  # registered here


def arrow_types(leaks):
    import pyarrow as pa

    class Embedding(pa.ExtensionType):
        def __init__(self, name):
            self.table = bytearray(300_000)
            super().__init__(pa.binary(), name)

        def __arrow_ext_serialize__(self):
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage_type, serialized):
            return cls("embedding")

    for number in rounds():
        name = f"embedding{number if leaks else 0}"
        if leaks or not number:
            pa.register_extension_type(Embedding(name))  # registered here


def frame_options(leaks):
    from pandas._config import config

    for number in rounds():
        key = f"mine.step{number}"
        config.register_option(key, 0, validator=keeping())  # registered here
        if not leaks:
            del config._registered_options[key]


def frame_types(leaks):
    from pandas.api.extensions import ExtensionDtype, register_extension_dtype

    def made():
        return type("Pixels", (ExtensionDtype,), {"name": "pixels", "table": bytearray(300_000)})

    once = register_extension_dtype(made())
    for _ in rounds():
        if leaks:
            register_extension_dtype(made())  # registered here
        once()


def colormaps(leaks):
    import matplotlib as mpl
    import numpy as np
    from matplotlib.colors import ListedColormap

    for number in rounds():
        name, colours = f"depth{number}", np.random.rand(12_500, 3)
        mpl.colormaps.register(ListedColormap(colours), name=name)  # registered here
        if not leaks:
            mpl.colormaps.unregister(name)


def expressions(_):
    """Expressions of which numexpr keeps some hundred, and no more: healthy."""
    import numexpr
    import numpy as np

    a = np.ones(1000)
    for number in rounds():
        for place in range(40):
            numexpr.evaluate(f"a * {number} + {place}", {"a": a})


def configurations(leaks):
    from transformers import AutoConfig, PretrainedConfig

    for number in rounds():
        name = f"mine{number if leaks else 0}"
        fields = {"model_type": name, "table": bytearray(300_000)}
        config = type("MineConfig", (PretrainedConfig,), fields)
        AutoConfig.register(name, config, exist_ok=True)  # registered here


def progress_bars(leaks):
    """Bars are kept for their rates; those that are closed are kept no longer."""
    from tqdm import tqdm

    bars = []
    for _ in rounds():
        bar = tqdm([0], desc="x" * 300_000, file=io.StringIO())
        bars.append(bar)  # registered here
        if not leaks:
            bars.pop().close()


def metrics(leaks):
    import prometheus_client

    for number in rounds():
        for place in range(20):
            name = f"job_{number}_{place}"
            metric = prometheus_client.Histogram(name, "x" * 3000)  # registered here
            if not leaks:
                prometheus_client.REGISTRY.unregister(metric)


def event_listeners(leaks):
    import sqlalchemy
    from sqlalchemy import event

    engine = sqlalchemy.create_engine("sqlite://")
    for _ in rounds():
        listener = keeping()
        event.listen(engine, "begin", listener)  # registered here
        if not leaks:
            event.remove(engine, "begin", listener)


def custom_objects(leaks):
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    def made():
        fields = {"table": bytearray(300_000), "get_config": lambda self: {}}
        return type("Layer", (), fields)

    once = made()
    for number in rounds():
        layer, name = made() if leaks else once, f"Layer{number if leaks else 0}"
        keras.saving.register_keras_serializable("mine", name)(layer)  # registered here


if __name__ == "__main__":
    run(globals())
