"""Which lines feed a container: each program marks its own answers with comments.

``# feeds`` marks the first line of every statement that must be named, ``# first`` the one that
must come first, ``# defines`` the definition. Nothing else may be named.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field

import msgspec
import pytest

from leakscope.analysis.remedies import propose
from leakscope.analysis.remedies.context import CulpritContext
from leakscope.analysis.source import SourceIndex
from leakscope.model.census import CensusRow, Content, Owner, RootKind

ROOT = "/project"


@dataclass
class Program:
    """Files with marked lines, and the row whose feeding lines are requested."""

    name: str
    path: str
    owner: tuple[str, str, str]
    files: dict[str, str] = field(default_factory=dict)
    kind: str = "list"
    type: str = ""
    person: str = ""
    owner_file: str = "train.py"

    def row(self) -> CensusRow:
        kind, name, variable = self.owner
        owner = Owner(
            kind=kind,
            name=name,
            variable=variable,
            file=f"{ROOT}/{self.owner_file}" if self.owner_file else "",
            module="__main__" if self.owner_file == "train.py" else "",
        )
        return CensusRow(
            path=self.path,
            name=self.person or self.path.partition("·")[2],
            root=RootKind.LOCAL,
            owner=owner,
            type=self.type or self.kind,
            kind=self.kind,
            host_bytes=1 << 20,
        )

    def index(self) -> SourceIndex:
        return SourceIndex(
            {f"{ROOT}/{file}": textwrap.dedent(text) for file, text in self.files.items()}, ROOT
        )

    def marked(self, mark: str) -> list[str]:
        found = []
        for file, text in self.files.items():
            for number, line in enumerate(textwrap.dedent(text).splitlines(), 1):
                if re.search(rf"#.*\b{mark}\b", line):
                    found.append(f"{file}:{number}")
        return found


def one(name, path, owner, text, **more) -> Program:
    return Program(name, path, tuple(owner.split(" ")), {"train.py": text}, **more)


CALLBACKS = """
        class Similarity(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                logs["similarity"] = matrix(self.model)  {here}

        class Reader(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                shown = {{}}
                shown["similarity"] = logs["similarity"].mean()
                logs["mean"] = shown["similarity"]

        class Table:
            def fill(self, row):
                row["similarity"] = 1

        def main():
            model = build()
            for _ in range(3):
                model.fit(x, y, callbacks=[Similarity(), Reader()])  {there}
        """
LISTENERS = """
        from ignite.engine import Engine, Events

        def step(engine, batch):
            return model(batch)

        trainer = Engine(step)

        {on_start}
        def prepare(engine):
            engine.state.hard = []

        {each}
        def mine(engine):
            engine.state.hard.append(engine.state.output)  # feeds

        {end}
        def report(engine):
            print(sorted(engine.state.hard)[:3])

        {added}
        trainer.run(batches, max_epochs=3)
        """
PROGRAMS = [
    one(
        "a callable that is wrapped again and again",
        "main()·loader.collate_fn.keywords",
        "function main loader",
        """
        from functools import partial

        def with_prototypes(samples, collate, prototypes):
            return collate(samples)

        def main():
            loader = DataLoader(data)
            for epoch in range(48):
                train(loader.collate_fn)
                loader.collate_fn = partial(  # feeds first
                    with_prototypes, collate=loader.collate_fn, prototypes=renew()
                )
        """,
        kind="dict",
    ),
    one(
        "a parametrization that is registered again and again",
        "main()·fit.model.body[2].parametrizations.weight",
        "function main fit",
        """
        from torch.nn.utils import parametrize

        def main():
            fit = Fit()
            for epoch in range(48):
                for layer in fit.layers:
                    parametrize.register_parametrization(layer, "weight", Shake())  # feeds first
                fit.model(batch())
        """,
        kind="module",
    ),
    one(
        "a stream that a writer of a library's writes to",
        "__main__·sheet.out",
        "class Sheet out",
        """
        import csv, io, zipfile

        class Sheet:
            def __init__(self, columns):
                self.out = io.StringIO()  # defines
                self.rows = csv.writer(self.out)
                self.rows.writerow(columns)
                self.others = csv.writer(open("others.csv", "w"))

            def add(self, *values):
                self.rows.writerow(values)  # feeds first
                self.others.writerow(values)

            def table(self, rows):
                with zipfile.ZipFile(self.out, "a") as archive:
                    archive.writestr("rows", rows)  # feeds

        class Counts:
            def add(self, row):
                self.rows.writerow(row)

        sheet = Sheet(["a"])
        for step in range(100):
            sheet.add(step)
        """,
        kind="other",
        type="_io.StringIO",
    ),
    one(
        "what a decorator of the object's registers is called with the object",
        "__main__·trainer.state.hard",
        "module __main__ trainer",
        LISTENERS.format(
            on_start="@trainer.on(Events.STARTED)",
            each="@trainer.on(Events.ITERATION_COMPLETED(every=2))",
            end="@trainer.on(Events.COMPLETED)",
            added="",
        ),
    ),
    one(
        "what is registered with an object is called with it",
        "__main__·trainer.state.hard",
        "module __main__ trainer",
        LISTENERS.format(
            on_start="",
            each="",
            end="",
            added="trainer.add_event_handler(Events.STARTED, prepare); "
            "trainer.add_event_handler(Events.ITERATION_COMPLETED, mine)",
        ),
    ),
    one(
        "a function that an object is given works on something else of that name",
        "__main__·table.items",
        "module __main__ table",
        """
        class Table:
            def __init__(self):
                self.items = []

            def each(self, function):
                for item in self.items:
                    function(item)

        def shorten(row):
            row.cells.append(len(row.cells))

        table = Table()
        for row in rows:
            table.items.append(row)  # feeds
            table.each(shorten)
        """,
    ),
    one(
        "what a callback writes into the logs that a library gathers",
        "main()·model.history.history['similarity']",
        "function main model",
        CALLBACKS.format(here="# feeds", there=""),
    ),
    one(
        "what a library writes into its own logs",
        "main()·model.history.history['loss']",
        "function main model",
        CALLBACKS.format(here="", there="# feeds"),
    ),
    one(
        "a ring that overwrites its slots once it is full",
        "main()·ring.items",
        "class Ring items",
        """
        class Ring:
            def __init__(self, capacity):
                self.capacity, self.items, self.at = capacity, [], 0

            def push(self, item):
                if len(self.items) < self.capacity:
                    self.items.append(item)  # feeds
                else:
                    self.items[self.at] = item
                    self.at = (self.at + 1) % self.capacity

        def main():
            ring = Ring(1000)
            for step in range(10):
                ring.push(step)
        """,
    ),
    one(
        "a ring whose slots are filled after room was made",
        "main()·ring.items",
        "class Ring items",
        """
        class Ring:
            def __init__(self, capacity):
                self.capacity, self.items, self.at = capacity, [], 0

            def push(self, item):
                if len(self.items) < self.capacity:
                    self.items.append(None)  # feeds
                self.items[self.at] = item  # feeds
                self.at = (self.at + 1) % self.capacity

        def main():
            ring = Ring(1000)
            for step in range(10):
                ring.push(step)
        """,
    ),
    one(
        "a list put together from slices",
        "main()·kept",
        "function main kept",
        """
        def main():
            kept = []
            for x in loader:
                kept[len(kept):] = [x]  # feeds
                kept.append(x)  # feeds
        """,
    ),
    one(
        "append to an attribute in validation",
        "main()·trainer.all_preds",
        "class Trainer all_preds",
        """
        class Trainer:
            def __init__(self):
                self.all_preds = []  # defines
            def validate(self, loader):
                for batch in loader:
                    out = self.model(batch)
                    self.all_preds.append(out)  # feeds
        def main():
            trainer = Trainer()
            for epoch in range(3):
                trainer.validate(loader)
        """,
    ),
    one(
        "path begins at a local of main, owner too",
        "main()·trainer.all_preds",
        "function main trainer",
        """
        class Trainer:
            def __init__(self):
                self.all_preds = []  # defines
            def validate(self, loader):
                for batch in loader:
                    self.all_preds.append(batch)  # feeds
        def main():
            trainer = Trainer()
            trainer.validate(loader)
        """,
    ),
    one(
        "local list of a method",
        "Trainer.validate()·boxes[*]['x']",
        "function Trainer.validate boxes",
        """
        class Trainer:
            def validate(self, loader):
                boxes = []  # defines
                for batch in loader:
                    for item in batch:
                        boxes.append({"x": item})  # feeds
                return len(boxes)
        """,
        kind="dict",
    ),
    one(
        "one list made under two names",
        "worker()·dataset.pool",
        "class Shuffled pool",
        """
        class Shuffled:
            def __init__(self):
                self.pool = []  # defines
            def __iter__(self):
                self.pool = pool = [next(source) for _ in range(self.warm)]
                for record in source:
                    pool.append(record)  # feeds
                    yield pool[0]
        """,
    ),
    one(
        "two numbers that begin alike",
        "main()·total",
        "function main total",
        """
        def main():
            total = best = 0.0  # defines
            for x in loader:
                best += 1
                total += f(x)  # feeds
        """,
        kind="graph",
    ),
    one(
        "only the named list among several",
        "Trainer.validate()·scores",
        "function Trainer.validate scores",
        """
        class Trainer:
            def validate(self, loader):
                boxes = []
                scores = []  # defines
                for batch in loader:
                    boxes.append(batch)
                    scores.append(batch)  # feeds
        """,
    ),
    one(
        "same variable name in another function",
        "validate()·preds",
        "function validate preds",
        """
        def train(loader):
            preds = []
            for batch in loader:
                preds.append(batch)
        def validate(loader):
            preds = []  # defines
            for batch in loader:
                preds.append(batch)  # feeds
        """,
    ),
    one(
        "a key of a dict of lists",
        "main()·trainer.history['val']",
        "class Trainer history",
        """
        class Trainer:
            def __init__(self):
                self.history = {"train": [], "val": []}  # defines
            def run(self):
                for epoch in range(9):
                    self.history["train"].append(epoch)
                    self.history["val"].append(epoch)  # feeds
        """,
    ),
    one(
        "the outer dict of a dict of lists per epoch",
        "main()·history",
        "function main history",
        """
        def main():
            history = {}  # defines
            for epoch in range(9):
                history[epoch] = []  # feeds first
                for step in range(9):
                    history[epoch].append(step)  # feeds
        """,
        kind="dict",
    ),
    one(
        "the inner lists of a dict of lists per epoch",
        "main()·history[*]",
        "function main history",
        """
        def main():
            history = {}  # defines
            for epoch in range(9):
                history[epoch] = []
                for step in range(9):
                    history[epoch].append(step)  # feeds
        """,
    ),
    one(
        "room made inside the container only",
        "main()·history",
        "function main history",
        """
        def main():
            history = {"a": {}}  # defines
            for epoch in range(9):
                history["a"][epoch] = []  # feeds
        """,
        kind="dict",
    ),
    one(
        "a loop's variable that outlives it",
        "validate()·batch",
        "function validate batch",
        """
        def validate(loader):
            for batch in loader:  # feeds defines
                pass
            save()
        """,
        kind="dict",
    ),
    one(
        "setdefault feeds the outer dict",
        "main()·history",
        "function main history",
        """
        def main():
            history = {}  # defines
            for epoch in range(9):
                history.setdefault(epoch, []).append(epoch)  # feeds
        """,
        kind="dict",
    ),
    one(
        "room made once, and filled under another name",
        "main()·results",
        "function main results",
        """
        def main():
            results = {}  # defines
            for image, truth in loader:
                for name in CLASSES:
                    entry = results.setdefault(name, {"pred": [], "gt": []})  # feeds
                    entry["pred"].append(image)  # feeds first
                    entry["gt"].append(truth)  # feeds
        """,
        kind="dict",
    ),
    one(
        "what is there already, or else is made, under a name of its own",
        "main()·results",
        "function main results",
        """
        def main():
            results = {}  # defines
            for image, truth in loader:
                entry = results.get(image) or results.setdefault(image, [])  # feeds
                entry.append(truth)  # feeds first
                other = results[truth] if truth in results else []
                other.append(image)  # feeds
        """,
        kind="dict",
    ),
    one(
        "a list made in the container under a name of its own",
        "main()·results",
        "function main results",
        """
        def main():
            results = {"all": []}  # defines
            rows = results["kept"] = []  # feeds
            for batch in loader:
                rows.append(batch)  # feeds first
        """,
        kind="dict",
    ),
    one(
        "what a method gives out of the container is filled by its caller",
        "main()·gallery.pages",
        "class Gallery pages",
        """
        from collections import defaultdict
        class Gallery:
            def __init__(self):
                self.pages = defaultdict(dict)  # defines
            def page(self, epoch, kind):
                return self.pages[epoch].setdefault(kind, [])  # feeds
        def main():
            gallery = Gallery()
            for epoch in range(9):
                page = gallery.page(epoch, "recon")
                for batch in loader:
                    page.append(batch)  # feeds first
        """,
        kind="dict",
        type="collections.defaultdict",
    ),
    one(
        "what a method gives out is filled without a name",
        "main()·gallery.pages",
        "class Gallery pages",
        """
        class Gallery:
            def __init__(self):
                self.pages = {"a": [], "b": []}  # defines
            def page(self, kind):
                if kind == "all":
                    return self.pages["a"]
                return self._same(kind)
            def _same(self, kind):
                return self.pages[kind]
        def main():
            gallery = Gallery()
            for batch in loader:
                gallery.page("b").append(batch)  # feeds
        """,
        kind="dict",
    ),
    one(
        "a property that gives an item",
        "main()·gallery.pages",
        "class Gallery pages",
        """
        class Gallery:
            def __init__(self):
                self.pages = {"a": [], "b": []}  # defines
            @property
            def current(self):
                return self.pages["a"]
        def main():
            gallery = Gallery()
            for batch in loader:
                gallery.current.append(batch)  # feeds
        """,
        kind="dict",
    ),
    one(
        "what a method may give from elsewhere does not fill the container",
        "main()·gallery.pages",
        "class Gallery pages",
        """
        class Gallery:
            def __init__(self):
                self.pages = {}  # defines
            def page(self, kind):
                if kind in self.pages:
                    return self.pages[kind]
                return []
            def found(self, kind):
                return self.pages.get(kind, [])
            def either(self, kind):
                rows = self.pages[kind]
                if not rows:
                    rows = []
                return rows
            def each(self, kind):
                yield self.pages[kind]
                return self.pages[kind]
        def main():
            gallery = Gallery()
            for batch in loader:
                gallery.pages[batch.name] = batch  # feeds
                page = gallery.page("b")
                page.append(batch)
                gallery.found("b").append(batch)
                gallery.either("b").append(batch)
                gallery.each("b").append(batch)
        """,
        kind="dict",
    ),
    one(
        "a method of another class that gives out of another container",
        "main()·gallery.pages",
        "class Gallery pages",
        """
        class Gallery:
            def __init__(self):
                self.pages = {"a": []}  # defines
            def page(self, kind):
                return self.pages[kind]
        class Album:
            def __init__(self):
                self.leaves = {"a": []}
            def page(self, kind):
                return self.leaves[kind]
        def main():
            gallery, album = Gallery(), Album()
            for batch in loader:
                gallery.page("a").append(batch)  # feeds
                album.page("a").append(batch)
        """,
        kind="dict",
    ),
    one(
        "counters do not feed what the lists next to them do",
        "__main__·note(traces=)",
        "function note traces",
        """
        def note(member, probs, traces={}):
            trace = traces.setdefault(member, {"count": 0, "sum": 0.0, "probs": []})  # feeds
            trace["count"] += 1
            trace["sum"] += probs.max().item()
            trace["probs"].append(probs)  # feeds first
        for x in loader:
            note(1, x)
        """,
        kind="dict",
    ),
    one(
        "counters under ever new names feed",
        "main()·seen",
        "function main seen",
        """
        def main():
            seen = Counter()  # defines
            for word in words:
                seen["all"] += 1
                seen[word] += 1  # feeds
        """,
        kind="dict",
    ),
    one(
        "a sum that is no number feeds under a fixed name",
        "main()·sums",
        "function main sums",
        """
        def main():
            sums = {"loss": 0.0, "count": 0}  # defines
            for x in loader:
                sums["loss"] += model(x)  # feeds
                sums["count"] += 1
        """,
        kind="dict",
    ),
    one(
        "the lists of a dict, filled in a loop over them",
        "main()·results",
        "function main results",
        """
        def main():
            results = {"pred": [], "gt": []}  # defines
            for batch in loader:
                for name, rows in results.items():
                    rows.append(batch[name])  # feeds
                for other in batch.values():
                    other.append(0)
        """,
        kind="dict",
    ),
    one(
        "what a context variable has",
        "__main__·trace[*]",
        "module __main__ trace",
        """
        from contextvars import ContextVar
        trace = ContextVar("trace")  # defines
        class Traced:
            def forward(self, x):
                trace.get().append(x)  # feeds
        """,
    ),
    one(
        "a context variable that is set to what it had and more",
        "__main__·TRACE[*]",
        "module __main__ TRACE",
        """
        from contextvars import ContextVar
        TRACE = ContextVar("trace", default=())  # defines
        class Traced:
            def forward(self, x):
                TRACE.set((*TRACE.get(), x))  # feeds
            def reset(self):
                TRACE.set(())
        """,
        kind="tuple",
    ),
    one(
        "a context variable that is set to what refers to what it had",
        "__main__·current_span[*]",
        "module __main__ current_span",
        """
        from contextvars import ContextVar
        current_span = ContextVar("current_span", default=None)  # defines
        def span(name):
            opened = Span(name, current_span.get())
            token = current_span.set(opened)  # feeds
            try:
                yield opened
            except Exception:
                current_span.reset(token)
        def begin(name):
            fresh = Span(name, None)
            current_span.set(fresh)
        """,
        kind="object",
    ),
    one(
        "a handler that adds another to the engine that it is given",
        "__main__·trainer._event_handlers[*]",
        "module __main__ trainer",
        """
        from ignite.engine import Engine, Events
        trainer = Engine(update)  # defines
        @trainer.on(Events.EPOCH_COMPLETED)
        def follow(engine):
            engine.add_event_handler(Events.ITERATION_COMPLETED, report, embed())  # feeds
        """,
    ),
    one(
        "a loop that reads the handlers next to the line that adds them",
        "__main__·evaluator._event_handlers[*]",
        "module __main__ evaluator",
        """
        from ignite.engine import Engine, Events
        trainer, evaluator = Engine(update), Engine(score)  # defines
        @trainer.on(Events.EPOCH_COMPLETED)
        def validate(engine):
            evaluator.add_event_handler(Events.COMPLETED, compare, embed())  # feeds
            evaluator.run(loader)
        def count():
            for entries in evaluator._event_handlers.values():
                for function, args, kwargs in entries:
                    print(function, len(args))
        """,
    ),
    one(
        "a metric that is called in the training and updated in the validation",
        "__main__·stages['train'].scores.preds",
        "module __main__ stages",
        """
        from torchmetrics import AUROC
        class Stage:
            def __init__(self):
                self.scores = AUROC()
        stages = {"train": Stage(), "val": Stage()}
        def train(loader):
            stage = stages["train"]
            for x, y in loader:
                stage.scores(model(x), y)  # feeds first
        def validate(loader):
            stage = stages["val"]
            for x, y in loader:
                stage.scores.update(model(x), y)  # feeds
        """,
    ),
    one(
        "append on setdefault feeds the inner list",
        "main()·history[*]",
        "function main history",
        """
        def main():
            history = {}  # defines
            for epoch in range(9):
                history.setdefault("x", []).append(epoch)  # feeds
        """,
    ),
    one(
        "reading a defaultdict feeds it",
        "main()·history",
        "function main history",
        """
        from collections import defaultdict
        def main():
            history = defaultdict(list)  # defines
            for epoch in range(9):
                history[epoch].append(epoch)  # feeds
        """,
        kind="dict",
        type="collections.defaultdict",
    ),
    one(
        "no line for the outer dict but for its lists",
        "main()·history",
        "function main history",
        """
        def main():
            history = {"a": [], "b": []}  # defines
            for epoch in range(9):
                history["a"].append(epoch)  # feeds
        """,
        kind="dict",
    ),
    one(
        "running total",
        "main()·total_loss",
        "function main total_loss",
        """
        def main():
            total_loss = 0  # defines
            for x in loader:
                loss = f(x)
                total_loss += loss  # feeds
            print(total_loss / 3)
        """,
        kind="graph",
    ),
    one(
        "running total written out",
        "main()·total",
        "function main total",
        """
        def main():
            total = 0.0  # defines
            for x in loader:
                total = total + f(x)  # feeds
        """,
        kind="graph",
    ),
    one(
        "running total in an attribute",
        "main()·t.total",
        "class Trainer total",
        """
        class Trainer:
            def reset(self):
                self.total = 0  # defines
            def step(self, x):
                self.total += self.f(x)  # feeds
        def main():
            t = Trainer()
            for x in loader:
                t.step(x)
        """,
        kind="graph",
    ),
    one(
        "a total per key",
        "main()·totals['box']",
        "function main totals",
        """
        def main():
            totals = {"box": 0, "cls": 0}  # defines
            for x in loader:
                totals["box"] += box(x)  # feeds
                totals["cls"] += cls(x)
        """,
        kind="graph",
    ),
    one(
        "concatenation",
        "main()·bank",
        "function main bank",
        """
        def main():
            bank = torch.zeros(0, 4)  # defines
            for x in loader:
                bank = torch.cat([bank, x])  # feeds
        """,
        kind="tensor",
    ),
    one(
        "numpy append",
        "main()·bank",
        "function main bank",
        """
        import numpy as np
        def main():
            bank = np.zeros(0)  # defines
            for x in loader:
                bank = np.append(bank, x)  # feeds
        """,
        kind="array",
    ),
    one(
        "hidden state carried on",
        "main()·hidden",
        "function main hidden",
        """
        def main():
            hidden = None  # defines
            for x in loader:
                out, hidden = rnn(x, hidden)  # feeds
        """,
        kind="graph",
    ),
    one(
        "hidden state carried on through another variable",
        "main()·hidden",
        "function main hidden",
        """
        def main():
            hidden = torch.zeros(4)  # defines
            for x in loader:
                new = cell(x, hidden)
                hidden = new  # feeds
        """,
        kind="graph",
    ),
    one(
        "hidden state of an attribute",
        "main()·agent.state",
        "class Agent state",
        """
        class Agent:
            def __init__(self):
                self.state = None  # defines
            def act(self, x):
                out, self.state = self.rnn(x, self.state)  # feeds
                return out
        """,
        kind="graph",
    ),
    one(
        "losses by index",
        "main()·losses",
        "function main losses",
        """
        def main():
            losses = torch.zeros(10)  # defines
            for i, x in enumerate(loader):
                losses[i] = f(x)  # feeds
        """,
        kind="graph",
    ),
    one(
        "extend, plus-equals and slice",
        "main()·xs",
        "function main xs",
        """
        def main():
            xs = []  # defines
            while True:
                xs.extend(f())  # feeds
                xs += [1, 2]  # feeds
                xs[len(xs):] = f()  # feeds
                xs = xs + [3]  # feeds
                xs *= 2  # feeds
        """,
    ),
    one(
        "set, deque, insert",
        "main()·xs",
        "function main xs",
        """
        def main():
            xs = thing()  # defines
            for i in range(3):
                xs.add(i)  # feeds
                xs.appendleft(i)  # feeds
                xs.insert(0, i)  # feeds
                xs.update({i})  # feeds
                xs.pop()
                xs.remove(i)
        """,
        kind="set",
    ),
    one(
        "a queue's own deque",
        "main()·q.queue",
        "function main q",
        """
        import queue
        def main():
            q = queue.Queue()  # defines
            for x in loader:
                q.put(x)  # feeds
        """,
        kind="deque",
    ),
    one(
        "put_nowait",
        "main()·q",
        "function main q",
        """
        def main():
            q = Queue()  # defines
            for x in loader:
                q.put_nowait(x)  # feeds
                q.get()
        """,
        kind="queue",
    ),
    one(
        "initialisation is no feeding",
        "main()·log",
        "function main log",
        """
        def main():
            log = []  # defines
            log.append("header")
            for x in loader:
                log.append(x)  # feeds
        """,
    ),
    one(
        "an alias",
        "main()·t.history",
        "class Trainer history",
        """
        class Trainer:
            def __init__(self):
                self.history = []  # defines
            def run(self, loader):
                h = self.history
                for x in loader:
                    h.append(x)  # feeds
        """,
    ),
    one(
        "a bound method kept",
        "main()·t.history",
        "class Trainer history",
        """
        class Trainer:
            def __init__(self):
                self.history = []  # defines
            def run(self, loader):
                append = self.history.append
                for x in loader:
                    append(x)  # feeds
        """,
    ),
    one(
        "fed through two parameters",
        "validate()·out",
        "function validate out",
        """
        def store(sink, value):
            sink.append(value)  # feeds
        def collect(batch, into):
            for item in batch:
                store(into, item)
        def validate(loader):
            out = []  # defines
            for batch in loader:
                collect(batch, out)
        """,
    ),
    one(
        "fed through a keyword argument and a method",
        "main()·rows",
        "function main rows",
        """
        class Collector:
            def collect(self, batch, *, rows):
                rows.append(batch)  # feeds
        def main():
            rows = []  # defines
            c = Collector()
            for batch in loader:
                c.collect(batch, rows=rows)
        """,
    ),
    one(
        "kept by a constructor",
        "main()·rows",
        "function main rows",
        """
        class Collector:
            def __init__(self, sink):
                self.sink = sink
            def __call__(self, batch):
                self.sink.append(batch)  # feeds
        def main():
            rows = []  # defines
            c = Collector(rows)
            for batch in loader:
                c(batch)
        """,
    ),
    one(
        "nonlocal in a nested function",
        "main()·total",
        "function main total",
        """
        def main():
            total = 0  # defines
            def step(x):
                nonlocal total
                total += f(x)  # feeds
            for x in loader:
                step(x)
        """,
        kind="graph",
    ),
    one(
        "a closure's cell",
        "__main__·step⟨records⟩",
        "module __main__ step",
        """
        def make():
            records = []  # defines
            def step(x):
                records.append(x)  # feeds
            return step
        step = make()
        for x in loader:
            step(x)
        """,
    ),
    one(
        "the cell of the right closure",
        "__main__·encode⟨cache⟩",
        "module __main__ encode",
        """
        def other(fn):
            cache = {}
            def wrapper(x):
                cache[x] = 1
            return wrapper
        def memo(fn):
            cache = {}  # defines
            def wrapper(x):
                if x not in cache:
                    cache[x] = fn(x)  # feeds
                return cache[x]
            return wrapper
        @memo
        def encode(x):
            return x
        """,
        kind="dict",
    ),
    one(
        "a default argument",
        "__main__·collect(out=)",
        "function collect out",
        """
        def collect(x, out=[]):  # defines
            out.append(x)  # feeds
            return out
        for x in loader:
            collect(x)
        """,
    ),
    one(
        "walrus",
        "main()·total",
        "function main total",
        """
        def main():
            total = 0  # defines
            for x in loader:
                print(total := total + f(x))  # feeds
        """,
        kind="graph",
    ),
    one(
        "append inside a comprehension",
        "main()·seen",
        "function main seen",
        """
        def main():
            seen = []  # defines
            [seen.append(x) for x in loader]  # feeds
        """,
    ),
    one(
        "plus-equals a comprehension",
        "main()·t.preds",
        "class T preds",
        """
        class T:
            preds = None
            def __init__(self):
                self.preds = []
            def validate(self):
                self.preds += [f(x) for x in self.loader]  # feeds
        """,
    ),
    one(
        "built by a comprehension",
        "evaluate()·preds",
        "function evaluate preds",
        """
        def evaluate(loader):
            preds = [f(x) for x in loader]  # feeds defines
            return preds
        """,
    ),
    one(
        "lru_cache",
        "__main__·encode",
        "module __main__ encode",
        """
        from functools import lru_cache
        @lru_cache(maxsize=None)  # defines
        def encode(x):
            return x * 2
        for x in loader:
            y = encode(x)  # feeds
        """,
        kind="lru_cache",
    ),
    one(
        "cached method",
        "__main__·Dataset.load",
        "class Dataset load",
        """
        import functools
        class Dataset:
            @functools.cache  # defines
            def load(self, i):
                return read(i)
            def __getitem__(self, i):
                return self.load(i)  # feeds
        """,
        kind="lru_cache",
    ),
    one(
        "attribute fed by the base class",
        "main()·t.log",
        "class Child log",
        """
        class Base:
            def record(self, x):
                self.log.append(x)  # feeds
        class Child(Base):
            def __init__(self):
                self.log = []  # defines
        def main():
            t = Child()
            for x in loader:
                t.record(x)
        """,
    ),
    one(
        "another class's attribute of the same name",
        "main()·t.log",
        "class Trainer log",
        """
        class Meter:
            def __init__(self):
                self.log = []
            def add(self, x):
                self.log.append(x)
        class Trainer:
            def __init__(self):
                self.log = []  # defines
                self.meter = Meter()
            def step(self, x):
                self.meter.log.append(x)
                self.log.append(x)  # feeds
        """,
    ),
    one(
        "dataclass field",
        "main()·state.losses",
        "class State losses",
        """
        from dataclasses import dataclass, field
        @dataclass
        class State:
            step: int = 0
            losses: list = field(default_factory=list)  # defines
        def main():
            state = State()
            for x in loader:
                state.losses.append(x)  # feeds
        """,
    ),
    one(
        "class attribute by three names",
        "__main__·Config.cache",
        "class Config cache",
        """
        class Config:
            cache = {}  # defines
            @classmethod
            def put(cls, k, v):
                cls.cache[k] = v  # feeds
            def keep(self, k, v):
                self.cache[k] = v  # feeds
        for k in loader:
            Config.cache[k] = k  # feeds
        """,
        kind="dict",
    ),
    one(
        "attribute of another object",
        "main()·trainer.state.log",
        "class State log",
        """
        class State:
            def __init__(self):
                self.log = []  # defines
        class Trainer:
            def __init__(self):
                self.state = State()
        class Callback:
            def __init__(self, trainer):
                self.trainer = trainer
            def on_step(self, x):
                self.trainer.state.log.append(x)  # feeds
        def main():
            trainer = Trainer()
            cb = Callback(trainer)
        """,
    ),
    one(
        "an attribute set from outside",
        "main()·model.feats",
        "function main model",
        """
        class Net:
            pass
        def hook(module, args, out):
            model.feats.append(out)  # feeds
        def main():
            global model
            model = Net()
            model.feats = []
            for x in loader:
                model.feats.append(x)  # feeds
        """,
    ),
    Program(
        "module global fed from another module",
        "data.loader·CACHE",
        ("module", "data.loader", "CACHE"),
        {
            "data/loader.py": """
            CACHE = {}  # defines
            """,
            "train.py": """
            from data.loader import CACHE
            for k in keys:
                CACHE[k] = load(k)  # feeds
            """,
            "other.py": """
            import data.loader as dl
            CACHE = {}
            def go():
                for k in keys:
                    CACHE[k] = 1
                    dl.CACHE[k] = 2  # feeds
            """,
        },
        kind="dict",
        owner_file="data/loader.py",
    ),
    Program(
        "import under another name",
        "data·LOG",
        ("module", "data", "LOG"),
        {
            "data.py": "LOG = []  # defines\n",
            "train.py": """
            from data import LOG as sink
            for k in keys:
                sink.append(k)  # feeds
            """,
        },
        owner_file="data.py",
    ),
    one(
        "global of the script",
        "__main__·cache['x']",
        "module __main__ cache",
        """
        cache = {"x": []}  # defines
        def step(v):
            cache["x"].append(v)  # feeds
            cache["y"].append(v)
        for v in loader:
            step(v)
        """,
    ),
    one(
        "global declared in a function",
        "__main__·total",
        "module __main__ total",
        """
        total = 0  # defines
        def step(v):
            global total
            total += v  # feeds
        for v in loader:
            step(v)
        """,
        kind="graph",
    ),
    one(
        "hooks in the epoch loop",
        "main()·model._forward_hooks",
        "function main model",
        """
        def main():
            model = Net()  # defines
            for epoch in range(3):
                model.register_forward_hook(hook)  # feeds
        """,
        kind="dict",
        type="collections.OrderedDict",
    ),
    one(
        "hooks of inner modules",
        "main()·model._modules['layer']._forward_hooks",
        "function main model",
        """
        def main():
            model = Net()  # defines
            for epoch in range(3):
                for m in model.modules():
                    m.register_forward_hook(hook)  # feeds
        """,
        kind="dict",
    ),
    one(
        "hooks beside one that its own function removes",
        "main()·model._forward_hooks",
        "function main model",
        """
        def features(model, x):
            found = []
            handle = model.register_forward_hook(lambda m, a, out: found.append(out))
            model(x)
            handle.remove()
            return found
        def main():
            model = Net()  # defines
            for epoch in range(3):
                features(model, epoch)
                handle = model.register_forward_hook(hook)  # feeds
        """,
        kind="dict",
        type="collections.OrderedDict",
    ),
    one(
        "handed on with a part of the arguments",
        "main()·log",
        "function main log",
        """
        from functools import partial
        def evaluate(model, log, step):
            log.append(model.score(step))  # feeds
        def train(model):
            log = []
            model.step(log)
        def main():
            log = []  # defines
            check = partial(evaluate, model, log)
            for step in range(100):
                check(step)
        """,
    ),
    one(
        "handed on by name to what is started",
        "main()·log",
        "function main log",
        """
        def evaluate(model, *, log):
            log.append(model.score())  # feeds
        def main():
            log = []  # defines
            for step in range(100):
                pool.submit(evaluate, model, log=log)
        """,
    ),
    one(
        "what a library object is given",
        "Labeller.accelerator._dataloaders",
        "class Labeller accelerator",
        """
        from accelerate import Accelerator
        class Labeller:
            def __init__(self):
                self.accelerator = Accelerator()  # defines
                self.net = self.accelerator.prepare(Net())
            def teacher(self):
                teacher = copy.deepcopy(self.net)
                return self.accelerator.prepare(teacher)  # feeds
            def loader(self):
                loader = DataLoader(self.select(self.teacher()))
                return self.accelerator.prepare(loader)  # feeds first
            def epoch(self):
                for x in self.loader():
                    self.accelerator.backward(self.net(x).sum())
                    self.accelerator.clip_grad_norm_(self.net.parameters(), 2.0)
        labeller = Labeller()
        for epoch in range(9):
            labeller.epoch()
        """,
    ),
    one(
        "hooks on parameters that a list of tuples names",
        "Reducer.layout[*][0]._post_accumulate_grad_hooks",
        "class Reducer layout",
        """
        class Reducer:
            def __init__(self, model):
                self.model = model
                self.layout = []  # defines
            def rebuild(self):
                self.layout = []
                for p in self.model.parameters():
                    p.register_hook(self.clip)
                    p.register_post_accumulate_grad_hook(self.arrived)  # feeds
                    self.layout.append((p, slice(0, p.numel())))
        reducer = Reducer(Net())
        for step in range(100):
            reducer.rebuild()
        """,
        kind="dict",
        type="collections.OrderedDict",
    ),
    one(
        "open figures",
        "matplotlib._pylab_helpers·Gcf.figs",
        "module matplotlib._pylab_helpers Gcf",
        """
        import matplotlib.pyplot as plt
        def plot(epoch):
            fig, ax = plt.subplots()  # feeds
            fig.savefig(f"{epoch}.png")
        for epoch in range(3):
            plot(epoch)
        """,
        kind="figure",
        owner_file="",
    ),
    one(
        "log handlers",
        "logging·root.manager.loggerDict['x'].handlers",
        "module logging root",
        """
        import logging
        def get(epoch):
            logger = logging.getLogger("x")
            logger.addHandler(logging.FileHandler("x"))  # feeds
        for epoch in range(3):
            get(epoch)
        """,
        owner_file="",
    ),
    one(
        "a library's metric",
        "main()·metric.preds",
        "function main metric",
        """
        import torchmetrics
        def main():
            metric = torchmetrics.Accuracy()  # defines
            metric.to("cpu")
            for x, y in loader:
                metric.update(f(x), y)  # feeds
            metric.compute()
        """,
    ),
    one(
        "a library's metric, called",
        "main()·metric.preds",
        "function main metric",
        """
        from torchmetrics import Accuracy
        def main():
            metric = Accuracy()  # defines
            for x, y in loader:
                metric(f(x), y)  # feeds
        """,
    ),
    one(
        "a statement over several lines",
        "main()·rows",
        "function main rows",
        """
        def main():
            rows = []  # defines
            for x in loader:
                rows.append(  # feeds
                    {
                        "x": x,
                    }
                )
        """,
    ),
    one(
        "lists in a loop over a dict",
        "main()·sinks[*]",
        "function main sinks",
        """
        def main():
            sinks = {"a": [], "b": []}  # defines
            for x in loader:
                for name, sink in sinks.items():
                    sink.append(x)  # feeds
        """,
    ),
    one(
        "returned by a getter",
        "main()·t.log",
        "class T log",
        """
        class T:
            def __init__(self):
                self.log = []  # defines
            def sink(self):
                return self.log
            def step(self, x):
                self.sink().append(x)  # feeds
        """,
    ),
    one(
        "heap and bisect",
        "main()·best",
        "function main best",
        """
        import heapq
        def main():
            best = []  # defines
            for x in loader:
                heapq.heappush(best, x)  # feeds
        """,
    ),
    one(
        "fed from a thread",
        "main()·out",
        "function main out",
        """
        import threading
        def work(out):
            while True:
                out.append(read())  # feeds
        def main():
            out = []  # defines
            threading.Thread(target=work, args=(out,)).start()
        """,
    ),
    one(
        "object gaining attributes",
        "main()·box",
        "function main box",
        """
        class Box:
            pass
        def main():
            box = Box()  # defines
            for i, x in enumerate(loader):
                setattr(box, f"x{i}", x)  # feeds
        """,
        kind="object",
        type="__main__.Box",
    ),
    one(
        "replaced each time",
        "main()·outputs",
        "function main outputs",
        """
        def main():
            for x in loader:
                outputs = model(x)  # feeds defines
        """,
        kind="tensor",
    ),
    one(
        "a subscript beyond the list: the list is fed",
        "main()·records[*].boxes",
        "function main records",
        """
        def main():
            records = []  # defines
            for x in loader:
                records.append(Record(x))  # feeds
        """,
        kind="array",
    ),
    one(
        "a handler's buffer behind a wrapper object",
        "main()·meter.values",
        "function main meter",
        """
        from meters import AverageMeter
        def main():
            meter = AverageMeter()  # defines
            for x in loader:
                meter.add(x)  # feeds
                meter.reset()
        """,
    ),
    one(
        "variable of the module's loop, typed by a factory",
        "__main__·trainer.log",
        "module __main__ trainer",
        """
        class Trainer:
            def __init__(self):
                self.log = []  # defines
            def step(self, x):
                self.log.append(x)  # feeds
        class Other:
            def __init__(self):
                self.log = []
            def step(self, x):
                self.log.append(x)
        def build():
            t = Trainer()
            return t
        trainer = build()
        for x in loader:
            trainer.step(x)
        """,
    ),
    one(
        "annotated parameter",
        "main()·state.log",
        "class State log",
        """
        class State:
            def __init__(self):
                self.log = []  # defines
        class Other:
            def __init__(self):
                self.log = []
        def record(state: "State", other: Other, x):
            state.log.append(x)  # feeds
            other.log.append(x)
        """,
    ),
    one(
        "async and with and try",
        "main()·out",
        "function main out",
        """
        async def main():
            out = []  # defines
            async for x in stream():
                with lock:
                    try:
                        out.append(x)  # feeds
                    finally:
                        pass
        """,
    ),
    one(
        "match statement",
        "main()·out",
        "function main out",
        """
        def main():
            out = []  # defines
            for x in loader:
                match x:
                    case [a, b]:
                        out.append(a)  # feeds
        """,
    ),
    Program(
        "buffers under names made at run time",
        "main()·net",
        ("function", "main", "net"),
        {
            "train.py": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("mask", torch.ones(3))

                def forward(self, x):
                    self.register_buffer(f"hidden_{self.calls}", x)  # feeds first
                    return x

            class Other(nn.Module):
                def forward(self, x):
                    self.register_buffer(f"hidden_{self.calls}", x)

            def main():
                net = Net()  # defines
                for x in loader:
                    net(x)
            """
        },
        kind="module",
        type="__main__.Net",
    ),
    Program(
        "modules that others give it under names made at run time",
        "main()·net",
        ("function", "main", "net"),
        {
            "train.py": """
            def main():
                net = nn.Module()  # defines
                net.add_module("head", nn.Linear(3, 3))
                for number in range(9):
                    net.add_module(f"layer_{number}", nn.Linear(3, 3))  # feeds
                    net.other(f"layer_{number}", nn.Linear(3, 3))
            """
        },
        kind="module",
        type="torch.nn.modules.module.Module",
    ),
    one(
        "exceptions kept",
        "main()·errors",
        "function main errors",
        """
        def main():
            errors = []  # defines
            for x in loader:
                try:
                    f(x)
                except ValueError as error:
                    errors.append(error)  # feeds
        """,
    ),
    one(
        "a variable that walks away from where it began",
        "main()·search.root",
        "class Search root",
        """
        class Search:
            def __init__(self, root):
                self.root = root  # defines

            def run(self):
                node = self.root
                while node.children:
                    node = node.best_child()
                return node

            def advance(self, move):
                self.root = self.root.children[move]  # feeds

        def main():
            search = Search(Node())
            for move in moves:
                search.run()
                search.advance(move)
        """,
        kind="object",
        type="__main__.Node",
    ),
    one(
        "a variable that is stored back",
        "main()·log.lines",
        "class Log lines",
        """
        class Log:
            def __init__(self):
                self.lines = ()  # defines

            def write(self, line):
                lines = self.lines
                lines = lines + (line,)  # feeds
                self.lines = lines

        def main():
            log = Log()
            for line in stream:
                log.write(line)
        """,
        kind="tuple",
    ),
    one(
        "a limiter of a library's that is entered",
        "call()·limiter._waiting",
        "function call limiter",
        """
        async def call(limiter, body):
            request.set(body)
            with patience():
                async with limiter:  # feeds
                    await answer(body)
        """,
        kind="dict",
    ),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_names_the_feeding_lines(program: Program) -> None:
    row = program.row()
    index = program.index()
    found = [index.location(line.file, line.line) for line in index.feeding(row.owner, row)]
    assert sorted(found) == sorted(program.marked("feeds"))
    assert found[:1] == (program.marked("first") or found[:1])


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p.marked("defines")], ids=lambda p: p.name
)
def test_names_the_definition(program: Program) -> None:
    row = program.row()
    assert program.index().defined_at(row.owner, row) == program.marked("defines")[0]


