"""What the cleanups do on a real GPU."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest
import torch

from leakscope import cleanup

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]

MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean_device() -> Iterator[None]:
    logger = logging.getLogger("leakscope.cleanup")
    logger.addHandler(handler := logging.NullHandler())
    torch.zeros(1, device="cuda")
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    yield
    logger.removeHandler(handler)


def ones(mebibytes: int) -> torch.Tensor:
    return torch.ones(mebibytes * MIB, dtype=torch.uint8, device="cuda:0")


def test_a_process_that_has_not_used_cuda_stays_without_it() -> None:
    code = (
        "import torch, leakscope\n"
        "leakscope.cleanup.clear_memory(force=True)\n"
        "leakscope.cleanup.memory_stats()\n"
        "with leakscope.cleanup.MemoryScope(exact_peak=True): pass\n"
        "print(torch.cuda.is_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_cache_goes_back_to_the_driver_and_is_reported() -> None:
    holding = ones(256)
    del holding
    before = torch.cuda.memory_reserved()
    cleared = cleanup.clear_memory()
    assert before - torch.cuda.memory_reserved() == cleared.device_returned["cuda:0"]
    assert cleared.device_returned["cuda:0"] >= 256 * MIB


def test_garbage_on_the_device_is_reported_as_freed() -> None:
    class Node:
        pass

    gc.disable()
    try:
        node = Node()
        node.me = node  # type: ignore[attr-defined]
        node.tensor = ones(64)  # type: ignore[attr-defined]
        del node
        cleared = cleanup.clear_memory()
    finally:
        gc.enable()
    assert cleared.device_freed["cuda:0"] == 64 * MIB


def test_page_locked_memory_is_reported() -> None:
    holding = torch.ones(64 * MIB, dtype=torch.uint8).pin_memory()
    assert (cleanup.memory_stats().host.pinned or 0) >= 64 * MIB
    del holding
    assert any(step.pinned_returned >= 64 * MIB for step in cleanup.clear_memory().steps)


def test_the_devices_figures_are_torchs_own() -> None:
    holding = ones(64)
    (device,) = (item for item in cleanup.memory_stats().devices if item.device == "cuda:0")
    assert device.allocated == torch.cuda.memory_allocated(0)
    assert device.reserved == torch.cuda.memory_reserved(0)
    assert device.peak_allocated == torch.cuda.max_memory_allocated(0)
    assert device.total == torch.cuda.mem_get_info(0)[1]
    assert len(holding) == 64 * MIB


def test_a_scope_tells_the_peak_and_leaves_the_counters_alone() -> None:
    with cleanup.MemoryScope("step", quiet=True) as scope:
        kept = ones(64)
        ones(128)
    assert scope.report is not None
    assert scope.report.device_kept["cuda:0"] == 64 * MIB
    peak = torch.cuda.max_memory_allocated()
    assert scope.report.device_peak["cuda:0"] == cleanup.Peak(peak, peak)
    with cleanup.MemoryScope("after", quiet=True) as scope:
        ones(32)
    assert scope.report is not None
    assert not scope.report.device_peak["cuda:0"].is_exact
    assert torch.cuda.max_memory_allocated() == peak
    with cleanup.MemoryScope("exact", quiet=True, exact_peak=True) as scope:
        ones(32)
    assert scope.report is not None
    assert scope.report.device_peak["cuda:0"].at_least < peak
    assert len(kept) == 64 * MIB


def test_out_of_memory_is_explained_after_its_tensors_were_let_go_of() -> None:
    alive: list[weakref.ref[torch.Tensor]] = []

    def run_out() -> None:
        big = ones(256)
        alive.append(weakref.ref(big))
        ones(1 << 22)

    with pytest.raises(torch.OutOfMemoryError), cleanup.oom_guard() as attempt:
        run_out()
    assert attempt.failure is not None
    assert attempt.failure.place == "cuda:0"
    assert attempt.failure.requested == 1 << 42
    assert attempt.failure.total is not None
    assert attempt.let_go is not None
    assert attempt.let_go.device_freed["cuda:0"] >= 256 * MIB
    assert attempt.cleared is not None
    assert attempt.cleared.device_returned["cuda:0"] >= 256 * MIB
    assert alive[0]() is None


def test_a_cleanup_that_the_next_step_undoes_is_called_useless() -> None:
    every = cleanup.cleanup_every(1)
    for _ in every(range(8)):
        ones(256)
    report = every.report()
    assert report.taken_again >= 6 * 256 * MIB
    assert report.verdict == "useless"


def test_this_process_is_on_its_gpu() -> None:
    survey = cleanup.survey_gpus()
    if not survey.gpus:
        pytest.skip(survey.remark or "no driver to ask")
    assert all(gpu.total for gpu in survey.gpus)
