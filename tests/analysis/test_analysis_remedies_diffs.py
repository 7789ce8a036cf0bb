"""Remedies for real snippets: which pattern answers, and what its diff changes.

Every diff is applied with ``patch`` and the result compiled. A program whose comments hold ``+ …``
lines expects exactly those to be added; one without any expects no diff.
"""

from __future__ import annotations

import subprocess
import textwrap
from dataclasses import dataclass, field

import pytest

from leakscope.analysis.remedies import propose
from leakscope.analysis.remedies.context import CulpritContext
from leakscope.analysis.source import SourceIndex
from leakscope.model.census import CensusRow, Content, Owner, RootKind

TENSOR = Content(type="torch.Tensor", count=9, bytes=9000, detail="float32 (8, 4) on cpu")
SCALAR = Content(type="torch.Tensor", count=9, bytes=9000, detail="float32 () on cpu")


@dataclass
class Snippet:
    name: str
    path: str
    owner: str
    text: str
    adds: list[str] = field(default_factory=list)
    title: str = ""
    kind: str = "list"
    type: str = ""
    unit: str = "epoch"
    phase: str = "validation"
    growth: str = "across"
    graph_nodes: int = 0
    holds: list[Content] = field(default_factory=list)
    device_bytes: dict[str, int] = field(default_factory=dict)
    length: int | None = 640

    def propose(self):
        text = textwrap.dedent(self.text)
        kind, name, variable = self.owner.split(" ")
        row = CensusRow(
            path=self.path,
            name=self.path.partition("·")[2],
            root=RootKind.LOCAL,
            owner=Owner(kind=kind, name=name, variable=variable, file="/p/train.py"),
            type=self.type or self.kind,
            kind=self.kind,
            host_bytes=1 << 20,
            graph_nodes=self.graph_nodes,
            holds=self.holds,
            device_bytes=self.device_bytes,
            length=self.length,
        )
        sources = SourceIndex({"/p/train.py": text}, "/p")
        return propose(
            CulpritContext(
                row,
                growth=self.growth,
                unit=self.unit,
                phase=self.phase,
                feeding=sources.feeding(row.owner, row),
                sources=sources,
                items_per_unit=20.0,
            )
        )


def added(diff: str) -> list[str]:
    return [
        line[1:].strip()
        for line in diff.splitlines()
        if line.startswith("+") and not line.startswith("+++")
    ]


