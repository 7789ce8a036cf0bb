"""Events are counted where libraries pass through, which are left as they were found."""

from __future__ import annotations

import inspect
import io
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from fake_session import FakeSession
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import leakscope
from leakscope.capture import events as subject
from leakscope.capture.events import PASSAGES, EventCounts
from leakscope.model.boundary import BoundaryKind, Event
from leakscope.model.record import BoundaryRecord, CompiledFunction
from leakscope.recording import open_run

LOG = logging.getLogger("leakscope-tests.events")


@pytest.fixture
def counts() -> Iterator[EventCounts]:
    counts = EventCounts()
    counts.install()
    yield counts
    counts.uninstall()


def save() -> None:
    torch.save({"weight": torch.ones(2)}, io.BytesIO())


def counted(counts: EventCounts, *events: Event) -> list[int]:
    seen = counts.changed()
    return [seen.get(event.value, 0) for event in events]


def test_what_is_saved_with_no_boundary_between_is_one_save(counts: EventCounts) -> None:
    for place in (1, 2, 3):
        counts.place = place
        save()
        save()
    assert counted(counts, Event.SAVE, Event.SAVED_FILE) == [3, 6]


def test_files_of_safetensors_are_saves(counts: EventCounts, tmp_path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({"weight": torch.ones(2)}, tmp_path / "model.safetensors")
    assert counted(counts, Event.SAVE) == [1]


@pytest.mark.filterwarnings("ignore")
def test_a_distributed_checkpoint_is_one_save_whatever_it_writes(
    counts: EventCounts, tmp_path
) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    state = {"model": {f"part{n}": torch.ones(2) for n in range(4)}, "notes": {"epoch": 1}}
    dcp.save(state, checkpoint_id=tmp_path / "plain")
    counts.place += 1
    dcp.async_save(state, checkpoint_id=tmp_path / "later").result()
    dcp.load(state, checkpoint_id=tmp_path / "plain")
    wanted = (Event.SAVE, Event.SAVED_FILE, Event.ASYNC_SAVE)
    assert counted(counts, *wanted) == [2, 2, 1]


def test_loads_are_counted(counts: EventCounts) -> None:
    file = io.BytesIO()
    torch.save(1, file)
    file.seek(0)
    assert torch.load(file) == 1
    assert counted(counts, Event.LOAD) == [1]


def test_records_that_pass_the_level_are_logs_and_errors_among_them(counts: EventCounts) -> None:
    LOG.setLevel("INFO")
    LOG.debug("not passed")
    LOG.info("passed")
    LOG.error("an error")
    try:
        raise ValueError
    except ValueError:
        LOG.info("with an exception", exc_info=True)
    assert counted(counts, Event.LOG, Event.LOGGED_ERROR) == [3, 2]


def test_a_figure_is_a_figure_and_the_image_inside_none(counts: EventCounts) -> None:
    from matplotlib.figure import Figure

    Figure().savefig(io.BytesIO())
    assert counted(counts, Event.FIGURE, Event.IMAGE) == [1, 0]


def test_an_image_is_counted(counts: EventCounts) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (2, 2)).save(io.BytesIO(), format="png")
    assert counted(counts, Event.IMAGE) == [1]


def test_optimizers_schedulers_and_iterators_are_counted_as_they_are_made(
    counts: EventCounts,
) -> None:
    optimizer = torch.optim.Adam(nn.Linear(2, 2).parameters())
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    loader = DataLoader(TensorDataset(torch.ones(2)))
    assert len(list(loader)) + len(list(loader)) == 4
    wanted = (Event.OPTIMIZER, Event.SCHEDULER, Event.LOADER_ITERATOR)
    assert counted(counts, *wanted) == [1, 2, 2]


