"""Small training programs as people write them, each recorded unmodified."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from snippet_recorder import SnippetRecorder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PRELUDE = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.rand(640, 64), torch.randint(0, 10, (640,)))
train_loader = DataLoader(data, batch_size=16)
val_loader = DataLoader(TensorDataset(*data[:320]), batch_size=16)
KB256 = 65536  # float32 values
"""

PLAIN_EPOCHS = """
def step(x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def validate():
    model.eval()
    with torch.no_grad():
        for x, y in val_loader:
            model(x)
    model.train()
"""


@dataclass(frozen=True)
class Program:
    body: str
    names: tuple[str, ...]
    line: str
    units: tuple[str, ...]
    bytes_per_unit: float
    growth: str = "across"


LEAKS = {
    "nested dict of lists per epoch": Program(
        """
        history = {"train": {"outputs": {}}}

        def train(epochs):
            for epoch in range(epochs):
                history["train"]["outputs"][epoch] = []
                for x, y in train_loader:
                    step(x, y)
                    history["train"]["outputs"][epoch].append(torch.rand(16384))
                validate()

        train(6)
        """,
        ("history['train']['outputs']", "history['train']['outputs'][*]"),
        'history["train"]["outputs"][epoch].append',
        ("step",),
        65536,
    ),
    "attribute of an object held by another": Program(
        """
        class Callback:
            def __init__(self):
                self.seen = []

            def on_step(self, loss, x):
                self.seen.append((float(loss), x.repeat(1, 16)))


        class Runner:
            def __init__(self):
                self.callbacks = {"log": Callback()}

            def fit(self, epochs):
                for epoch in range(epochs):
                    for x, y in train_loader:
                        loss = step(x, y)
                        for callback in self.callbacks.values():
                            callback.on_step(loss.detach(), x)
                    validate()

        Runner().fit(6)
        """,
        ("Callback.seen",),
        "self.seen.append",
        ("step",),
        16 * 64 * 16 * 4,
    ),
    "closure": Program(
        """
        def make_logger():
            records = []

            def log(value):
                records.append(value)

            return log

        log = make_logger()
        for epoch in range(6):
            for x, y in train_loader:
                step(x, y)
                log(torch.rand(16384))
            validate()
        """,
        ("make_logger.records",),
        "records.append(value)",
        ("step",),
        65536,
    ),
    "class attribute shared by all instances": Program(
        """
        class Metric:
            values = []

            def update(self, value):
                self.values.append(value)

        for epoch in range(6):
            metric = Metric()
            for x, y in train_loader:
                step(x, y)
                metric.update(torch.rand(16384))
            validate()
        """,
        ("Metric.values",),
        "self.values.append(value)",
        ("step",),
        65536,
    ),
    "default argument": Program(
        """
        def collect(value, out=[]):
            out.append(value)
            return out

        for epoch in range(6):
            for x, y in train_loader:
                step(x, y)
                collect(torch.rand(16384))
            validate()
        """,
        ("collect.out",),
        "out.append(value)",
        ("step",),
        65536,
    ),
    "queue that nobody drains": Program(
        """
        import queue

        class Recorder:
            def __init__(self):
                self.queue = queue.Queue()

        recorder = Recorder()
        for epoch in range(6):
            for x, y in train_loader:
                step(x, y)
                recorder.queue.put(torch.rand(16384))
            validate()
        """,
        ("Recorder.queue",),
        "recorder.queue.put",
        ("step",),
        65536,
    ),
    "thread-local": Program(
        """
        import threading

        scratch = threading.local()
        scratch.buffers = []
        for epoch in range(6):
            for x, y in train_loader:
                step(x, y)
                scratch.buffers.append(torch.rand(16384))
            validate()
        """,
        ("scratch.buffers",),
        "scratch.buffers.append",
        ("step",),
        65536,
    ),
    "unbounded lru_cache": Program(
        """
        import functools

        @functools.lru_cache(maxsize=None)
        def load(index):
            return torch.rand(16384)

        count = 0
        for epoch in range(6):
            for x, y in train_loader:
                step(x, y)
                load(count)
                count += 1
            validate()
        """,
        ("load",),
        "load(count)",
        ("step",),
        65536,
    ),
    "scalar that keeps every graph": Program(
        """
        total_loss = 0.0
        for epoch in range(6):
            for x, y in train_loader:
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward(retain_graph=True)
                optimizer.step()
                total_loss += loss
            validate()
        """,
        ("total_loss",),
        "total_loss += loss",
        ("step",),
        # input 4096, hidden 8192 and its ReLU result shared, log-probabilities 640, labels 128;
        # and the eight nodes themselves, of some 680 bytes each
        16 * (64 + 128 + 10) * 4 + 16 * 8 + 8 * 680,
    ),
    "list local to validation": Program(
        """
        def evaluate():
            predictions = []
            model.eval()
            with torch.no_grad():
                for x, y in val_loader:
                    model(x)
                    predictions.append(torch.rand(1024, 1024))
            model.train()
            return float(torch.stack([p.mean() for p in predictions]).mean())

        for epoch in range(5):
            for x, y in train_loader:
                step(x, y)
            evaluate()
        """,
        ("evaluate.predictions",),
        "predictions.append",
        ("batch",),
        1024 * 1024 * 4,
        growth="within",
    ),
    "outputs kept by every validation": Program(
        """
        class Evaluator:
            def __init__(self):
                self.outputs = []

            @torch.no_grad()
            def run(self):
                model.eval()
                for x, y in val_loader:
                    model(x)
                    self.outputs.append(torch.rand(KB256))
                model.train()

        evaluator = Evaluator()
        for epoch in range(6):
            for x, y in train_loader:
                step(x, y)
            evaluator.run()
        """,
        ("Evaluator.outputs",),
        "self.outputs.append",
        ("validation", "epoch"),
        20 * 65536 * 4,
    ),
    "no DataLoader at all": Program(
        """
        def main():
            replay = []
            for i in range(300):
                x, y = torch.rand(16, 64), torch.randint(0, 10, (16,))
                step(x, y)
                replay.append(torch.rand(16384))

        main()
        """,
        ("main.replay",),
        "replay.append",
        ("step",),
        65536,
    ),
    "inference that keeps its results": Program(
        """
        results = {}
        model.eval()
        for repeat in range(6):
            with torch.inference_mode():
                for i, (x, y) in enumerate(val_loader):
                    results[repeat, i] = torch.rand(KB256) + model(x).mean()
        """,
        ("results",),
        "results[repeat, i] =",
        ("validation", "epoch", "inference", "batch"),
        20 * 65536 * 4,
    ),
}

