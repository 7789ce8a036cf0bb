"""Memory of a real device runs out: the observer sees what the exception lets go of."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leakscope
from leakscope.recording import open_run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

MIB = 1 << 20


@pytest.fixture
def _little_room():
    """Let torch have 1 GiB of the device, so that running out of it disturbs nobody."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(1024 * MIB / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def fit(each: int) -> None:
    model = nn.Linear(256, 256, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for _ in range(100):
        optimizer.zero_grad()
        model(torch.rand(8, 256, device="cuda")).sum().backward()
        optimizer.step()
        history.append(torch.empty(each, dtype=torch.uint8, device="cuda"))


@pytest.mark.usefixtures("_little_room")
def test_the_observer_sees_what_was_live(tmp_path):
    with pytest.raises(torch.OutOfMemoryError), leakscope.profile(tmp_path / "run", report=False):
        fit(40 * MIB)
    observed, left = open_run(tmp_path / "run").main.shortages
    assert (observed.seen, left.seen) == ("observer", "exception")
    assert observed.device == left.device == "cuda:0"
    assert observed.requested == 40 * MIB
    assert observed.census is not None
    assert left.census is None
    sizes = {row.path: row.device_bytes for row in observed.census.rows}
    assert sizes["fit()·history"]["cuda:0"] > 700 * MIB
    assert observed.allocated >= sizes["fit()·history"]["cuda:0"]


@pytest.mark.usefixtures("_little_room")
def test_a_caught_error_is_recorded_as_survived(tmp_path):
    with leakscope.profile(tmp_path / "run", report=False):
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
        fit(1024)
    main = open_run(tmp_path / "run").main
    assert [shortage.seen for shortage in main.shortages] == ["observer"]
    assert main.end.status == "completed"
