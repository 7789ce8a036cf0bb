"""Programs that grow with an event, and look-alikes that grow with every step next to it.

Each event comes every 13 steps of 20 an epoch, so that neither steps nor epochs go with it.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from snippet_recorder import SnippetRecorder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PRELUDE = """
import io, logging, subprocess, threading
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.rand(320, 64), torch.randint(0, 10, (320,)))
loader = DataLoader(data, batch_size=16)
kept = []
logging.basicConfig(stream=io.StringIO(), level="INFO")
"""
LOOP = """
def train(epochs):
    number = 0
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            number += 1
            {per_step}
            if number % 13 == 0:
                happens(number)
                {per_event}

train(30)
"""
KEEPS = "kept.append(torch.rand({numbers}))"
AT_EACH_EVENT, AT_EACH_STEP = 262144, 32768  # float32 values: 1 MiB and 128 KiB

EVENTS = {
    "save": """
def happens(number):
    torch.save(model.state_dict(), io.BytesIO())
    torch.save(optimizer.state_dict(), io.BytesIO())
""",
    "load": """
file = io.BytesIO()
torch.save(model.state_dict(), file)
def happens(number):
    file.seek(0)
    torch.load(file)
""",
    "recompilation": """
@torch.compile(backend="eager", dynamic=False)
def compiled(x):
    return x + 1
torch._dynamo.config.recompile_limit = torch._dynamo.config.cache_size_limit = 200
compiled(torch.ones(1))
def happens(number):
    compiled(torch.ones(number + 1))
""",
    "compilation": """
def happens(number):
    names = {}
    exec("def compiled(x): return x + 1", names)
    torch.compile(names["compiled"], backend="eager")(torch.ones(1))
""",
    "caught": """
def happens(number):
    try:
        raise ValueError(number)
    except ValueError:
        pass
""",
    "scheduler": """
def happens(number):
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
""",
    "loader_iterator": """
small, loader = DataLoader(TensorDataset(torch.rand(4, 2)), batch_size=4), [*loader]
def happens(number):
    iter(small)
""",
    "graph_capture": """
graph, where = torch.cuda.CUDAGraph(), torch.ones(4, device="cuda")
def happens(number):
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        where + 1
""",
    "log": """
def happens(number):
    logging.info("step %d", number)
""",
    "logged_error": """
def happens(number):
    logging.info("well")
    try:
        raise ValueError(number)
    except ValueError:
        if number % 2:
            logging.exception("a batch failed")
""",
    "tracker_call": """
import tempfile
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter(tempfile.mkdtemp())
def happens(number):
    writer.add_scalar("loss", 1.0, number)
""",
    "figure": """
from matplotlib.figure import Figure
figure = Figure(figsize=(1, 1))
def happens(number):
    figure.savefig(io.BytesIO(), dpi=20)
""",
    "image": """
from PIL import Image
def happens(number):
    Image.new("RGB", (4, 4)).save(io.BytesIO(), format="png")
""",
    "optimizer": """
def happens(number):
    torch.optim.Adam(model.parameters())
""",
    "thread": """
def happens(number):
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
""",
    "process": """
def happens(number):
    subprocess.run(["true"], check=True)
""",
}
EVENTS |= {
    "new_shape": """
made = 0
def collated(samples):
    global made
    made += 1
    times = made // 13 + 1 if made % 13 == 0 else 1
    return torch.utils.data.default_collate(samples * times)
loader = DataLoader(data, batch_size=16, collate_fn=collated)
def happens(number):
    pass
""",
    "explicit_collection": """
import gc
def happens(number):
    gc.collect()
""",
    "failed_request": """
from wsgiref.handlers import SimpleHandler
def app(environ, respond):
    respond(environ["PATH_INFO"], [])
    return [b""]
def request(status):
    environ = {"PATH_INFO": status, "SERVER_PROTOCOL": "HTTP/1.1"}
    SimpleHandler(io.BytesIO(), io.BytesIO(), io.StringIO(), environ).run(app)
def happens(number):
    request("200 OK")
    if number % 2:
        request("500 Internal Server Error")
""",
}
EVALUATES = """
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            model(x)
    model.train()
"""
ASYNC_SAVE = """
import tempfile
import torch.distributed.checkpoint as dcp
saving = tempfile.mkdtemp()
def happens(number):
    dcp.async_save({"weight": model[0].weight.detach().clone()}, checkpoint_id=saving).result()