def held_by_library(program: Program, **more: object) -> list[str]:
    row = msgspec.structs.replace(program.row(), **more)
    index = program.index()
    return [index.location(line.file, line.line) for line in index.feeding(row.owner, row)]


def remedy_of(program: Program, **more: object) -> str:
    row, index = msgspec.structs.replace(program.row(), **more), program.index()
    feeding = index.feeding(row.owner, row)
    remedy = propose(
        CulpritContext(row, growth="across", unit="step", phase="", feeding=feeding, sources=index)
    )
    return remedy.title


def test_log_records_that_pile_up_are_fed_by_what_logs() -> None:
    program = one(
        "a handler's buffer",
        "__main__·handler.buffer",
        "module __main__ handler",
        """
        import logging, wandb
        log = logging.getLogger("train")
        handler = logging.handlers.MemoryHandler(1000)
        log.addHandler(handler)
        def main():
            for x in loader:
                wandb.log({"x": x})
                y = torch.log(x)
                log.debug("step %s", x)  # feeds
        """,
    )
    records = Content(type="logging.LogRecord", count=9, bytes=1 << 20)
    assert held_by_library(program, holds=[records]) == program.marked("feeds")
    assert held_by_library(program) == []
    assert "Log numbers" in remedy_of(program, holds=[records])
    assert "Log numbers" not in remedy_of(program)