SUM = """
def train(loader):
    total_loss = 0.0
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        opt.step()
        total_loss += loss
    print(f"{total_loss / len(loader):.3f}")
"""
SNIPPETS = [
    Snippet(
        "running total, printed",
        "train()·total_loss",
        "function train total_loss",
        SUM,
        ["total_loss += loss.item()"],
        "loss.item()",
        "graph",
    ),
    Snippet(
        "running total of an argument, which may be a number elsewhere",
        "main()·meter.sum",
        "class Meter sum",
        """
        class Meter:
            def __init__(self):
                self.sum = 0.0
                self.count = 0
            def update(self, value, n=1):
                self.sum += value * n
                self.count += n
            def average(self):
                return float(self.sum / self.count)
        """,
        ["self.sum += float(value * n)"],
        "Add float(value * n)",
        "graph",
    ),
    Snippet(
        "running total of a product",
        "train()·total",
        "function train total",
        """
        def train(loader):
            total = 0
            for x in loader:
                loss = f(x)
                loss.backward()
                total += loss * x.size(0)
            return total / 9
        """,
        ["total += (loss * x.size(0)).item()"],
        "Add",
        "graph",
    ),
    Snippet(
        "running total written out",
        "train()·total",
        "function train total",
        """
        def train(loader):
            total = 0
            for x in loader:
                loss = f(x)
                loss.backward()
                total = total + loss
            print(total)
        """,
        ["total = total + loss.item()"],
        "Add",
        "graph",
    ),
    Snippet(
        "running total used as a tensor later",
        "train()·total",
        "function train total",
        """
        def train(loader):
            total = torch.zeros(())
            for x in loader:
                loss = f(x)
                loss.backward()
                total += loss
            return total.cpu().numpy()
        """,
        ["total += loss.detach()"],
        "Add",
        "graph",
    ),
    Snippet(
        "running total whose result's caller calls item",
        "train()·total",
        "function train total",
        """
        def train(loader):
            total = 0
            for x in loader:
                loss = f(x)
                loss.backward()
                total += loss
            return total
        def main():
            mean = train(loader)
            print(mean.item())
        """,
        ["total += loss.detach()"],
        "Add",
        "graph",
    ),
    Snippet(
        "running total reduced over ranks",
        "train()·total",
        "function train total",
        """
        def train(loader):
            total = 0
            for x in loader:
                loss = f(x)
                loss.backward()
                total += loss
            dist.all_reduce(total)
        """,
        ["total += loss.detach()"],
        "Add",
        "graph",
    ),
    Snippet(
        "of unknown shape",
        "train()·total",
        "function train total",
        """
        def train(loader):
            total = 0
            for x in loader:
                total += model(x)
            print(total)
        """,
        ["total += model(x).detach()"],
        "Add",
        "graph",
    ),
    Snippet(
        "look-alike: a sum that carries the gradient",
        "train()·total",
        "function train total",
        """
        def train(loader):
            for x in loader:
                total = 0
                for head in heads:
                    total += head(x)
                total.backward()
        """,
        kind="graph",
    ),
    Snippet(
        "look-alike: carries the gradient under another name",
        "train()·total",
        "function train total",
        """
        def train(loader):
            total = 0
            for x in loader:
                total += f(x)
            mean = total / 3
            scaler.scale(mean).backward()
        """,
        kind="graph",
    ),
    Snippet(
        "look-alike: the caller's backward",
        "criterion()·total",
        "function criterion total",
        """
        def criterion(outs):
            total = 0
            for out in outs:
                total += f(out)
            return total
        def main():
            loss = criterion(model(x))
            loss.backward()
        """,
        kind="graph",
    ),
    Snippet(
        "look-alike: a number already",
        "train()·total",
        "function train total",
        """
        def train(loader):
            total = 0
            for x in loader:
                total += f(x).item()
        """,
        kind="graph",
    ),
    Snippet(
        "losses appended with their graph",
        "main()·losses",
        "function main losses",
        """
        def main():
            losses = []
            for x in loader:
                loss = f(x)
                loss.backward()
                losses.append(loss)
            print(sum(losses) / len(losses))
        """,
        ["losses.append(loss.item())"],
        "loss.item()",
        graph_nodes=9,
    ),
    Snippet(
        "losses stacked as tensors",
        "main()·losses",
        "function main losses",
        """
        def main():
            losses = []
            for x in loader:
                loss = f(x)
                loss.backward()
                losses.append(loss)
            print(torch.stack(losses).mean())
        """,
        ["losses.append(loss.detach())"],
        "loss.detach()",
        graph_nodes=9,
        holds=[SCALAR],
    ),
    Snippet(
        "outputs gathered with their graph",
        "validate()·outs",
        "function validate outs",
        """
        def validate(loader):
            outs = []
            for x in loader:
                outs.append(model(x))
            return torch.cat(outs).cpu().numpy()
        """,
        ["outs.append(model(x).detach().cpu())"],
        "detach().cpu()",
        graph_nodes=9,
        holds=[TENSOR],
    ),
    Snippet(
        "outputs by key",
        "main()·t.outs",
        "class T outs",
        """
        class T:
            def __init__(self):
                self.outs = {}
            def step(self, i, out):
                self.outs[i] = out
        """,
        ["self.outs[i] = out.detach().cpu()"],
        "out.detach()",
        kind="dict",
        graph_nodes=9,
        holds=[TENSOR],
    ),
    Snippet(
        "a loss in a dict of other things",
        "main()·log",
        "function main log",
        """
        def main():
            log = []
            for i, x in enumerate(loader):
                loss = f(x)
                loss.backward()
                log.append({"step": i, "loss": loss})
        """,
        ['log.append({"step": i, "loss": loss.item()})'],
        "loss.item()",
        graph_nodes=9,
    ),
    Snippet(
        "unknown parts of a tuple",
        "main()·log",
        "function main log",
        """
        def main():
            log = []
            for i, x in enumerate(loader):
                log.append((i, model(x), x))
        """,
        [],
        "detach()",
        graph_nodes=9,
    ),
    Snippet(
        "look-alike: losses whose stack is optimised",
        "main()·losses",
        "function main losses",
        """
        def main():
            for x in loader:
                losses = []
                for head in heads:
                    losses.append(head(x))
                torch.stack(losses).mean().backward()
        """,
        graph_nodes=9,
    ),
    Snippet(
        "predictions on the device",
        "validate()·preds",
        "function validate preds",
        """
        def validate(loader):
            preds = []
            with torch.no_grad():
                for x in loader:
                    preds.append(model(x))
            return torch.cat(preds).cpu()
        """,
        ["preds.append(model(x).cpu())"],
        "cpu()",
        growth="within",
        device_bytes={"cuda:0": 1 << 30},
        holds=[TENSOR],
    ),
    Snippet(
        "look-alike: predictions that are compared on the device",
        "validate()·preds",
        "function validate preds",
        """
        def validate(loader, target):
            preds = []
            with torch.no_grad():
                for x in loader:
                    preds.append(model(x))
            return (torch.cat(preds) == target).float().mean()
        """,
        [],
        growth="within",
        device_bytes={"cuda:0": 1 << 30},
        holds=[TENSOR],
    ),
    Snippet(
        "hidden state",
        "main()·hidden",
        "function main hidden",
        """
        def main():
            hidden = None
            for x in loader:
                out, hidden = rnn(x, hidden)
                loss = f(out)
                loss.backward(retain_graph=True)
        """,
        ["if hidden is not None:", "hidden = hidden.detach()"],
        "Detach hidden",
        kind="graph",
    ),
    Snippet(
        "hidden state of an LSTM",
        "main()·hidden",
        "function main hidden",
        """
        def main():
            hidden = model.init_hidden()
            for x in loader:
                out, hidden = rnn(x, hidden)
                f(out).backward()
        """,
        ["hidden = tuple(part.detach() for part in hidden)"],
        "Detach hidden",
        kind="tuple",
        graph_nodes=9,
    ),
    Snippet(
        "look-alike: time steps of one sequence",
        "main()·h",
        "function main h",
        """
        def main():
            for x in loader:
                h = torch.zeros(4)
                for t in range(10):
                    h = cell(x[t], h)
                h.sum().backward()
        """,
        kind="graph",
    ),
    Snippet(
        "concatenation with a graph",
        "main()·bank",
        "function main bank",
        """
        def main():
            bank = torch.zeros(0, 4)
            for x in loader:
                z = encode(x)
                bank = torch.cat([bank, z])
        """,
        ["bank = torch.cat([bank, z.detach()])"],
        "enlarge",
        kind="graph",
    ),
    Snippet(
        "concatenation of numbers",
        "main()·bank",
        "function main bank",
        """
        def main():
            bank = np.zeros(0)
            for x in loader:
                bank = np.append(bank, x)
        """,
        [],
        "enlarge",
        kind="array",
    ),
    Snippet(
        "lru_cache without bound",
        "__main__·encode",
        "module __main__ encode",
        """
        from functools import lru_cache
        @lru_cache(maxsize=None)
        def encode(x):
            return x
        for x in loader:
            encode(x)
        """,
        ["@lru_cache(maxsize=128)"],
        "Bound the cache of encode",
        kind="lru_cache",
    ),
    Snippet(
        "functools.cache on a method",
        "__main__·Dataset.load",
        "class Dataset load",
        """
        import functools
        class Dataset:
            @functools.cache
            def load(self, i):
                return i
        """,
        ["@functools.lru_cache(maxsize=128)"],
        "Bound the cache of load",
        kind="lru_cache",
    ),
    Snippet(
        "cache by its short name",
        "__main__·encode",
        "module __main__ encode",
        """
        from functools import cache

        @cache
        def encode(x):
            return x
        encode(1)
        """,
        ["from functools import lru_cache", "@lru_cache(maxsize=128)"],
        "Bound the cache of encode",
        kind="lru_cache",
    ),
    Snippet(
        "look-alike: bounded lru_cache",
        "__main__·encode",
        "module __main__ encode",
        """
        from functools import lru_cache
        @lru_cache
        def encode(x):
            return x
        for x in loader:
            encode(x)
        """,
        kind="lru_cache",
    ),
    Snippet(
        "dict used as a cache",
        "__main__·CACHE",
        "module __main__ CACHE",
        """
        CACHE = {}
        def load(key):
            if key not in CACHE:
                CACHE[key] = read(key)
            return CACHE[key]
        """,
        ["if len(CACHE) > 128:", "CACHE.pop(next(iter(CACHE)))"],
        "Bound CACHE",
        kind="dict",
    ),
    Snippet(
        "look-alike: a dict that is a result",
        "__main__·RESULTS",
        "module __main__ RESULTS",
        """
        RESULTS = {}
        def load(key):
            if key not in RESULTS:
                RESULTS[key] = read(key)
        def report():
            for key, value in RESULTS.items():
                print(key, value)
        """,
        kind="dict",
    ),
    Snippet(
        "look-alike: a dict that evicts",
        "__main__·CACHE",
        "module __main__ CACHE",
        """
        CACHE = OrderedDict()
        def load(key):
            if key not in CACHE:
                CACHE[key] = read(key)
            if len(CACHE) > 500:
                CACHE.popitem(last=False)
            return CACHE[key]
        """,
        kind="dict",
    ),
    Snippet(
        "hook in the epoch loop",
        "main()·model._forward_hooks",
        "function main model",
        """
        def main():
            model = Net()
            for epoch in range(9):
                model.register_forward_hook(hook)
                train(model)
        """,
        ["handle = model.register_forward_hook(hook)", "handle.remove()"],
        "Register the hook once",
        kind="dict",
    ),
    Snippet(
        "hooks on every layer in the epoch loop",
        "main()·model._modules['a']._forward_hooks",
        "function main model",
        """
        def main():
            model = Net()
            for epoch in range(9):
                for layer in model.layers:
                    layer.register_forward_hook(hook)
                train(model)
        """,
        [
            "handles = []",
            "handles.append(layer.register_forward_hook(hook))",
            "for handle in handles:",
            "handle.remove()",
        ],
        "Register the hook once",
        kind="dict",
    ),
    Snippet(
        "hook on each part, read after the loop",
        "main()·layer._forward_hooks",
        "instance Layer _forward_hooks",
        """
        def collect(model, loader):
            states = {}
            for part in model.encoder.layer:
                part.register_forward_hook(keep(states))
            return states
        """,
        [],
        "Register the hook once",
        "dict",
        "collections.OrderedDict",
    ),
    Snippet(
        "hook with an early way out",
        "main()·model._forward_hooks",
        "function main model",
        """
        def main():
            model = Net()
            for epoch in range(9):
                model.register_forward_hook(hook)
                if done(model):
                    continue
                train(model)
        """,
        [],
        "Register the hook once",
        kind="dict",
    ),
    Snippet(
        "figures never closed",
        "matplotlib._pylab_helpers·Gcf.figs",
        "module matplotlib Gcf",
        """
        import matplotlib.pyplot as plt
        def plot(epoch, xs):
            fig, ax = plt.subplots()
            ax.plot(xs)
            fig.savefig("x.png")
        for epoch in range(9):
            plot(epoch, xs)
        """,
        ["plt.close(fig)"],
        "Close each figure",
        kind="figure",
    ),
    Snippet(
        "look-alike: a figure that is returned",
        "matplotlib._pylab_helpers·Gcf.figs",
        "module matplotlib Gcf",
        """
        import matplotlib.pyplot as plt
        def plot(epoch, xs):
            fig, ax = plt.subplots()
            ax.plot(xs)
            return fig
        for epoch in range(9):
            plot(epoch, xs)
        """,
        [],
        "Close each figure",
        kind="figure",
    ),
    Snippet(
        "figures kept in a list, too",
        "__main__·figures",
        "module __main__ figures",
        """
        import matplotlib.pyplot as plt
        figures = []
        def plot(epoch, xs):
            fig, ax = plt.subplots()
            ax.plot(xs)
            figures.append(fig)
        for epoch in range(9):
            plot(epoch, xs)
        """,
        [],
        "Close each figure, and keep it in figures no longer",
        holds=[Content(type="matplotlib.figure.Figure", count=9, bytes=9 << 20)],
    ),
    Snippet(
        "look-alike: figures without pyplot",
        "__main__·figures",
        "module __main__ figures",
        """
        from matplotlib.figure import Figure
        figures = []
        def plot(epoch, xs):
            figures.append(Figure())
        for epoch in range(9):
            plot(epoch, xs)
        """,
        ["del figures[:-100]"],
        "Keep only the last 100",
        holds=[Content(type="matplotlib.figure.Figure", count=9, bytes=9 << 20)],
    ),
    Snippet(
        "default argument",
        "__main__·collect(out=)",
        "function collect out",
        '''
        def collect(x, out=[]):
            """Gather."""
            out.append(x)
            return out
        for x in loader:
            collect(x)
        ''',
        ["def collect(x, out=None):", "if out is None:", "out = []"],
        "Create out",
    ),
    Snippet(
        "look-alike: a default argument meant as a cache",
        "__main__·load(_cache=)",
        "function load _cache",
        """
        def load(x, _cache={}):
            if x not in _cache:
                _cache[x] = read(x)
            return _cache[x]
        """,
        [],
        "Bound the default argument",
        kind="dict",
    ),
    Snippet(
        "class-level list",
        "main()·b.items",
        "class Batch items",
        """
        class Batch:
            items = []
            def __init__(self, x):
                self.x = x
            def keep(self, y):
                self.items.append(y)
        def main():
            for x in loader:
                b = Batch(x)
                b.keep(x)
        """,
        ["self.items = []"],
        "its own items",
    ),
    Snippet(
        "look-alike: a registry of the class",
        "main()·Batch.items",
        "class Batch items",
        """
        class Batch:
            items = []
            def __init__(self, x):
                Batch.items.append(self)
        def main():
            for x in loader:
                b = Batch(x)
        def all_of():
            for b in Batch.items:
                print(b)
        """,
    ),
    Snippet(
        "log handlers",
        "logging·root.handlers",
        "module logging root",
        """
        import logging
        def get(epoch):
            logger = logging.getLogger("x")
            logger.addHandler(logging.FileHandler("x"))
            return logger
        for epoch in range(9):
            get(epoch)
        """,
        ["if not logger.handlers:", 'logger.addHandler(logging.FileHandler("x"))'],
        "log handler once",
    ),
    Snippet(
        "metric never reset",
        "main()·metric.preds",
        "function main metric",
        """
        from torchmetrics import Accuracy
        def main():
            metric = Accuracy()
            for epoch in range(9):
                for x, y in loader:
                    metric.update(f(x), y)
                print(metric.compute())
        """,
        ["metric.reset()"],
        "Reset metric",
    ),
    Snippet(
        "look-alike: metric that is reset",
        "main()·metric.preds",
        "function main metric",
        """
        from torchmetrics import Accuracy
        def main():
            metric = Accuracy()
            for epoch in range(9):
                metric.reset()
                for x, y in loader:
                    metric.update(f(x), y)
                print(metric.compute())
        """,
    ),
    Snippet(
        "exceptions",
        "main()·errors",
        "function main errors",
        """
        def main():
            errors = []
            for x in loader:
                try:
                    f(x)
                except ValueError as error:
                    errors.append(error)
            print(len(errors))
        """,
        ["errors.append(repr(error))"],
        "text of the errors",
    ),
    Snippet(
        "look-alike: exceptions that are raised again",
        "main()·errors",
        "function main errors",
        """
        def main():
            errors = []
            for x in loader:
                try:
                    f(x)
                except ValueError as error:
                    errors.append(error)
            raise errors[0]
        """,
        [],
        "text of the errors",
    ),
    Snippet(
        "queue never drained",
        "main()·q.queue",
        "function main q",
        """
        import queue
        def main():
            q = queue.Queue()
            for x in loader:
                q.put(x)
        """,
        [],
        "Drain q",
        kind="deque",
    ),
    Snippet(
        "queue drained too slowly",
        "main()·q.queue",
        "function main q",
        """
        import queue
        def main():
            q = queue.Queue()
            for x in loader:
                q.put(x)
                if x:
                    q.get()
        """,
        [],
        "Bound q",
        kind="deque",
    ),
    Snippet(
        "parameter groups",
        "main()·opt.param_groups",
        "function main opt",
        """
        def main():
            opt = torch.optim.SGD(ps)
            for epoch in range(9):
                opt.add_param_group({"params": ps})
        """,
        [],
        "parameter groups once",
    ),
    Snippet(
        "retain_graph",
        "main()·model",
        "function main model",
        """
        def main():
            model = Net()
            for x in loader:
                model.last = f(model, x)
                model.last.backward(retain_graph=True)
        """,
        [],
        "retain_graph",
        kind="graph",
    ),
    Snippet(
        "only the tail is read",
        "main()·t.norms",
        "class T norms",
        """
        class T:
            def __init__(self):
                self.norms = []
            def step(self, x):
                self.norms.append(x)
                return sum(self.norms[-100:]) / 100
        """,
        ["del self.norms[:-100]"],
        "last 100",
        unit="step",
    ),
    Snippet(
        "nothing is read",
        "main()·t.norms",
        "class T norms",
        """
        class T:
            def __init__(self):
                self.norms = []
            def step(self, x):
                self.norms.append(x)
        """,
        ["del self.norms[:-100]"],
        "last 100",
        unit="step",
    ),
    Snippet(
        "look-alike: all of it is read",
        "main()·t.norms",
        "class T norms",
        """
        class T:
            def __init__(self):
                self.norms = []
            def step(self, x):
                self.norms.append(x)
            def plot(self):
                plt.plot(self.norms)
        """,
        unit="step",
    ),
    Snippet(
        "predictions of all validations",
        "main()·t.preds",
        "class T preds",
        """
        class T:
            def __init__(self):
                self.preds = []
            def validate(self, loader):
                self.model.eval()
                for x in loader:
                    self.preds.append(self.model(x).numpy())
                return metric(np.concatenate(self.preds))
        """,
        ["self.preds.clear()"],
        "Empty t.preds",
        unit="validation",
    ),
    Snippet(
        "look-alike: the loop is not the round",
        "main()·g.images",
        "class Gallery images",
        """
        class Gallery:
            def __init__(self):
                self.images = []
            def add(self, images):
                for image in images:
                    self.images.append(image)
        """,
        ["del self.images[:-100]"],
        "last 100",
    ),
    Snippet(
        "a list under a key, which nothing reads",
        "__main__·history['feats']",
        "module __main__ history",
        """
        history = {"loss": [], "feats": []}
        def validate():
            for x in loader:
                history["feats"].append(x)
        for epoch in range(9):
            history["loss"].append(1.0)
            validate()
        """,
        ['history["feats"].clear()'],
        "Empty history['feats']",
    ),
    Snippet(
        "look-alike: read by another method",
        "main()·t.preds",
        "class T preds",
        """
        class T:
            def __init__(self):
                self.preds = []
            def validate(self, loader):
                for x in loader:
                    self.preds.append(self.model(x).numpy())
            def history(self):
                return metric(self.preds)
        """,
        [],
        "Empty t.preds",
        unit="validation",
    ),
    Snippet(
        "look-alike: the list itself is returned",
        "main()·t.preds",
        "class T preds",
        """
        class T:
            def __init__(self):
                self.preds = []
            def validate(self, loader):
                for x in loader:
                    self.preds.append(self.model(x).numpy())
                return self.preds
        """,
        [],
        "Empty t.preds",
        unit="validation",
    ),
    Snippet(
        "look-alike: emptied already",
        "main()·t.preds",
        "class T preds",
        """
        class T:
            def __init__(self):
                self.preds = []
            def validate(self, loader):
                self.preds = []
                for x in loader:
                    self.preds.append(self.model(x).numpy())
        """,
        unit="validation",
    ),
    Snippet(
        "local list begun outside the epochs",
        "main()·preds",
        "function main preds",
        """
        def main():
            preds = []
            for epoch in range(9):
                for x in loader:
                    preds.append(f(x))
                print(metric(preds))
        """,
        ["preds.clear()"],
        "Empty preds",
    ),
    Snippet(
        "look-alike: read after all epochs",
        "main()·preds",
        "function main preds",
        """
        def main():
            preds = []
            for epoch in range(9):
                for x in loader:
                    preds.append(f(x))
            print(metric(preds))
        """,
        [],
        "Empty preds",
    ),
    Snippet(
        "gathered within a validation",
        "validate()·boxes",
        "function validate boxes",
        """
        def validate(loader):
            boxes = []
            for x in loader:
                boxes.append(f(x).numpy())
            return score(boxes)
        """,
        [],
        "batch by batch",
        growth="within",
        unit="batch",
    ),
    Snippet(
        "unknown owner",
        "torch.foo·_things",
        "module torch.foo _things",
        "x = 1\n",
        [],
        "Bound or empty",
        kind="set",
    ),
]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: s.name)
def test_offers_the_right_change(snippet: Snippet, tmp_path) -> None:
    remedy = snippet.propose()
    assert snippet.title in remedy.title
    if not snippet.adds:
        assert remedy.diff is None
        return
    assert remedy.diff is not None
    assert added(remedy.diff) == snippet.adds
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(snippet.text))
    command = ["patch", "-p1", "-s", "-d", str(tmp_path)]
    subprocess.run(command, input=remedy.diff, text=True, check=True)
    compile(file.read_text(), "train.py", "exec")


def test_says_that_a_stored_slice_keeps_the_whole() -> None:
    text = """
        def main():
            hard = []
            for x in loader:
                hard.append(x[worst].detach())
        """
    snippet = Snippet("view", "main()·hard", "function main hard", text, holds=[TENSOR])
    assert "`x[worst]` is a view, which keeps all of `x`" in snippet.propose().text
    snippet.text = text.replace(".detach()", ".clone()")
    assert "is a view" not in snippet.propose().text


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: s.name)
def test_never_recommends_collecting_what_is_reachable(snippet: Snippet) -> None:
    text = snippet.propose().text
    for call in ("gc.collect()", "empty_cache()"):
        assert call not in text or "can't help" in text