INNOCENT = {
    "cache that fills": """
        cache = {}
        for epoch in range(6):
            for i, (x, y) in enumerate(train_loader):
                step(x, y)
                cache[i] = torch.rand(KB256)
            validate()
        """,
    "bounded deque": """
        from collections import deque

        window = deque(maxlen=50)
        for epoch in range(6):
            for x, y in train_loader:
                step(x, y)
                window.append(torch.rand(KB256))
            validate()
        """,
    "history of floats": """
        history = {"loss": [], "accuracy": []}
        for epoch in range(6):
            for x, y in train_loader:
                history["loss"].append(step(x, y).item())
            validate()
            history["accuracy"].append(0.5)
        """,
    "lists cleared every validation": """
        outputs = []
        for epoch in range(6):
            for x, y in train_loader:
                step(x, y)
            with torch.no_grad():
                for x, y in val_loader:
                    outputs.append(model(x))
            outputs.clear()
        """,
    "big but constant": """
        bank = torch.rand(40, 1024, 1024)
        for epoch in range(6):
            for x, y in train_loader:
                step(x, y)
            validate()
        """,
    "optimizer state at the first step": """
        model = nn.Sequential(nn.Linear(64, 1500), nn.ReLU(), nn.Linear(1500, 1000))
        optimizer = torch.optim.Adam(model.parameters())
        for epoch in range(5):
            for x, y in train_loader:
                step(x, y)
            validate()
        """,
    "garbage in cycles": """
        class Node:
            pass

        for epoch in range(6):
            for x, y in train_loader:
                step(x, y)
                node = Node()
                node.self = node
                node.payload = torch.rand(16384)
            validate()
        """,
    "best model kept": """
        import copy

        best = None
        for epoch in range(6):
            for x, y in train_loader:
                step(x, y)
            validate()
            best = copy.deepcopy(model.state_dict())
        """,
    "many batches of varying length": """
        for epoch in range(6):
            for i, (x, y) in enumerate(train_loader):
                padded = torch.rand(16 + (i * 7919) % 61, 4096)
                step(x, y)
            validate()
        """,
}


def run(recorder: SnippetRecorder, folder: Path, body: str) -> dict[str, Any]:
    script = folder / "train.py"
    script.write_text(PRELUDE + PLAIN_EPOCHS + textwrap.dedent(body))
    return recorder.report(folder)


def summary(report: dict[str, Any]) -> str:
    keys = ("name", "severity", "growth", "unit", "bytes_per_unit", "fed_at")
    rows = [{key: c[key] for key in keys} for c in report["culprits"]]
    titles = [f"{f['severity']}: {f['title']}" for f in report["findings"]]
    return f"{report['headline']}\n{json.dumps(rows, indent=1)}\n{titles}"


@pytest.mark.parametrize(
    "name",
    LEAKS,
)
def test_leak_is_named_with_its_line_and_rate(
    name: str, tmp_path: Path, recorder: SnippetRecorder
) -> None:
    program = LEAKS[name]
    report = run(recorder, tmp_path, program.body)
    first = report["culprits"][0] if report["culprits"] else {}
    assert report["verdict"] == "leak", summary(report)
    assert first["name"] in program.names, summary(report)
    assert first["growth"] == program.growth, summary(report)
    assert first["unit"] in program.units, summary(report)
    source = (tmp_path / "train.py").read_text().splitlines()
    fed = [source[int(location.rpartition(":")[2]) - 1] for location in first["fed_at"]]
    assert any(program.line in text for text in fed[:2]), (fed, summary(report))
    per_unit = program.bytes_per_unit
    if first["unit"] == "batch" and program.growth == "across":
        per_unit /= 20
    assert first["bytes_per_unit"] == pytest.approx(per_unit, rel=0.15), summary(report)
    others = [c for c in report["culprits"][1:] if c["severity"] != "note"]
    assert not others, summary(report)


@pytest.mark.parametrize(
    "name",
    INNOCENT,
)
def test_look_alike_is_clean(name: str, tmp_path: Path, recorder: SnippetRecorder) -> None:
    report = run(recorder, tmp_path, INNOCENT[name])
    assert report["verdict"] == "clean", summary(report)