def test_an_end_of_a_tee_is_to_be_dropped_when_it_has_been_read() -> None:
    program = one(
        "an end of a tee",
        "main()·ahead",
        "function main ahead",
        """
        def main():
            stream, ahead = itertools.tee(batches())
            first = next(ahead)
            for x in stream:  # feeds
                train(x)
        def other(stream):
            for x in stream:
                train(x)
        """,
    )
    assert held_by_library(program, type="itertools._tee", kind="other") == program.marked("feeds")
    assert "Drop ahead" in remedy_of(program, type="itertools._tee", kind="other", name="ahead")
    assert "tee" not in remedy_of(program)


def test_an_end_of_a_tee_that_an_object_keeps_is_fed_by_who_reads_the_other() -> None:
    program = one(
        "an end of a tee, kept by an object",
        "__main__·feed.look",
        "module __main__ feed",
        """
        class Feed:
            def __init__(self, source):
                self.look, self.stream = itertools.tee(source)
                self.first = [x for x in itertools.islice(self.look, 4)]
            def __next__(self):
                return next(self.stream)  # feeds
        class Other:
            def __next__(self):
                return next(self.stream)
        feed = Feed(batches())  # defines
        """,
    )
    assert held_by_library(program, type="itertools._tee", kind="other") == program.marked("feeds")


