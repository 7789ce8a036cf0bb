"""GPUs and the processes on them as NVIDIA's driver reports them.

It is queried through NVML where the module ``pynvml`` (of the package ``nvidia-ml-py``) can be
imported, else through ``nvidia-smi`` and its CSV, whose sizes are whole MiB and whose list has
compute processes only. From within a program NVML alone is queried.
"""

from __future__ import annotations

import os
import re
import subprocess
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil

from leakscope.model import gauge
from leakscope.model.errors import ours
from leakscope.probes import GuardedProbe
from leakscope.probes.cuda import awake_cuda

_TIMEOUT_S = 20.0
_GPU_FIELDS = "index,uuid,memory.total,memory.used,memory.free,name"
_PROCESS_FIELDS = "gpu_uuid,pid,used_memory"
_CSV = "--format=csv,noheader,nounits"
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver sees it, in bytes, and which processes use how much of it."""

    index: int
    uuid: str
    name: str
    total: int | None
    used: int | None
    free: int | None
    processes: dict[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class DriverReading:
    """All GPUs, where that is from, and what went wrong where there was no source."""

    source: str | None
    gpus: tuple[Gpu, ...]
    faults: tuple[str, ...] = ()


def read_gpus() -> DriverReading:
    """Return what the driver reports; never raises. Takes about a second where it is asleep."""
    library = _attempt("nvidia-ml", _read_nvml)
    if library.source:
        return library
    command = _attempt("nvidia-smi", _read_nvidia_smi)
    return command if command.source else DriverReading(None, (), library.faults + command.faults)


def parse_gpus(text: str) -> dict[str, Gpu]:
    """Return the GPUs by UUID from the CSV of ``nvidia-smi --query-gpu``; skips other lines."""
    gpus = {}
    for line in text.splitlines():
        # The name comes last, for it may hold commas.
        fields = [part.strip() for part in line.split(",", 5)]
        if len(fields) == 6 and fields[0].isdigit():
            total, used, free = map(_mebibytes, fields[2:5])
            gpus[fields[1]] = Gpu(int(fields[0]), fields[1], fields[5], total, used, free)
    return gpus


def parse_processes(text: str) -> list[tuple[str, int, int | None]]:
    """Return UUID, process and bytes from the CSV of ``--query-compute-apps``; skips the rest."""
    processes = []
    for line in text.splitlines():
        fields = [part.strip() for part in line.split(",")]
        if len(fields) == 3 and fields[1].isdigit():
            processes.append((fields[0], int(fields[1]), _mebibytes(fields[2])))
    return processes


def _attempt(source: str, read: Callable[[], tuple[Gpu, ...]]) -> DriverReading:
    try:
        return DriverReading(source, read())
    except Exception as fault:
        return DriverReading(None, (), (f"{source}: {_sentence(fault)}",))


def _read_nvidia_smi() -> tuple[Gpu, ...]:
    gpus = parse_gpus(_query_nvidia_smi(f"--query-gpu={_GPU_FIELDS}"))
    for uuid, pid, used in parse_processes(
        _query_nvidia_smi(f"--query-compute-apps={_PROCESS_FIELDS}")
    ):
        if uuid in gpus:
            _add(gpus[uuid].processes, pid, used)
    return tuple(gpus.values())


def _query_nvidia_smi(query: str) -> str:
    """Return its output; raises RuntimeError where it failed, or didn't answer in time."""
    process = subprocess.Popen(
        ["nvidia-smi", query, _CSV],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},
    )
    try:
        text, _ = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        # Not waited for: with the driver hung it can't even be killed.
        process.kill()
        raise RuntimeError(f"it did not answer within {_TIMEOUT_S:.0f} s") from None
    if process.returncode:
        raise RuntimeError(text.strip() or f"it ended with code {process.returncode}")
    return text