"""
PARTS = {"logged_error", "failed_request"}
"""Events that are the half of others here."""
NEEDS = {"tracker_call": "tensorboard", "figure": "matplotlib", "image": "PIL"}


def reported(
    recorder: SnippetRecorder, folder: Path, event: str, *, per_event: str, per_step: str
) -> dict[str, Any]:
    """Return the report of a program in which an event happens and something is kept."""
    if event == "caught" and sys.version_info < (3, 12):
        pytest.skip("exceptions are counted from CPython 3.12 on")
    if event == "graph_capture" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    if event in NEEDS:
        pytest.importorskip(NEEDS[event])
    loop = LOOP.format(per_event=per_event, per_step=per_step)
    script = PRELUDE + EVENTS[event] + textwrap.dedent(loop)
    (folder / "train.py").write_text(script)
    return recorder.report(folder)


@pytest.mark.parametrize("event", [name for name in EVENTS if name not in PARTS])
def test_a_leak_per_event_is_reported_by_it(
    recorder: SnippetRecorder, tmp_path: Path, event: str
) -> None:
    keeps = KEEPS.format(numbers=AT_EACH_EVENT)
    report = reported(recorder, tmp_path, event, per_event=keeps, per_step="pass")
    assert report["verdict"] == "leak", report["headline"]
    culprit = report["culprits"][0]
    assert culprit["name"] == "kept"
    by_event = culprit["per_event"]
    assert by_event["is_by_event"], by_event
    (rate,) = by_event["rates"]
    assert rate["event"] == event, by_event
    assert rate["bytes_each"] == pytest.approx(4 * AT_EACH_EVENT, rel=0.02)
    assert by_event["work"]["bytes_each"] == 0
    assert f"grows by 1 MiB per {rate['noun']} (" in report["headline"]
    if event == "recompilation":
        assert "Compiled again most often was compiled (train.py:" in by_event["text"]
        assert "size mismatch" in by_event["text"]


@pytest.mark.parametrize("event", EVENTS)
def test_a_leak_per_step_next_to_events_stays_per_step(
    recorder: SnippetRecorder, tmp_path: Path, event: str
) -> None:
    keeps = KEEPS.format(numbers=AT_EACH_STEP)
    report = reported(recorder, tmp_path, event, per_event="pass", per_step=keeps)
    assert report["verdict"] == "leak", report["headline"]
    culprit = report["culprits"][0]
    assert culprit["name"] == "kept"
    assert culprit["unit"] == "step"
    assert not culprit["per_event"]["is_by_event"], culprit["per_event"]
    assert culprit["per_event"]["work"]["bytes_each"] == pytest.approx(131072, rel=0.02)
    assert "128 KiB per step" in report["headline"]


@pytest.mark.parametrize("event", sorted(PARTS))
def test_a_leak_per_error_is_reported_by_errors_and_not_by_what_goes_well_too(
    recorder: SnippetRecorder, tmp_path: Path, event: str
) -> None:
    keeps = KEEPS.format(numbers=AT_EACH_EVENT)
    report = reported(
        recorder, tmp_path, event, per_event=f"number % 2 and {keeps}", per_step="pass"
    )
    (rate,) = report["culprits"][0]["per_event"]["rates"]
    assert rate["event"] == event


@pytest.mark.parametrize(
    ("per_event", "per_step", "unit"),
    [
        (KEEPS.format(numbers=AT_EACH_EVENT), "pass", "validation"),
        ("pass", KEEPS.format(numbers=AT_EACH_STEP), "step"),
    ],
)
def test_a_leak_per_evaluation_is_reported_by_validations_and_one_next_to_them_by_steps(
    recorder: SnippetRecorder, tmp_path: Path, per_event: str, per_step: str, unit: str
) -> None:
    loop = LOOP.format(per_event=per_event, per_step=per_step)
    (tmp_path / "train.py").write_text(f"{PRELUDE}\ndef happens(number):{EVALUATES}{loop}")
    report = recorder.report(tmp_path)
    culprit = report["culprits"][0]
    assert (culprit["name"], culprit["unit"]) == ("kept", unit), report["headline"]
    assert [rate["noun"] for rate in culprit["per_event"]["rates"]] == [unit]


def test_a_leak_per_save_with_a_validation_each_time_says_that_both_coincide(
    recorder: SnippetRecorder, tmp_path: Path
) -> None:
    event = EVENTS["save"].replace("def happens(number):", f"def happens(number):{EVALUATES}")
    loop = LOOP.format(per_event=KEEPS.format(numbers=AT_EACH_EVENT), per_step="pass")
    (tmp_path / "train.py").write_text(PRELUDE + event + loop)
    report = recorder.report(tmp_path)
    by_event = report["culprits"][0]["per_event"]
    names = {rate["noun"] for rate in by_event["rates"]} | set(by_event["indistinct"])
    assert {"save", "validation"} <= names, by_event
    assert "can't tell" in by_event["text"]


def test_what_climbs_in_an_epoch_with_each_save_and_is_released_is_reported_by_saves(
    recorder: SnippetRecorder, tmp_path: Path
) -> None:
    loop = LOOP.format(per_event="kept.append(torch.rand(1 << 20))", per_step="pass")
    loop = loop.replace("\ntrain(30)", "        kept.clear()\n\ntrain(12)")
    longer = PRELUDE.replace("320", "1280")
    (tmp_path / "train.py").write_text(longer + EVENTS["save"] + loop)
    report = recorder.report(tmp_path)
    assert report["headline"].startswith("Memory peaks in train: kept climbs by 4 MiB per save")
    culprit = next(c for c in report["culprits"] if c["name"] == "kept")
    assert culprit["growth"] == "within"
    assert culprit["per_event"]["is_by_event"], culprit["per_event"]
    assert [rate["event"] for rate in culprit["per_event"]["rates"]] == ["save"]
    assert culprit["per_event"]["rates"][0]["bytes_each"] == pytest.approx(4 << 20, rel=0.02)


def test_a_leak_per_asynchronous_save_is_reported_by_the_save_and_that_both_coincide(
    recorder: SnippetRecorder, tmp_path: Path
) -> None:
    loop = LOOP.format(per_event=KEEPS.format(numbers=AT_EACH_EVENT), per_step="pass")
    (tmp_path / "train.py").write_text(PRELUDE + ASYNC_SAVE + loop)
    by_event = recorder.report(tmp_path)["culprits"][0]["per_event"]
    assert by_event["is_by_event"]
    names = {rate["noun"] for rate in by_event["rates"]} | set(by_event["indistinct"])
    assert {"save", "asynchronous save"} <= names, by_event