def test_warnings_that_pile_up_are_fed_by_what_warns() -> None:
    program = one(
        "the texts of warnings",
        "__main__·__warningregistry__",
        "module __main__ __warningregistry__",
        """
        import warnings
        def main():
            for x in loader:
                handler.warn_later(x)
                warnings.warn(f"{x} has no label", stacklevel=2)  # feeds
        """,
    )
    assert held_by_library(program) == program.marked("feeds")
    assert "Warn with the same text" in remedy_of(program)


def test_what_a_librarys_class_gathers_is_fed_by_the_calls_of_it() -> None:
    program = one(
        "a registry of finalizers",
        "weakref·finalize._registry",
        "module weakref finalize",
        """
        import weakref
        from weakref import finalize as at_end
        def main():
            for x in loader:
                weakref.finalize(model, flush, x)  # feeds
                at_end(model, flush, x)  # feeds
                weakref.ref(x)
                other.finalize(x)
        """,
        owner_file="",
    )
    assert held_by_library(program, root=RootKind.LIBRARY, user=False) == program.marked("feeds")
    assert "Register once" in remedy_of(program, root=RootKind.LIBRARY, user=False)
    assert "Register once" not in remedy_of(program)


@pytest.mark.parametrize(
    ("other", "is_found"), [("elsewhere.constructor(x)", True), ("copyreg.constructor(x)", False)]
)
def test_what_a_librarys_module_gathers_is_fed_by_its_only_function_that_is_called(
    other: str, is_found: bool
) -> None:
    program = one(
        "a table of a module",
        "copyreg·dispatch_table",
        "module copyreg dispatch_table",
        f"""
        import copyreg
        from copyreg import pickle
        def main():
            for x in loader:
                copyreg.pickle(kind, reduce)  # feeds
                pickle(kind, reduce)  # feeds
                {other}
        """,
        owner_file="",
    )
    fed = program.marked("feeds") if is_found else []
    assert held_by_library(program, root=RootKind.LIBRARY, user=False) == fed


