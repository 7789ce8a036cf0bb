"""Remedies that would break a program if they were offered there: each with what to say instead.

Every program here has a look-alike next to it in which the plain remedy is right and stays.
"""

from __future__ import annotations

import dataclasses
import textwrap

import pytest

from leakscope.analysis.remedies import propose
from leakscope.analysis.remedies.context import CulpritContext
from leakscope.analysis.source import SourceIndex
from leakscope.model.census import CensusRow, Content, Owner, RootKind
from leakscope.model.report import Remedy

MIB = 1 << 20


def held(kind: str, size: int = MIB, detail: str = "") -> Content:
    return Content(type=kind, count=9, bytes=size, detail=detail)


TENSOR = held("torch.Tensor", detail="float32 (8, 4) on cpu")


@dataclasses.dataclass(frozen=True)
class Kept:
    """A culprit at a path in a program: ``class Skipped.by_kind`` says whose variable it is."""

    text: str
    path: str
    owner: str
    kind: str = "list"
    type: str = ""
    unit: str = "step"
    growth: str = "across"
    graph_nodes: int = 0
    holds: tuple[Content, ...] = ()
    shrank: bool = False
    hits: int | None = None
    length: int = 90
    items_per_unit: float = 1.0
    inside: tuple[CensusRow, ...] = ()

    def remedy(self) -> Remedy:
        kind, _, name = self.owner.partition(" ")
        owner, _, variable = name.rpartition(".")
        row = CensusRow(
            path=self.path,
            name=name + self.path.partition(variable)[2],
            root=RootKind.LOCAL,
            owner=Owner(kind=kind, name=owner, variable=variable, file="/p/train.py"),
            type=self.type or self.kind,
            kind=self.kind,
            host_bytes=MIB,
            graph_nodes=self.graph_nodes,
            holds=list(self.holds),
            length=self.length,
            hits=self.hits,
        )
        sources = SourceIndex({"/p/train.py": textwrap.dedent(self.text)}, "/p")
        return propose(
            CulpritContext(
                row,
                growth=self.growth,
                unit=self.unit,
                phase="train",
                feeding=sources.feeding(row.owner, row),
                sources=sources,
                items_per_unit=self.items_per_unit,
                shrank=self.shrank,
                inside=self.inside,
            )
        )


def added(remedy: Remedy) -> list[str]:
    lines = (remedy.diff or "").splitlines()
    return [line[1:].strip() for line in lines if line.startswith("+") and line[:3] != "+++"]


SKIPPED = """
class AssignmentError(ValueError):
    pass

class Skipped:
    def __init__(self):
        self.by_kind = collections.defaultdict(list)

    def note(self, error):
        self.by_kind[type(error).__name__].append({stored})

    def summary(self):
        return ", ".join(f"{len(v)} of {k}" for k, v in self.by_kind.items())

def main():
    skipped = Skipped()
    for x in loader:
        try:
            step(x)
        except AssignmentError as error:
            skipped.note({given})
    print(skipped.summary())
"""


def skipped(stored: str = "error", given: str = "error", kind: str = "__main__.AssignmentError"):
    return Kept(
        SKIPPED.replace("{stored}", stored).replace("{given}", given),
        "main()·skipped.by_kind['AssignmentError']",
        "class Skipped.by_kind",
        graph_nodes=500,
        holds=(held(kind), held("frame", 20_000), held("int", 500)),
    ).remedy()


def test_an_exception_handed_to_who_keeps_it_is_kept_as_text() -> None:
    remedy = skipped()
    assert remedy.title.startswith("Keep the text of the errors in Skipped.by_kind")
    assert "keeps its traceback" in remedy.text
    assert added(remedy) == ["self.by_kind[type(error).__name__].append(repr(error))"]


def test_an_exception_in_a_tuple_is_kept_as_text() -> None:
    assert added(skipped(stored="(step, error)"))[0].endswith("append((step, repr(error)))")


@pytest.mark.parametrize("kind", ["__main__.AssignmentError", "KeyError", "torch.OutOfMemoryError"])
def test_exceptions_that_the_census_saw_are_reported_without_their_origin(kind: str) -> None:
    remedy = skipped(given="checked(x)", kind=kind)
    assert remedy.title.startswith("Keep the text of the errors")
    assert remedy.diff is None


def test_what_is_no_tensor_is_not_detached() -> None:
    remedy = skipped(given="checked(x)", kind="__main__.Outcome")
    assert "text of the errors" not in remedy.title
    assert remedy.diff is None


