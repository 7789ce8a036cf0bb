"""Failures to allocate are recognised and judged by their own words."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from leakscope import cleanup
from leakscope.cleanup.out_of_memory import CAPACITY, FRAGMENTATION, UNKNOWN, explain, judged

GIB = 1 << 30
ROOT = Path(__file__).parents[2]

# Messages as users posted them (pytorch/pytorch#16417, murong-xu/CADS#4, YingqianWang/iPASSR#9).
FULL = (
    "CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 23.65 GiB of "
    "which 11.06 MiB is free. Including non-PyTorch memory, this process has 23.60 GiB memory in "
    "use. Of the allocated memory 22.90 GiB is allocated by PyTorch, and 194.87 MiB is reserved "
    "by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
LARGE = (
    "CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of "
    "which 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in "
    "use. Of the allocated memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by "
    "PyTorch but unallocated."
)
TYPO = (
    "CUDA out of memory. Tried to allocate 55.57 GiB. GPU 0 has a total capacty of 12.00 GiB of "
    "which 9.02 GiB is free. Of the allocated memory 984.52 MiB is allocated by PyTorch, and "
    "463.48 MiB is reserved by PyTorch but unallocated."
)
HOLES = (
    "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 1 has a total capacity of 24.00 GiB of "
    "which 1.00 GiB is free. Including non-PyTorch memory, this process has 23.00 GiB memory in "
    "use. 20.00 GiB allowed; Of the allocated memory 15.00 GiB is allocated by PyTorch, with 1.00 "
    "GiB allocated in private pools (e.g., CUDA Graphs), and 7.50 GiB is reserved by PyTorch but "
    "unallocated."
)
CROWDED = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of "
    "which 0 bytes is free. Process 4242 has 20.00 GiB memory in use. Including non-PyTorch "
    "memory, this process has 4.00 GiB memory in use. Of the allocated memory 3.00 GiB is "
    "allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
)


def test_a_full_device_is_called_full_though_the_holes_would_do() -> None:
    failure = explain(torch.OutOfMemoryError(FULL))
    assert failure.place == "cuda:0"
    assert failure.requested == 22 << 20
    assert failure.holes == round(194.87 * (1 << 20))
    assert failure.verdict == FRAGMENTATION  # 22 MiB would have fitted into 195 MiB of holes
    assert failure.advice[-1].startswith("Little would be gained: 99 % of what torch holds is live")


def test_holes_and_free_memory_together_decide() -> None:
    failure = explain(torch.OutOfMemoryError(LARGE))
    assert failure.verdict == CAPACITY
    assert failure.others == 0  # the 10 MiB that nothing explains are rounding
    lacking = "At least 717 MiB are lacking, 8 % of what is live"
    assert any(line.startswith(lacking) for line in failure.advice)


def test_a_request_larger_than_the_device_gets_no_other_advice() -> None:
    failure = explain(torch.OutOfMemoryError(TYPO))
    assert failure.total == 12 * GIB
    (advice,) = failure.advice
    assert advice.startswith("The request alone is larger than the device")


def test_fragmentation_gets_the_setting_unless_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    failure = explain(torch.OutOfMemoryError(HOLES))
    assert (failure.place, failure.verdict) == ("cuda:1", FRAGMENTATION)
    assert failure.headline == (
        "Out of memory on cuda:1 by fragmentation: 4 GiB asked for; 15 GiB live, 7.5 GiB in holes, "
        "1 GiB free of 24 GiB."
    )
    assert "may use 20 GiB" in failure.advice[0]
    assert "expandable_segments:True" in failure.advice[1]
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert "is on" in explain(torch.OutOfMemoryError(HOLES)).advice[1]


def test_other_processes_on_the_device_are_pointed_at() -> None:
    failure = explain(torch.OutOfMemoryError(CROWDED))
    assert failure.others == 20 * GIB
    assert "leakscope gpu" in failure.advice[-1]


@pytest.mark.parametrize(
    ("requested", "free", "holes", "verdict"),
    [
        (10, 3, 7, FRAGMENTATION),
        (11, 3, 7, CAPACITY),
        (3, 3, 0, UNKNOWN),
        (None, 3, 7, UNKNOWN),
        (10, None, 7, UNKNOWN),
        (10, 3, None, UNKNOWN),
    ],
)
def test_the_rule_is_exact(
    requested: int | None, free: int | None, holes: int | None, verdict: str
) -> None:
    assert judged(requested, free, holes) == verdict


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("x"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), True),
        (RuntimeError("shape '[2]' is invalid for input of size 3"), False),
        (ValueError("CUDA out of memory"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_only_failures_to_allocate_are_recognised(error: BaseException, is_one: bool) -> None:
    assert cleanup.is_out_of_memory(error) is is_one


def test_an_error_whose_words_fail_is_none_of_ours() -> None:
    class OddError(RuntimeError):
        def __str__(self) -> str:
            raise ValueError

    assert not cleanup.is_out_of_memory(OddError())


def test_the_cpu_allocators_own_error_is_explained() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**62, dtype=torch.uint8)
    assert cleanup.is_out_of_memory(caught.value)
    failure = explain(caught.value)
    assert (failure.place, failure.requested, failure.verdict) == ("host", 2**62, CAPACITY)
    assert failure.advice[0].startswith("The request alone is larger than this machine's memory")


@pytest.mark.slow
def test_a_limit_on_address_space_is_suspected_where_there_was_room() -> None:
    code = (
        "import resource, torch\n"
        "from leakscope.cleanup.out_of_memory import explain\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (used + {1 << 28}, {resource.RLIM_INFINITY}))\n"
        "try:\n"
        f"    torch.empty({1 << 29}, dtype=torch.uint8)\n"
        "except RuntimeError as error:\n"
        "    print(explain(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "512 MiB asked for" in done.stdout
    assert "ulimit -v" in done.stdout


def test_live_tensors_are_grouped_and_a_shared_storage_counts_once() -> None:
    alike = [torch.zeros(3, 1021, dtype=torch.float64) for _ in range(4)]
    views = [alike[0][1:], alike[0].view(-1)]
    (group,) = [g for g in cleanup.live_tensors().groups if g.label == "float64[3, 1021]"]
    assert (group.device, group.count, group.bytes) == ("cpu", 4, 4 * 3 * 1021 * 8)
    assert len(views) == 2


def test_looking_at_tensors_changes_none_and_keeps_none() -> None:
    import weakref

    source = torch.zeros(1 << 20)
    lazy = torch._lazy_clone(source)
    meta = torch.empty(1 << 19, device="meta")
    alive = weakref.ref(meta)
    labels = [group.label for group in cleanup.live_tensors().groups]
    assert torch._C._is_cow_tensor(lazy)
    assert "float32[524288]" not in labels
    del meta
    assert alive() is None