def test_of_two_calls_into_a_library_the_one_called_like_the_container_comes_first() -> None:
    program = one(
        "predictions of a trainer",
        "main()·trainer.predict_loop._predictions[*]",
        "function main trainer",
        """
        def main():
            trainer = Trainer(max_epochs=2)  # defines
            trainer.fit(model, train_loader)  # feeds
            found = trainer.predict(model, loader)  # feeds first
        """,
    )
    feeding = program.index().feeding(program.row().owner, program.row(), "")
    assert [line.line for line in feeding] == [5, 4]


PER_KEY = """
    def main():
        pools = {{}}
        for step in range(9000):
            name = names[step % 3]
            if name not in pools:
                {made}  # makes
            {fed}  # fills
"""


@pytest.mark.parametrize(
    ("made", "fed"),
    [
        ("pools[name] = []", "pools[name].append(step)"),
        ("pools[name] = Pool(name)", "pools[name].items.append(step)"),
    ],
)
def test_what_has_no_more_items_is_fed_by_what_fills_them(made: str, fed: str) -> None:
    text = PER_KEY.format(made=made, fed=fed)
    program = one("pools", "main()·pools", "function main pools", text, kind="dict")
    row, index = program.row(), program.index()
    more_items = [line.text for line in index.feeding(row.owner, row)]
    larger_items = [line.text for line in index.feeding(row.owner, row, grows_inside=True)]
    assert more_items[0] == f"{made}  # makes"
    assert larger_items == [f"{fed}  # fills", f"{made}  # makes"]