def test_tensors_handed_to_who_keeps_them_are_detached() -> None:
    remedy = skipped(given="checked(x)", kind="torch.Tensor")
    assert "error.detach()" in added(remedy)[0]


TRACES = """
def note(member, x, _traces={default}):
    {body}

def main():
    for x in loader:
        print(note(1, x))
"""


def traces(body: str, default: str = "{}", kind: str = "dict") -> Remedy:
    text = TRACES.replace("{default}", default).replace("{body}", body.replace("\n", "\n    "))
    return Kept(text, "__main__·note(_traces=)", "function note._traces", kind).remedy()


@pytest.mark.parametrize(
    "body",
    [
        "trace = _traces.setdefault(member, [])\ntrace.append(x)\nreturn sum(trace)",
        "_traces[x] = member\nreturn max(_traces.values())",
        "_traces[x] = _traces[member] + x",
        "_traces[member] += x",
        "_traces[x] = member\nif len(_traces) > 9:\n    raise StopIteration",
        "for key in _traces:\n    print(key)\n_traces[x] = member",
        "_traces[x] = member\nreturn len(_traces)",
    ],
)
def test_a_default_argument_that_is_read_across_calls_is_bounded(body: str) -> None:
    remedy = traces(body)
    assert remedy.title == "Bound what note remembers in _traces"
    assert "would lose that and change what the program computes" in remedy.text
    assert remedy.diff is None


@pytest.mark.parametrize(
    "body",
    [
        "_traces[x] = member",
        "_traces.setdefault(member, []).append(x)",
        "_traces[x] = member\nprint(_traces)",
    ],
)
def test_a_default_argument_that_is_only_written_is_recreated(body: str) -> None:
    remedy = traces(body)
    assert remedy.title == "Create _traces in each call of note"
    assert "if _traces is None:" in added(remedy)


def test_a_default_argument_handed_down_a_recursion_is_recreated() -> None:
    body = "_traces.append(x)\nfor part in x:\n    note(member, part, _traces)"
    assert added(traces(body, "[]", "list"))[0] == "def note(member, x, _traces=None):"


AVERAGE = """
class Centering:
    def __init__(self):
        self.mean = torch.zeros(64)

    def update(self, outputs):
        self.mean = {value}

class Training:
    def __init__(self):
        self.centering = Centering()

    def loss(self, x):
        outputs = self.teacher(x)
        target = {target}
        self.centering.update(outputs)
        return -(target * self.student(x)).mean()

def main():
    training = Training()
    for x in loader:
        loss = training.loss(x)
        loss.backward()
"""
EMA = "self.m * self.mean + (1 - self.m) * outputs.mean(0)"


def average(value: str = EMA, target: str = "f(outputs - self.centering.mean).detach()") -> Remedy:
    text = AVERAGE.replace("{value}", value).replace("{target}", target)
    path = "main()·training.centering.mean"
    return Kept(text, path, "class Centering.mean", "graph", graph_nodes=9000).remedy()


@pytest.mark.parametrize("value", [EMA, "0.9 * self.mean + outputs", "outputs + self.mean / 2"])
def test_an_average_carried_on_with_its_graph_is_detached(value: str) -> None:
    remedy = average(value)
    assert remedy.title == "Detach what is averaged into Centering.mean"
    assert added(remedy) == [f"self.mean = ({value}).detach()"]


def test_a_state_that_gradients_may_go_through_is_left_to_the_reader() -> None:
    remedy = average(target="f(outputs - self.centering.mean)")
    assert remedy.diff is None
    assert "detach it where a sequence ends" in remedy.text


def test_what_another_value_has_detached_still_carries_gradients() -> None:
    assert average(target="outputs.detach().sub(self.centering.mean)").diff is None


def test_a_detached_average_is_no_average_to_detach() -> None:
    assert "is averaged into" not in average(f"({EMA}).detach()").title


def test_a_graph_of_no_known_form_is_cut_rather_than_bounded() -> None:
    assert average("g(self)").title == "Cut the graph that Centering.mean carries"


WRITER = """
import queue
import threading

class Writer(threading.Thread):
    def __init__(self):
        self.inbox = queue.Queue()
        self.pictures = queue.Queue()

    def run(self):
        while True:
            self.handle(self.inbox.get())

    def handle(self, event):
        self.pictures.put(event)

    def send(self, event):
        self.inbox.put(event)

    def close(self):
        self.join()
        while not self.pictures.empty():
            self.pictures.get()

def main():
    writer = Writer()
    writer.start()
    for x in loader:
        writer.send(x)
    writer.close()
"""


