"""What other threads do while the heap is walked: backward passes, gradients that are let go."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from optional_torch import needs_torch, torch
from payloads import ENGINES

from leakscope.heap import graph, pausing
from leakscope.heap.graph import WalkRequest, walk

pytestmark = needs_torch

ROOT = Path(__file__).parents[2]
SECONDS = 30
CHANGES: list[Callable[[int], bool]] = [pausing.others_change_autograd]
if graph.engine_name() == "native":
    from leakscope.heap import _native

    CHANGES.append(_native.others_change_autograd)


class Held(int):
    """Its attributes are set by a lock's ``acquire``, in C and without the interpreter's lock."""

    lock = threading.Lock()
    grad = property(None, lock.acquire)
    data = property(None, lock.acquire)


def sets_gradient() -> None:
    Held(1).grad = SECONDS


def sets_gradient_by_name() -> None:
    setattr(Held(1), "grad", SECONDS)  # noqa: B010


def sets_another_attribute() -> None:
    Held(1).data = SECONDS


def waits() -> None:
    Held.lock.acquire(timeout=SECONDS)


def runs_backward() -> None:
    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(lambda _: Held.lock.acquire(timeout=SECONDS) and None)
    weight.sum().backward()


@contextmanager
def during(work: Callable[[], None], *, is_seen: bool = True) -> Iterator[None]:
    """While another thread is held inside ``work``."""
    Held.lock.acquire()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        deadline = time.monotonic() + (10 if is_seen else 0.1)
        while not pausing.others_change_autograd(0) and time.monotonic() < deadline:
            time.sleep(0.001)
        yield
    finally:
        Held.lock.release()
        thread.join()
        if Held.lock.locked():
            Held.lock.release()


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("work", [sets_gradient, sets_gradient_by_name, runs_backward])
def test_another_thread_that_changes_gradients_is_seen(changes, work) -> None:
    with during(work):
        assert changes(0)
    assert not changes(0)


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("work", [sets_another_attribute, waits])
def test_a_thread_that_changes_no_gradients_is_passed_over(changes, work) -> None:
    with during(work, is_seen=False):
        assert not changes(0)


@pytest.mark.parametrize("changes", CHANGES)
def test_the_pass_that_this_thread_works_for_counts_for_nothing(changes) -> None:
    with during(runs_backward):
        assert not changes(1)
    with during(sets_gradient):
        assert changes(1)


def test_this_threads_own_pass_is_no_change() -> None:
    seen: list[bool] = []
    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(lambda _: seen.append(pausing.autograd_changes()))
    weight.sum().backward()
    assert seen == [False]


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_are_left_out_while_they_change(engine) -> None:
    weight = torch.ones(1000, requires_grad=True)
    (weight * weight).sum().backward()
    product = weight * weight
    roots: list[object] = [{"weight": weight, "product": product}]
    whole = walk(WalkRequest(roots), engine=engine)
    with during(sets_gradient):
        without = walk(WalkRequest(roots), engine=engine)
    assert (whole.payload_bytes["host"], whole.graph_truncated) == (12_000, False)
    assert (without.payload_bytes["host"], without.graph_truncated) == (8_000, True)
    assert whole.graph_nodes > without.graph_nodes == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_walk_waits_until_a_gradient_is_set(engine) -> None:
    weight = torch.ones(1000, requires_grad=True)
    weight.sum().backward()
    with during(sets_gradient):
        threading.Timer(0.001, Held.lock.release).start()
        result = walk(WalkRequest([{"weight": weight}]), engine=engine)
    assert (result.payload_bytes["host"], result.graph_truncated) == (8_000, False)


TRAINS = """
import sys, threading, time
import torch
from leakscope.heap import CensusTaker
from leakscope.model.census import CensusScope

sys.setswitchinterval(1e-5)
torch.set_num_threads(1)
ends = time.monotonic() + 4
weights = [torch.zeros(200_000, requires_grad=True) for _ in range(3)]


def train(weight):
    while time.monotonic() < ends:
        (weight * 2).sum().backward()
        weight.grad = None


threads = [threading.Thread(target=train, args=[weight]) for weight in weights]
for thread in threads:
    thread.start()
taker = CensusTaker(project_root="/")
taken = 0
while time.monotonic() < ends:
    taker.take(CensusScope.FULL if taken % 3 else CensusScope.FOCUSED)
    taken += 1
print(taken)
"""


def test_a_program_survives_censuses_while_its_threads_train() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", TRAINS],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3