def test_what_is_put_larger_in_its_place_comes_before_what_fills_others() -> None:
    text = """
    def main():
        sums = {"loss": 0.0, "log": []}
        for x in loader:
            sums["log"].append(1)
            sums["loss"] = sums["loss"] + model(x)
    """
    program = one("sums", "main()·sums", "function main sums", text, kind="dict")
    row, index = program.row(), program.index()
    found = [line.line for line in index.feeding(row.owner, row, grows_inside=True)]
    assert found == [6, 5]


def test_what_is_put_in_place_of_the_last_comes_after_what_makes_it_longer() -> None:
    text = """
    def main():
        journal = {}
        for step in range(9000):
            for name in names:
                entry = journal["blocks"][name]
                entry["shape"] = shape_of(name)
                entry["sketch"][step] = sketch_of(name)
    """
    program = one("journal", "main()·journal", "function main journal", text, kind="dict")
    row, index = program.row(), program.index()
    found = [line.line for line in index.feeding(row.owner, row, grows_inside=True)]
    assert found == [8, 7]


def test_what_is_taken_by_keys_from_something_inside_is_inside_too() -> None:
    text = """
    def main():
        journal = {}
        for step in range(9000):
            entry = journal[task]
            block = entry["blocks"][name]
            block["sketch"][step] = sketch_of(name)
            other = make(entry)
            other["sketch"][step] = 1
    """
    program = one("journal", "main()·journal", "function main journal", text, kind="dict")
    row, index = program.row(), program.index()
    assert [line.line for line in index.feeding(row.owner, row, grows_inside=True)] == [7]