def writer(variable: str, *, shrank: bool = False, text: str = WRITER) -> Remedy:
    path = f"main()·writer.{variable}"
    return Kept(text, path, f"class Writer.{variable}", "queue", shrank=shrank).remedy()


def test_a_queue_emptied_only_at_the_end_is_not_bounded() -> None:
    remedy = writer("pictures")
    assert remedy.title == "Drain Writer.pictures"
    assert "Nothing was seen to take items out while it is filled; train.py:23 does" in remedy.text
    assert "A maxsize would not help: putting would wait" in remedy.text


def test_a_queue_that_another_thread_empties_is_bounded() -> None:
    remedy = writer("inbox")
    assert remedy.title == "Bound Writer.inbox"
    assert "train.py:12 takes items out in another thread" in remedy.text
    assert "bound the queue with maxsize so that putting waits" in remedy.text


def test_a_queue_seen_shorter_that_the_main_thread_empties_is_bounded() -> None:
    assert "takes items out in another thread" in writer("pictures", shrank=True).text


def test_a_queue_of_one_thread_is_warned_of_waiting_for_itself() -> None:
    text = """
        def main():
            pending = queue.Queue()
            for x in loader:
                pending.put(x)
                if x > 0:
                    pending.get()
        """
    printed = Kept(text, "main()·pending", "function main.pending", "queue").remedy().text
    assert "take as many as are put. A maxsize makes putting wait, for ever where" in printed


def test_a_target_of_a_thread_empties_the_queue_next_to_it() -> None:
    text = """
        def drain(source):
            while True:
                source.get()

        def main():
            pending = queue.Queue()
            threading.Thread(target=drain, args=(pending,)).start()
            for x in loader:
                pending.put(x)
        """
    printed = Kept(text, "main()·pending", "function main.pending", "queue").remedy().text
    assert "train.py:4 takes items out in another thread" in printed


BUS = """
class Bus:
    def __init__(self):
        self.listeners = {}

    def on(self, event, listener):
        self.listeners.setdefault(event, []).append(listener)

    def emit(self, event):
        for listener in {iterated}:
            {act}

def main():
    bus = Bus()
    for x in loader:
        bus.on("end", functools.partial(show, x))
    bus.emit("end")
"""


def bus(
    iterated: str = "self.listeners.get(event, [])",
    act: str = "listener()",
    kind: str = "functools.partial",
) -> Remedy:
    text = BUS.replace("{iterated}", iterated).replace("{act}", act)
    holds = (held(kind),)
    return Kept(text, "main()·bus.listeners['end']", "class Bus.listeners", holds=holds).remedy()


@pytest.mark.parametrize(
    "iterated",
    ["self.listeners.get(event, [])", "self.listeners[event]", "list(self.listeners[event])"],
)
def test_listeners_are_subscribed_once_rather_than_dropped(iterated: str) -> None:
    remedy = bus(iterated)
    assert remedy.title == "Subscribe to Bus.listeners['end'] once, or unsubscribe"
    assert "train.py:10 calls all of them. train.py:16 subscribes one more each time" in remedy.text
    assert remedy.diff is None


def test_what_a_loop_reads_by_get_counts_as_read() -> None:
    remedy = bus(act="print(listener)", kind="torch.Tensor")
    assert "nothing reads it" not in remedy.text
    assert remedy.diff is None


def test_a_list_that_nothing_reads_may_still_be_cut() -> None:
    text = """
        class Log:
            def __init__(self):
                self.kept = []

            def note(self, x):
                self.kept.append(x)

        def main():
            log = Log()
            for x in loader:
                log.note(x)
        """
    remedy = Kept(text, "main()·log.kept", "class Log.kept", holds=(TENSOR,)).remedy()
    assert "nothing reads it" in remedy.text
    assert added(remedy) == ["del self.kept[:-10]"]


WEAK = """
class Propagation:
    def __init__(self, graph):
        self.{attribute}

class Plain:
    pass

_kept = weakref.WeakKeyDictionary()

def propagation_of(graph):
    found = _kept.get(graph)
    if found is None:
        found = _kept[graph] = {value}
    return found

for graph in loader:
    propagation_of(graph)
"""


def weak(attribute: str, value: str = "Propagation(graph)") -> Remedy:
    text = WEAK.replace("{attribute}", attribute).replace("{value}", value)
    kind = "weakref.WeakKeyDictionary"
    return Kept(text, "__main__·_kept", "module __main__._kept", "object", kind).remedy()