class DeviceOwnersProbe(GuardedProbe):
    """Whose device memory is, by the driver: this process's, its children's, that of others.

    Only devices are queried on which torch's allocator holds memory. Where the driver doesn't
    list this process, as in a container whose processes have numbers of their own, nothing can be
    reported for any.
    """

    name = "owners of device memory"
    slow = True

    def __init__(self) -> None:
        self._nvml: Any = None
        self._is_missing = False

    def _measure(self) -> dict[str, int]:
        cuda = awake_cuda()
        if cuda is None or self._is_missing or cuda.is_current_stream_capturing():
            return {}
        if self._nvml is None and not self._begin():
            return {}
        gauges: dict[str, int] = {}
        for device in range(cuda.device_count()):
            if cuda.memory_reserved(device):
                uuid = str(getattr(cuda.get_device_properties(device), "uuid", ""))
                name = f"GPU-{uuid.removeprefix('GPU-')}"
                handle = _answer_or_none(self._nvml.nvmlDeviceGetHandleByUUID, name)
                found = {} if handle is None else by_owner(_processes(self._nvml, handle))
                gauges |= {f"cuda:{device}.{name}": size for name, size in found.items()}
        return gauges

    def _begin(self) -> bool:
        """Open NVML for the life of the process; it makes no context."""
        try:
            self._nvml = _import_nvml()
            self._nvml.nvmlInit()
        except ours(Exception):
            self._is_missing = True
        return not self._is_missing


def by_owner(processes: Mapping[int, int | None]) -> dict[str, int]:
    """Return what this process, its children and all others use, as gauges; empty if unknown."""
    own = processes.get(os.getpid())
    if own is None:
        return {}
    others = {pid: size or 0 for pid, size in processes.items() if pid != os.getpid()}
    children = (
        {child.pid for child in psutil.Process().children(recursive=True)} if others else set()
    )
    return {
        gauge.DEVICE_OWN: own,
        gauge.DEVICE_CHILDREN: sum(size for pid, size in others.items() if pid in children),
        gauge.DEVICE_OTHERS: sum(size for pid, size in others.items() if pid not in children),
    }


def _import_nvml() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an older package of that name warns of itself
        import pynvml  # type: ignore[import-untyped,import-not-found,unused-ignore]
    return pynvml


def _read_nvml() -> tuple[Gpu, ...]:
    pynvml = _import_nvml()
    pynvml.nvmlInit()
    try:
        count = range(pynvml.nvmlDeviceGetCount())
        return tuple(
            _nvml_gpu(pynvml, index, pynvml.nvmlDeviceGetHandleByIndex(index)) for index in count
        )
    finally:
        pynvml.nvmlShutdown()


def _nvml_gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    memory = _answer_or_none(nvml.nvmlDeviceGetMemoryInfo, handle)
    return Gpu(
        index=index,
        uuid=_text(_answer_or_none(nvml.nvmlDeviceGetUUID, handle)),
        name=_text(_answer_or_none(nvml.nvmlDeviceGetName, handle)),
        total=int(memory.total) if memory else None,
        used=int(memory.used) if memory else None,
        free=int(memory.free) if memory else None,
        processes=_processes(nvml, handle),
    )


def _processes(nvml: Any, handle: Any) -> dict[int, int | None]:
    processes: dict[int, int | None] = {}
    for query in (
        nvml.nvmlDeviceGetComputeRunningProcesses,
        nvml.nvmlDeviceGetGraphicsRunningProcesses,
    ):
        for process in _answer_or_none(query, handle) or ():
            _add(processes, int(process.pid), process.usedGpuMemory)
    return processes


def _answer_or_none(query: Any, handle: Any) -> Any:
    """What the driver answers; None where it refuses or doesn't support the question."""
    try:
        return query(handle)
    except ours(Exception):
        return None


def _add(processes: dict[int, int | None], pid: int, used: int | None) -> None:
    """The same process may be listed for compute and graphics, or for parts of a GPU."""
    known = processes.get(pid)
    processes[pid] = used if known is None else max(known, used or 0)


def _mebibytes(text: str) -> int | None:
    """``185`` or ``185 MiB``; None for ``[N/A]``, ``[Not Supported]`` and their like."""
    number = _NUMBER.match(text)
    return int(number.group()) << 20 if number else None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _sentence(fault: Exception) -> str:
    if isinstance(fault, ImportError):
        return "the module pynvml is not installed"
    if isinstance(fault, FileNotFoundError):
        return "it is not installed"
    lines = (line.strip() for line in str(fault).splitlines())
    return " ".join(filter(None, lines)) or type(fault).__name__