LET_GO = "Let go of the objects before Collector.last"
LINKED = """
    class Rollout:
        def __init__(self, batch, prev=None):
            self.batch, self.prev = batch, prev

    class Collector:
        def __init__(self):
            self.last = None

        def collect(self, batch):
            rollout = {made}
            self.last = rollout
            return rollout

    collector = Collector()
    for batch in loader:
        collector.collect(batch)
    """


@pytest.mark.parametrize(
    ("made", "lines", "title"),
    [
        (
            "Rollout(batch, prev=self.last)",
            [11, 12],
            "Let go of the objects before Collector.last",
        ),
        ("Rollout(batch, self.last)", [11, 12], LET_GO),
        ("0.9 * self.last + batch", [12], ""),
        ("Rollout(batch)", [12], ""),
    ],
)
def test_an_object_that_refers_to_the_last_one_is_fed_where_it_is_made(made, lines, title) -> None:
    owner, text = "class Collector last", LINKED.format(made=made)
    path = "__main__·collector.last"
    program = one("last", path, owner, text, kind="object", person="Collector.last")
    row, index = program.row(), program.index()
    feeding = index.feeding(row.owner, row)
    remedy = propose(
        CulpritContext(row, growth="across", unit="step", phase="", feeding=feeding, sources=index)
    )
    assert [line.line for line in feeding] == lines
    assert (remedy.title == title) is bool(title)