def test_a_value_that_keeps_its_key_is_reported() -> None:
    remedy = weak("graph = graph")
    assert remedy.title == "Store in __main__._kept what doesn't refer to its key"
    assert "`Propagation(graph)` keeps `graph` at train.py:4, so no entry ever goes" in remedy.text
    assert "`(graph, 1)` holds `graph`" in weak("graph = 1", "(graph, 1)").text
    assert "the lambda refers to `graph`" in weak("graph = 1", "lambda: graph.sum()").text


@pytest.mark.parametrize(("attribute", "value"), [("size = len(graph)", "Propagation(graph)")])
def test_a_value_that_may_keep_its_key_is_only_suspected(attribute: str, value: str) -> None:
    text = weak(attribute, value).text
    assert "so no entry ever goes" not in text
    assert "Either the keys are kept elsewhere, or a value refers to its key" in text


MIXIN = """
class Mixin:
    masks = []

    def observe(self, x):
        self.masks.append(x)

    def score(self, last):
        return sum(self.masks[-last:])

class Trainer(Mixin):
    def validate(self):
        for x in loader:
            self.observe(x)
        return self.score(len(loader))

{main}
"""


def mixin(main: str) -> Remedy:
    path = "__main__·Mixin.masks"
    text = textwrap.dedent(MIXIN).replace("{main}", main)
    return Kept(text, path, "class Mixin.masks", unit="validation").remedy()


def test_the_container_of_a_class_with_one_instance_is_emptied_each_round() -> None:
    remedy = mixin("trainer = Trainer()\nfor epoch in range(9):\n    trainer.validate()")
    assert remedy.title == "Empty Mixin.masks after each validation"
    assert "train.py:17 makes the only instance" in remedy.text


def test_a_class_with_an_instance_for_each_round_gives_each_its_own_container() -> None:
    remedy = mixin("for epoch in range(9):\n    Trainer().validate()")
    assert remedy.title == "Give each Mixin its own masks"


GALLERY = """
class Gallery:
    def __init__(self):
        self.pages = {}

    def add(self, epoch, batch, x):
        for part in x:
            self.pages[epoch, batch, part] = x

    def show(self, epoch, batch):
        {read}

def main():
    gallery = Gallery()
    for epoch in range(9):
        gallery.add(epoch, 1, x)
"""


@pytest.mark.parametrize(
    ("read", "mixes"),
    [
        ("return self.pages[epoch, batch, 0]", False),
        ("return sum(self.pages.values())", True),
        ("for page in self.pages:\n            print(page)", True),
    ],
)
def test_rounds_are_reported_to_mix_where_they_are_read_together(read: str, mixes: bool) -> None:
    text = GALLERY.replace("{read}", read)
    row = Kept(text, "main()·gallery.pages", "class Gallery.pages", "dict", unit="validation")
    remedy = row.remedy()
    assert remedy.title == "Empty Gallery.pages in each validation"
    assert ("mixes them" in remedy.text) is mixes


@pytest.mark.parametrize("unit", ["minute", "request", "task"])
def test_what_a_service_gathers_is_emptied_in_no_round(unit: str) -> None:
    text = GALLERY.replace("{read}", "return sum(self.pages.values())")
    row = Kept(text, "main()·gallery.pages", "class Gallery.pages", "dict", unit=unit)
    assert row.remedy().title == "Bound or empty Gallery.pages"


SESSIONS = """
class Service:
    def __init__(self):
        self.sessions = {}

    def handle(self, peer, frames):
        self.sessions[peer] = session = []
        for frame in frames:
            if not frame:
                {end}
                break
            session.append(bytes(frame))

def main():
    service = Service()
    for peer, frames in enumerate(arrivals):
        service.handle(peer, frames)
"""


def sessions(end: str) -> Remedy:
    text = SESSIONS.replace("{end}", end)
    holds = (held("list"),)
    path = "main()·service.sessions"
    return Kept(text, path, "class Service.sessions", "dict", unit="minute", holds=holds).remedy()


@pytest.mark.parametrize("end", ["del self.sessions[peer]", "self.sessions.pop(peer)"])
def test_of_entries_that_are_taken_out_on_one_way_alone_that_line_is_named(end: str) -> None:
    remedy = sessions(end)
    assert remedy.title == "Remove every entry of Service.sessions that is done with"
    assert "train.py:10 takes entries out, and fewer than come" in remedy.text
    assert "finally:" in remedy.text


def test_where_nothing_is_taken_out_no_line_is_named() -> None:
    assert "takes entries out" not in sessions("print(peer)").text