class Ragged(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> object:
        text = torch.ones(2 + index // 2)
        return {"dict": {"text": text, "label": index}, "tuple": (text, index), "text": "a"}.get(
            self.kind, text
        )


@pytest.mark.parametrize(
    ("kind", "shapes"), [("dict", 3), ("tuple", 3), ("tensor", 3), ("text", 0)]
)
@pytest.mark.parametrize("workers", [0, 1])
def test_shapes_of_batches_are_counted_once_each(
    counts: EventCounts, kind: str, shapes: int, workers: int
) -> None:
    for _ in range(2):
        batches = [*DataLoader(Ragged(kind), num_workers=workers)]
    assert len(batches) == 6
    assert counted(counts, Event.NEW_SHAPE) == [shapes]


def test_threads_and_processes_are_counted_as_they_start(counts: EventCounts) -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert counted(counts, Event.THREAD, Event.PROCESS) == [1, 1]


def test_requests_of_a_server_are_counted(counts: EventCounts) -> None:
    from wsgiref.handlers import SimpleHandler

    def app(environ: dict[str, str], respond: Callable[..., object]) -> list[bytes]:
        respond("200 OK", [])
        return [b"done"]

    for _ in range(3):
        SimpleHandler(io.BytesIO(), io.BytesIO(), io.StringIO(), {}).run(app)
    assert counted(counts, Event.REQUEST) == [3]


@pytest.mark.parametrize("hands_on", [False, True], ids=["answers itself", "by WSGI"])
def test_requests_of_the_standard_librarys_server_are_counted_once(
    counts: EventCounts, hands_on: bool
) -> None:
    import http.server
    from wsgiref.simple_server import WSGIRequestHandler

    base = WSGIRequestHandler if hands_on else http.server.BaseHTTPRequestHandler

    class Handler(base):  # type: ignore[misc, valid-type]
        def __init__(self, sent: bytes) -> None:
            self.rfile, self.wfile = io.BytesIO(sent), io.BytesIO()
            self.requestline = self.command = ""

    handler = Handler(b"Host: here\r\n\r\n")
    handler.raw_requestline = b"GET /page HTTP/1.1\r\n"
    assert handler.parse_request()
    assert handler.path == "/page"
    assert counted(counts, Event.REQUEST) == [0 if hands_on else 1]


def test_requests_to_coroutines_are_counted(counts: EventCounts) -> None:
    module = pytest.importorskip("uvicorn.protocols.http.h11_impl")
    patched = vars(module.RequestResponseCycle)["run_asgi"]
    assert inspect.iscoroutinefunction(inspect.unwrap(patched))
    cycle = object.__new__(module.RequestResponseCycle)
    running = patched(cycle, None)
    assert inspect.iscoroutine(running)
    running.close()
    assert counted(counts, Event.REQUEST) == [1]


def test_requests_that_are_answered_with_an_error_are_counted_by_themselves(
    counts: EventCounts,
) -> None:
    from wsgiref.handlers import SimpleHandler

    def app(environ: dict[str, str], respond: Callable[..., object]) -> list[bytes]:
        if environ["PATH_INFO"] == "/fails":
            raise ValueError("not handled")
        respond("404 Not Found" if environ["PATH_INFO"] == "/none" else "200 OK", [])
        return [b"done"]

    for path in ("/", "/none", "/", "/fails", "/"):
        output = io.BytesIO()
        environ = {"PATH_INFO": path, "SERVER_PROTOCOL": "HTTP/1.1"}
        SimpleHandler(io.BytesIO(), output, io.StringIO(), environ).run(app)
    assert counted(counts, Event.REQUEST, Event.FAILED_REQUEST) == [5, 2]


@pytest.mark.parametrize(
    ("module", "owner", "name", "answer"),
    [
        ("uvicorn.protocols.http.h11_impl", "RequestResponseCycle", "send", {"status": 422}),
        ("uvicorn.protocols.http.httptools_impl", "RequestResponseCycle", "send", {"status": 500}),
        ("werkzeug.serving", "WSGIRequestHandler", "log_request", 503),
    ],
)
def test_each_server_passes_on_with_which_status_it_answers(
    counts: EventCounts, module: str, owner: str, name: str, answer: object
) -> None:
    cycle = getattr(pytest.importorskip(module), owner)
    wrapped = vars(cycle)[name]
    assert next(iter(inspect.signature(inspect.unwrap(wrapped)).parameters)) == "self"
    for given in (answer, {"status": 200}, {"type": "http.response.body"}, "-", 301, None):
        try:
            running = wrapped(object.__new__(cycle), given)
        except AttributeError:
            continue  # it has no connection: the count comes before
        if inspect.iscoroutine(running):
            running.close()
    assert counted(counts, Event.FAILED_REQUEST) == [1]


def test_an_answer_of_aiohttp_has_its_status(counts: EventCounts) -> None:
    web = pytest.importorskip("aiohttp.web")
    handler = sys.modules["aiohttp.web_protocol"].RequestHandler
    for response in (web.Response(status=500), web.Response(), web.HTTPNotFound()):
        handler.finish_response(object.__new__(handler), None, response, None).close()
    assert counted(counts, Event.FAILED_REQUEST) == [2]


def test_what_a_tracker_is_given_is_counted_and_what_we_give_it_is_not(
    counts: EventCounts, tmp_path
) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    writer = tensorboard.SummaryWriter(str(tmp_path))
    before = counted(counts, Event.TRACKER_CALL)[0]
    writer.add_scalar("loss", 1.0)
    with counts.muted():
        writer.add_scalar("ours", 1.0)
    writer.close()
    assert counted(counts, Event.TRACKER_CALL) == [before + 1]


@pytest.mark.slow
def test_compilations_are_counted_with_their_reason_and_without_values(
    counts: EventCounts,
) -> None:
    def scaled(x: torch.Tensor, word: str) -> torch.Tensor:
        return x * len(word)

    compiled = torch.compile(scaled, backend="eager", dynamic=False)
    for word in ("a secret", "b secret too"):
        compiled(torch.ones(3), word)
    assert counted(counts, Event.COMPILATION, Event.RECOMPILATION) == [1, 1]
    first, second = counts.compilations(7)
    assert (first.function, first.number, second.number, second.boundary) == ("scaled", 0, 1, 7)
    assert first.guards > 0
    assert "word" in second.reason
    assert "secret" not in second.reason
    assert counts.compilations(8) == []


class Metrics:
    """What dynamo says of one compilation, as far as it matters."""

    def __init__(self, ended: int, **reported: object) -> None:
        later = 10**17  # than what this process has compiled
        self.__dict__ |= {"end_time_us": later + ended, **reported}


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch) -> list[Metrics]:
    messages: list[Metrics] = []
    module = SimpleNamespace(_compilation_metrics=messages)
    monkeypatch.setitem(sys.modules, subject.COMPILER, module)
    return messages


def test_an_attempt_at_the_limit_is_no_recompilation_and_has_its_functions_name(
    counts: EventCounts, dynamo: list[Metrics]
) -> None:
    named = {"co_name": "scaled", "co_filename": "/p/train.py", "co_firstlineno": 3}
    dynamo += [
        Metrics(10, compile_id="4/0", **named),
        Metrics(11, compile_id="4/1", recompile_reason="4/0: x == 1", **named),
        Metrics(12, compile_id="4/2", fail_reason="Dynamo recompile limit exceeded"),
    ]
    assert counted(counts, Event.COMPILATION, Event.RECOMPILATION) == [1, 1]
    *_, last = counts.compilations(1)
    assert (last.function, last.line, last.hit_limit) == ("scaled", 3, True)


@pytest.mark.parametrize(
    ("frames", "caller"),
    [
        (["Line: 9, Name: main, Filename: /p/train.py", "Line: 1, Name: f, Filename: {torch}"], 9),
        (["Line: 9, Name: main, Filename: /p/train.py"], 0),
        (["no such text"], 0),
        ([], 0),
    ],
)
def test_a_caller_learns_where_the_account_leaves_out_frames_of_torch_alone(
    counts: EventCounts, dynamo: list[Metrics], frames: list[str], caller: int
) -> None:
    stack = [text.format(torch=torch.__file__) for text in frames] + ["Line: 3, Name: g, …"]
    dynamo.append(Metrics(10, compile_id="4/0", stack_trace=stack))
    counts.changed()
    assert counts.compilations(1)[0].caller_line == caller


def test_what_the_compiler_keeps_is_queried_once_after_it_has_compiled(
    counts: EventCounts, dynamo: list[Metrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    function = CompiledFunction(function="scaled", entries=2, most=2)
    monkeypatch.setattr(subject, "functions", lambda: [function])
    counts.compiled_code(0)  # what this process compiled before
    assert counts.compiled_code(1) is None
    dynamo.append(Metrics(10, compile_id="4/0"))
    counts.changed()
    kept = counts.compiled_code(2)
    assert kept is not None
    assert (kept.boundary, kept.functions) == (2, [function])
    assert counts.compiled_code(3) is None
    assert counts.compiled_code(4, last=True) is not None


def test_runs_of_the_collector_are_counted_by_generation(counts: EventCounts) -> None:
    import gc

    gc.collect()
    gc.collect(0)
    young, old = counted(counts, Event.COLLECTION_0, Event.COLLECTION_2)
    assert young >= 1
    assert old >= 1


def test_only_changes_are_reported(counts: EventCounts) -> None:
    save()
    assert Event.SAVE.value in counts.changed()
    assert Event.SAVE.value not in counts.changed()


def test_libraries_are_left_as_they_were_found() -> None:
    def found() -> dict[tuple[str, str, str], object]:
        owners = {
            p: getattr(module, p.owner, None) if p.owner else module
            for p in PASSAGES
            if (module := sys.modules.get(p.module)) is not None
        }
        return {p[:3]: vars(owner).get(p.name) for p, owner in owners.items() if owner is not None}

    before = found()
    counts = EventCounts()
    counts.install()
    assert found() != before
    counts.uninstall()
    assert found() == before
    assert not [item for item in sys.meta_path if "leakscope" in type(item).__module__]


def test_an_error_leaves_without_our_frame(counts: EventCounts) -> None:
    with pytest.raises(ValueError, match="empty parameter list") as caught:
        torch.optim.SGD([], lr=0.1)
    files = [str(entry.path) for entry in caught.traceback]
    assert not [file for file in files if "capture/events" in file]


def test_a_boundary_is_recorded_with_what_has_changed() -> None:
    fake = FakeSession()
    fake.session.events.changed = lambda: {"save": 3}  # type: ignore[method-assign]
    fake.session._measuring.events = fake.session.events.changed
    fake.session.boundary(BoundaryKind.MARK, label="here")
    last = fake.writer.of(BoundaryRecord)[-1]
    assert last.events == {"save": 3}


def test_a_profile_counts_until_it_ends(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKSCOPE_STRICT", "0")
    with leakscope.profile(tmp_path / "run", report=False, quiet=True) as scope:
        for _ in range(3):
            save()
            scope.mark("saved")
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    save()
    events = open_run(tmp_path / "run").main.measurements[-1].events
    assert events["save"] == 3
    assert events["process"] >= 1
