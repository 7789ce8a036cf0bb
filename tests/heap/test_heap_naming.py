from __future__ import annotations

from pathlib import Path

import pytest
from heap_programs import RunProgram

from leakscope.model.census import RootKind

ITEMS = 5
ITEM_BYTES = 20_000
"""Every program gathers five byte strings of this size under the name that is expected."""

HEAD = """
def item():
    return bytes(20_000)
"""

CASES = {
    "global list": (
        "cache = [item() for _ in range(5)]\nlook()",
        "cache",
        "__main__·cache",
        RootKind.GLOBAL,
    ),
    "local list of a running function": (
        """
def train():
    history = [item() for _ in range(5)]
    look()
train()
""",
        "train.history",
        "train()·history",
        RootKind.LOCAL,
    ),
    "local list of a method": (
        """
class Trainer:
    def validate(self):
        preds = [item() for _ in range(5)]
        look()
Trainer().validate()
""",
        "Trainer.validate.preds",
        "Trainer.validate()·preds",
        RootKind.LOCAL,
    ),
    "item that a variable of a loop names too": (
        """
def main():
    journal = {"a": [], "b": [item() for _ in range(5)]}
    for task in journal:
        entry = journal[task]
    look()
main()
""",
        "main.journal['b']",
        "main()·journal['b']",
        RootKind.LOCAL,
    ),
    "item that a global of a loop names too": (
        """
journal = {"a": [], "b": [item() for _ in range(5)]}
for task in journal:
    entry = journal[task]
look()
""",
        "journal['b']",
        "__main__·journal['b']",
        RootKind.GLOBAL,
    ),
    "list that a loop alone makes": (
        """
def main():
    for fold in range(2):
        history = [item() for _ in range(5)]
    look()
main()
""",
        "main.history",
        "main()·history",
        RootKind.LOCAL,
    ),
    "attribute of an instance": (
        """
class Trainer:
    def __init__(self):
        self.history = [item() for _ in range(5)]
def main():
    trainer = Trainer()
    look()
main()
""",
        "Trainer.history",
        "main()·trainer.history",
        RootKind.LOCAL,
    ),
    "what a method is bound to, and lies deeper too": (
        """
class Model:
    def __init__(self):
        self.history = [item() for _ in range(5)]
    def generate(self):
        pass
class Tuner:
    def __init__(self, model):
        self.model = model
class Wrapper:
    def __init__(self, model):
        self.generate = model.generate
        self.base = Tuner(model)
def main():
    wrapper = Wrapper(Model())
    look()
main()
""",
        "Model.history",
        "main()·wrapper.base.model.history",
        RootKind.LOCAL,
    ),
    "slot of an instance": (
        """
class Trainer:
    __slots__ = ("history",)
    def __init__(self):
        self.history = [item() for _ in range(5)]
trainer = Trainer()
look()
""",
        "Trainer.history",
        "__main__·trainer.history",
        RootKind.GLOBAL,
    ),
    "attribute of a dataclass": (
        """
from dataclasses import dataclass, field
@dataclass
class State:
    losses: list = field(default_factory=list)
state = State()
state.losses += [item() for _ in range(5)]
look()
""",
        "State.losses",
        "__main__·state.losses",
        RootKind.GLOBAL,
    ),
    "nested records": (
        """
def train():
    history = {"train": {"loss": [item() for _ in range(5)]}, "val": {"loss": []}}
    look()
train()
""",
        "train.history['train']['loss']",
        "train()·history['train']['loss']",
        RootKind.LOCAL,
    ),
    "class attribute": (
        """
class Config:
    cache = []
Config.cache += [item() for _ in range(5)]
look()
""",
        "Config.cache",
        "__main__·Config.cache",
        RootKind.CLASS_ATTRIBUTE,
    ),
    "class attribute of a nested class": (
        """
class Trainer:
    class Options:
        cache = []
Trainer.Options.cache += [item() for _ in range(5)]
look()
""",
        "Trainer.Options.cache",
        "__main__·Trainer.Options.cache",
        RootKind.CLASS_ATTRIBUTE,
    ),
    "default argument": (
        """
def collect(value, out=[]):
    out.append(value)
for _ in range(5):
    collect(item())
look()
""",
        "collect.out",
        "__main__·collect(out=)",
        RootKind.GLOBAL,
    ),
    "keyword-only default argument": (
        """
def collect(value, *, out=[]):
    out.append(value)
for _ in range(5):
    collect(item())
look()
""",
        "collect.out",
        "__main__·collect(out=)",
        RootKind.GLOBAL,
    ),
    "closure": (
        """
def make_logger():
    records = []
    def log(value):
        records.append(value)
    return log
log = make_logger()
for _ in range(5):
    log(item())
look()
""",
        "make_logger.records",
        "__main__·log⟨records⟩",
        RootKind.GLOBAL,
    ),
    "closure of a decorator": (
        """
import functools
def recorded(function):
    calls = []
    @functools.wraps(function)
    def wrapper(*args):
        calls.append(args[0])
        return function(*args)
    return wrapper
@recorded
def step(value):
    return None
for _ in range(5):
    step(item())
look()
""",
        "recorded.calls",
        "__main__·step⟨calls⟩",
        RootKind.GLOBAL,
    ),
    "attribute of a function": (
        """
def step():
    pass
step.seen = [item() for _ in range(5)]
look()
""",
        "step.seen",
        "__main__·step.seen",
        RootKind.GLOBAL,
    ),
    "queue": (
        """
import queue
class Trainer:
    def __init__(self):
        self.results = queue.Queue()
trainer = Trainer()
for _ in range(5):
    trainer.results.put(item())
look()
""",
        "Trainer.results",
        "__main__·trainer.results",
        RootKind.GLOBAL,
    ),
    "simple queue": (
        """
import queue
results = queue.SimpleQueue()
for _ in range(5):
    results.put(item())
look()
""",
        "results",
        "__main__·results",
        RootKind.GLOBAL,
    ),
    "deque": (
        """
from collections import deque
ring = deque((item() for _ in range(9)), maxlen=5)
look()
""",
        "ring",
        "__main__·ring",
        RootKind.GLOBAL,
    ),
    "ordered dict": (
        """
from collections import OrderedDict
frames = OrderedDict((i, item()) for i in range(5))
look()
""",
        "frames",
        "__main__·frames",
        RootKind.GLOBAL,
    ),
    "default dict": (
        """
from collections import defaultdict
by_class = defaultdict(list)
for _ in range(5):
    by_class["person"].append(item())
look()
""",
        "by_class['person']",
        "__main__·by_class['person']",
        RootKind.GLOBAL,
    ),
    "user dict": (
        """
from collections import UserDict
registry = UserDict()
for i in range(5):
    registry[i] = item()
look()
""",
        "registry",
        "__main__·registry",
        RootKind.GLOBAL,
    ),
    "set": (
        """
seen = {item() + bytes([i]) for i in range(5)}
look()
""",
        "seen",
        "__main__·seen",
        RootKind.GLOBAL,
    ),
    "thread-local": (
        """
import threading
scratch = threading.local()
scratch.buffers = [item() for _ in range(5)]
look()
""",
        "scratch.buffers",
        "__main__·scratch.buffers",
        RootKind.THREAD_LOCAL,
    ),
    "context variable": (
        """
import contextvars
trace = contextvars.ContextVar("another name")
unset = contextvars.ContextVar("unset", default=[item()])
trace.set([])
def main():
    for _ in range(5):
        trace.get().append(item())
    look()
main()
""",
        "trace",
        "__main__·trace[*]",
        RootKind.GLOBAL,
    ),
    "context variable of the main task, from a thread without": (
        """
import asyncio, contextvars
trace = contextvars.ContextVar("trace")
async def main():
    trace.set([item() for _ in range(5)])
    await asyncio.get_running_loop().run_in_executor(None, look)
asyncio.run(main())
""",
        "trace",
        "__main__·trace[*]",
        RootKind.GLOBAL,
    ),
    "lru_cache on a function": (
        """
import functools
@functools.lru_cache(maxsize=8)
def load_frame(index):
    return item()
for i in range(5):
    load_frame(i)
look()
""",
        "load_frame",
        "__main__·load_frame",
        RootKind.GLOBAL,
    ),
    "lru_cache on a method": (
        """
import functools
class Dataset:
    @functools.lru_cache(maxsize=None)
    def load(self, index):
        return item()
dataset = Dataset()
for i in range(5):
    dataset.load(i)
look()
""",
        "Dataset.load",
        "__main__·Dataset.load",
        RootKind.CLASS_ATTRIBUTE,
    ),
    "local of a suspended generator": (
        """
def read():
    window = []
    while True:
        window.append(item())
        yield len(window)
def main():
    reader = read()
    for _ in range(5):
        next(reader)
    look()
main()
""",
        "read.window",
        "main()·reader.window",
        RootKind.GENERATOR,
    ),
    "local of a function in another thread": (
        """
import threading
def work(ready, done):
    held = [item() for _ in range(5)]
    ready.set()
    done.wait()
ready, done = threading.Event(), threading.Event()
thread = threading.Thread(target=work, args=(ready, done))
thread.start()
ready.wait()
look()
done.set()
thread.join()
""",
        "work.held",
        "work()·held",
        RootKind.LOCAL,
    ),
    "variable of a running closure": (
        """
def main():
    records = []
    def step():
        records.append(item())
    for _ in range(5):
        step()
    look()
main()
""",
        "main.records",
        "main()·records",
        RootKind.LOCAL,
    ),
    "argument of a partial": (
        """
import functools
job = functools.partial(print, [item() for _ in range(5)])
look()
""",
        "job.args[0]",
        "__main__·job.args[0]",
        RootKind.GLOBAL,
    ),
    "instance behind a bound method": (
        """
class Meter:
    def __init__(self):
        self.values = [item() for _ in range(5)]
    def update(self):
        pass
def main():
    callbacks = [Meter().update]
    look()
main()
""",
        "Meter.values",
        "main()·callbacks[*].values",
        RootKind.LOCAL,
    ),
    "instance of a class in a function": (
        """
def main():
    class Trainer:
        def __init__(self):
            self.history = [item() for _ in range(5)]
    trainer = Trainer()
    look()
main()
""",
        "Trainer.history",
        "main()·trainer.history",
        RootKind.LOCAL,
    ),
    "linked chain": (
        """
class Node:
    def __init__(self, previous):
        self.previous = previous
        self.payload = item()
node = None
for _ in range(5):
    node = Node(node)
look()
""",
        "Node.previous",
        "__main__·node.previous",
        RootKind.GLOBAL,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_container_is_named_as_a_person_would(case: str, run_program: RunProgram) -> None:
    source, name, path, root = CASES[case]
    row = run_program(HEAD + source).row(name)
    assert row.path == path
    assert row.root is root
    assert row.user
    items = ITEMS - 1 if case == "linked chain" else ITEMS
    assert row.host_bytes == pytest.approx(items * (ITEM_BYTES + 33), rel=0.06)


def test_elements_keep_their_steps(run_program: RunProgram) -> None:
    taken = run_program(
        HEAD
        + """
class Trainer:
    def __init__(self):
        self.history = []
trainer = Trainer()
for _ in range(5):
    trainer.history.append({"pred": item(), "label": 1})
look()
"""
    )
    row = taken.row("Trainer.history[*]['pred']")
    assert row.path == "__main__·trainer.history[*]['pred']"
    assert row.parent == "__main__·trainer.history[*]"
    assert row.count == ITEMS
    assert taken.at(row.parent).parent == "__main__·trainer.history"


def test_what_several_names_keep_alive_lies_below_the_first(run_program: RunProgram) -> None:
    taken = run_program(
        HEAD
        + """
class Connector:
    pass
class Selector:
    pass
class Model:
    def __init__(self):
        self.outputs = [item() for _ in range(5)]
class Trainer:
    def __init__(self, model):
        self.connector, self.selector = Connector(), Selector()
        self.connector.model = self.selector.model = model
trainer = Trainer(Model())
look()
"""
    )
    path = "__main__·trainer.connector.model.outputs"
    above = [path]
    while taken.at(above[-1]).parent:
        above.append(taken.at(above[-1]).parent)
    assert above[1:3] == ["__main__·trainer.connector.model", "__main__·trainer.connector"]


def test_fields_of_named_tuples_are_reported(run_program: RunProgram) -> None:
    taken = run_program(
        HEAD
        + """
from typing import NamedTuple
class Pair(NamedTuple):
    image: bytes
    target: bytes
pairs = [Pair(item(), item()) for _ in range(5)]
look()
"""
    )
    assert taken.row("pairs[*].image").count == ITEMS
    assert taken.row("pairs[*].target").path == "__main__·pairs[*].target"


def test_items_of_short_tuples_are_distinguished(run_program: RunProgram) -> None:
    taken = run_program(HEAD + "pairs = [(item(), item()) for _ in range(5)]\nlook()")
    assert {"pairs[*][0]", "pairs[*][1]"} <= taken.names()


@pytest.mark.parametrize(
    "keys", ["range(5)", "[f'epoch_{i}' for i in range(5)]", "[(i, 0) for i in range(5)]"]
)
def test_keys_that_vary_are_folded(keys: str, run_program: RunProgram) -> None:
    taken = run_program(
        HEAD + f"by_key = {{}}\nfor key in {keys}:\n    by_key[key] = [item()]\n    look()"
    )
    first, last = taken.row("by_key[*]", census=0), taken.row("by_key[*]")
    assert (first.path, first.count) == ("__main__·by_key[*]", 1)
    assert (last.path, last.count) == ("__main__·by_key[*]", ITEMS)


def test_the_keys_of_a_large_dict_are_folded(run_program: RunProgram) -> None:
    taken = run_program(
        HEAD
        + """
from itertools import product
words = {"".join(pair): item() for pair in product("abcdef", repeat=2)}
look()
"""
    )
    assert taken.row("words[*]").count == 36


def test_what_is_held_by_keys_is_reported_as_such(run_program: RunProgram) -> None:
    taken = run_program(HEAD + "seen = {item() + bytes([i]): i for i in range(5)}\nlook()")
    assert taken.row("seen.keys()[*]").count == ITEMS


def test_of_two_names_the_lasting_one_is_used(run_program: RunProgram) -> None:
    taken = run_program(
        HEAD
        + """
class Trainer:
    def __init__(self):
        self.history = []
    def validate(self):
        alias = self.history
        alias.append(item())
        look()
def main():
    trainer = Trainer()
    for _ in range(5):
        trainer.validate()
    look()
main()
"""
    )
    running, outside = taken.row("Trainer.history", census=-2), taken.row("Trainer.history")
    assert running.path == outside.path == "main()·trainer.history"
    assert running.host_bytes == outside.host_bytes
    assert not any("alias" in name for name in taken.names(-2))


def test_a_global_is_not_renamed_by_functions_that_refer_to_it(run_program: RunProgram) -> None:
    taken = run_program(
        HEAD
        + """
cache = [item() for _ in range(5)]
def train(cache):
    look()
train(cache)
"""
    )
    assert taken.row("cache").path == "__main__·cache"


def test_the_last_instance_on_the_way_gives_the_name(run_program: RunProgram) -> None:
    taken = run_program(
        HEAD
        + """
class Meter:
    def __init__(self):
        self.values = [item() for _ in range(5)]
class Trainer:
    def __init__(self):
        self.meters = {"loss": Meter()}
trainer = Trainer()
look()
"""
    )
    assert taken.row("Meter.values").path == "__main__·trainer.meters['loss'].values"


@pytest.mark.parametrize(
    ("register", "kept"),
    [
        ("register_hook", "_backward_hooks"),
        ("register_post_accumulate_grad_hook", "_post_accumulate_grad_hooks"),
    ],
)
def test_a_tensors_hooks_have_their_name(run_program: RunProgram, register: str, kept: str) -> None:
    pytest.importorskip("torch")
    taken = run_program(
        HEAD
        + f"""
import torch
from functools import partial
weight = torch.nn.Parameter(torch.rand(3))
for _ in range(5):
    weight.{register}(partial(print, item()))
look()
"""
    )
    assert taken.row(f"weight.{kept}").kind == "dict"


def test_globals_of_the_users_modules_carry_the_modules_name(
    run_program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "frames_of_mine.py").write_text("CACHE = [bytes(20_000) for _ in range(5)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    row = run_program("import frames_of_mine\nlook()").row("frames_of_mine.CACHE")
    assert row.path == "frames_of_mine·CACHE"
    assert row.owner is not None
    assert row.owner.file == str(tmp_path / "frames_of_mine.py")


def test_a_handler_of_a_signal_names_what_it_keeps(run_program: RunProgram) -> None:
    program = (
        HEAD
        + """
import signal
def save_at(items):
    def save(number, frame):
        return items
    signal.signal(signal.SIGUSR2, save)
save_at([item() for _ in range(5)])
look()
signal.signal(signal.SIGUSR2, signal.SIG_DFL)
"""
    )
    row = run_program(program).row("signal.getsignal(SIGUSR2)")
    assert (row.root, row.type) == (RootKind.LIBRARY, "function")
    assert row.host_bytes > ITEMS * ITEM_BYTES


def test_a_read_only_view_of_a_dict_is_as_long_as_the_dict(run_program: RunProgram) -> None:
    program = (
        HEAD
        + """
import types
view = types.MappingProxyType({f"{number}{'x' * 100}": item() for number in range(5)})
look()
"""
    )
    assert run_program(program).row("view").length == ITEMS


def test_long_chains_are_one_row(run_program: RunProgram) -> None:
    taken = run_program(
        HEAD
        + """
class Node:
    def __init__(self, following):
        self.following = following
        self.payload = item()
chain = None
for _ in range(30):
    chain = Node(chain)
look()
"""
    )
    row = taken.row("Node.following")
    assert row.host_bytes == pytest.approx(29 * (ITEM_BYTES + 33), rel=0.03)
    assert row.count == 29


def test_names_are_the_same_in_every_run(run_program: RunProgram) -> None:
    source = HEAD + CASES["nested records"][0]
    first, second = run_program(source), run_program(source)
    assert [row.path for row in first.last.rows] == [row.path for row in second.last.rows]


@pytest.mark.parametrize("case", CASES)
def test_the_reference_gives_the_same_names(
    case: str, run_program: RunProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = run_program(HEAD + CASES[case][0]).last
    monkeypatch.setattr("leakscope.heap.graph._native", None)
    reference = run_program(HEAD + CASES[case][0]).last
    assert [row.path for row in native.rows] == [row.path for row in reference.rows]
    assert reference.walker == "reference"