REQUEST = """
import functools

class Request:
    @functools.lru_cache(maxsize=None)
    def fields(self, sep):
        return self.body.count(sep)

def main():
    for body in arrivals:
        Request(body).fields(b",")
"""


@pytest.mark.parametrize(("hits", "title"), [(0, "Take the cache off fields"), (7, "Bound the")])
def test_a_cache_that_has_answered_no_call_of_a_method_is_taken_off(hits: int, title: str) -> None:
    path = "__main__·Request.fields"
    remedy = Kept(REQUEST, path, "class Request fields", "lru_cache", hits=hits).remedy()
    assert remedy.title.startswith(title)
    assert bool(added(remedy)) is (hits > 0)
    assert remedy.diff is not None
    assert "-    @functools.lru_cache(maxsize=None)" in remedy.diff


LOSSES = """
class History:
    def __init__(self):
        self.losses = []

    def log(self, loss):
        self.losses.append(loss * 1.0)

def main():
    history = History()
    for x in loader:
        history.log(step(x))
    print(sum(float(v.detach()) for v in history.losses))
"""


@pytest.mark.parametrize(
    ("shape", "title"),
    [("()", "Store .item() of the numbers"), ("(64, 8)", "Store .detach() of the tensors")],
)
def test_tensors_of_a_single_number_are_to_be_kept_as_numbers(shape: str, title: str) -> None:
    holds = (held("torch.Tensor", detail=f"float32 {shape} on cpu"),)
    path = "main()·history.losses"
    kept = Kept(LOSSES, path, "class History.losses", graph_nodes=400, holds=holds)
    assert kept.remedy().title.startswith(title)


SCORES = """
class Metric:
    def __init__(self):
        self.state = {c: {"scores": [], "labels": []} for c in range(8)}

    def update(self, scores):
        for c in range(8):
            self.state[c]["scores"].append(scores[c])

def main():
    metric = Metric()
    for epoch in range(9):
        for x in loader:
            metric.update(x)
        print(np.mean(metric.state[0]["scores"]))
"""


@pytest.mark.parametrize("items", [0.0, 8.0])
def test_of_a_dict_of_lists_the_lists_are_to_be_emptied(items: float) -> None:
    path = "main()·metric.state"
    inner = CensusRow(
        path=f"{path}[*]['scores']",
        name="Metric.state[*]['scores']",
        root=RootKind.LOCAL,
        owner=Owner(kind="class", name="Metric", variable="state", file="/p/train.py"),
        type="list",
        kind="list",
        host_bytes=MIB,
        count=8,
        length=800,
    )
    remedy = Kept(
        SCORES, path, "class Metric.state", "dict", unit="epoch", length=8,
        items_per_unit=items, inside=(inner,),
    ).remedy()  # fmt: skip
    assert remedy.title.startswith("Empty each Metric.state[*]['scores']") is (items == 0.0)


THREADS = """
import threading

class Uploader:
    def __init__(self):
        self.workers = []

    def upload(self, data):
        thread = threading.Thread(target=send, args=(data,))
        self.workers.append(thread)
        thread.start()

def main():
    uploader = Uploader()
    for data in arrivals:
        uploader.upload(data)
    for worker in uploader.workers:
        worker.join()
"""


@pytest.mark.parametrize("kind", ["threading.Thread", "__main__.Job"])
def test_threads_that_have_ended_are_to_be_dropped(kind: str) -> None:
    path = "main()·uploader.workers"
    kept = Kept(THREADS, path, "class Uploader.workers", unit="minute", holds=(held(kind),))
    assert ("is_alive()" in kept.remedy().text) is (kind == "threading.Thread")


CONTEXT = """
class ClampedExp(torch.autograd.Function):
    seen = []

    @staticmethod
    def forward(ctx, x, limit):
        ClampedExp.seen.append({kept})
        return x.clamp(max=limit).exp()

def main():
    for x in loader:
        ClampedExp.apply(x, 4.0).sum().backward()
"""


@pytest.mark.parametrize(("kept", "is_context"), [("ctx", True), ("x", False)])
def test_a_kept_context_is_no_tensor_to_detach(kept: str, is_context: bool) -> None:
    text = CONTEXT.replace("{kept}", kept)
    path = "__main__·ClampedExp.seen"
    remedy = Kept(text, path, "class ClampedExp.seen", graph_nodes=4000).remedy()
    assert (remedy.title == "Don't keep `ctx` in ClampedExp.seen") is is_context
    assert not (is_context and added(remedy))
