"""Whose device memory is, as NVIDIA's driver lists it by process.

The lists are of the driver's shape: structures of ``nvidia-ml-py``, filled by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from test_probes_cuda import MB, FakeCuda, install

from leakscope.model import gauge
from leakscope.probes.nvidia import DeviceOwnersProbe, by_owner

OWN = os.getpid()
UUID = "4a3b7c80-1111-2222-3333-444455556666"


class ListedCuda(FakeCuda):
    def get_device_properties(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(uuid=UUID)


def driver(processes: Mapping[int, int | None]) -> SimpleNamespace:
    """As much of NVML as the probe may ask."""
    listed = [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in processes.items()]

    def handle_of(uuid: str) -> str:
        assert uuid == f"GPU-{UUID}"
        return uuid

    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=handle_of,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: listed,
        nvmlDeviceGetGraphicsRunningProcesses=lambda handle: listed[:1],
    )


def read(monkeypatch: pytest.MonkeyPatch, nvml: object, **state: Any) -> dict[str, int]:
    install(monkeypatch, ListedCuda(devices={0: (1, 2, 3)}, **state))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return DeviceOwnersProbe().read()


def test_the_driver_tells_this_process_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, driver({OWN: 700 * MB, 1: 300 * MB, 2: None}))
    assert found == {
        f"cuda:0.{gauge.DEVICE_OWN}": 700 * MB,
        f"cuda:0.{gauge.DEVICE_CHILDREN}": 0,
        f"cuda:0.{gauge.DEVICE_OTHERS}": 300 * MB,
    }


def test_children_are_neither_this_process_nor_others() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert psutil.pid_exists(child.pid)
        found = by_owner({OWN: 5, child.pid: 7, 1: 11})
        child.communicate(b"\n")
    assert [*found.values()] == [5, 7, 11]


@pytest.mark.parametrize(
    "processes",
    [{1: 300 * MB}, {OWN: None, 1: 300 * MB}, {}],
    ids=["not listed", "no size", "none"],
)
def test_nothing_is_reported_where_the_driver_does_not_list_this_process(
    monkeypatch: pytest.MonkeyPatch, processes: dict[int, int | None]
) -> None:
    assert read(monkeypatch, driver(processes)) == {}


def test_nothing_is_queried_while_cuda_sleeps_or_a_graph_is_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nobody = SimpleNamespace()  # whoever asks it fails
    assert read(monkeypatch, nobody, initialized=False) == {}
    assert read(monkeypatch, nobody, capturing=True) == {}


def test_a_machine_without_the_library_or_the_driver_has_no_gauges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_driver() -> None:
        raise RuntimeError("NVML Shared Library Not Found")

    assert read(monkeypatch, None) == {}  # such a module can't be imported
    assert read(monkeypatch, SimpleNamespace(nvmlInit=no_driver)) == {}


def test_the_real_library_has_what_is_called() -> None:
    nvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    queried = vars(driver({}))
    assert [name for name in queried if not callable(getattr(nvml, name, None))] == []


def test_the_real_driver_lists_this_process_where_there_is_one() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU of NVIDIA's")
    kept = torch.ones(1 << 20, device="cuda")
    found = DeviceOwnersProbe().read()
    if not found:
        pytest.skip("the driver doesn't list this process: it runs in a container")
    assert found[f"cuda:0.{gauge.DEVICE_OWN}"] >= kept.nbytes
