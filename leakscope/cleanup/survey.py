"""Every process on every GPU: whose it is, whether it is left over, and what ending it frees."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from leakscope.cleanup.nvidia import Gpu, Reading, read_gpus
from leakscope.cleanup.processes import ProcessFacts, look_at, own_gpu_holders
from leakscope.cleanup.standing import Judgement, Standing, judge
from leakscope.model.printable import one_line

_PATIENCE_S = 10.0


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses a GPU, or has one open."""

    pid: int
    used: int | None
    """Bytes on that GPU; None where the driver doesn't tell."""
    facts: ProcessFacts | None
    """None where it can't be seen."""
    judgement: Judgement

    @property
    def is_leftover(self) -> bool:
        """Whether it is certain that nobody wants it."""
        return self.judgement.standing is Standing.LEFTOVER


@dataclass(frozen=True)
class GpuUse:
    """A GPU and who uses it, in bytes."""

    index: int
    name: str
    total: int | None
    used: int | None
    free: int | None
    processes: tuple[GpuProcess, ...]

    @property
    def unexplained(self) -> int | None:
        """Used, but by none of these processes: other containers, the driver; None if unknown."""
        told = [process.used for process in self.processes]
        if self.used is None or None in told:
            return None
        return max(0, self.used - sum(size or 0 for size in told))

    @property
    def leftover_bytes(self) -> int:
        """What ending the leftovers would free here, as far as the driver tells."""
        return sum(process.used or 0 for process in self.processes if process.is_leftover)


@dataclass(frozen=True)
class GpuSurvey:
    """All GPUs; ``unlisted`` are this user's processes that have one open but aren't listed."""

    source: str | None
    """``nvidia-ml`` or ``nvidia-smi``; None where no GPU could be asked."""
    gpus: tuple[GpuUse, ...] = ()
    unlisted: tuple[GpuProcess, ...] = ()
    remark: str | None = None
    """Why there is none."""

    @property
    def leftovers(self) -> dict[int, GpuProcess]:
        """The leftovers on all GPUs, by process."""
        listed = [process for gpu in self.gpus for process in gpu.processes]
        return {
            process.pid: process for process in [*listed, *self.unlisted] if process.is_leftover
        }


def survey_gpus() -> GpuSurvey:
    """Return every process on every NVIDIA GPU; never raises, and ends nothing."""
    reading = read_gpus()
    if not reading.gpus:
        return GpuSurvey(reading.source, remark=_why_none(reading))
    seen = {pid: look_at(pid) for gpu in reading.gpus for pid in gpu.processes}
    unlisted = [facts for facts in own_gpu_holders() if facts.pid not in seen]
    return GpuSurvey(
        source=reading.source,
        gpus=tuple(_use(gpu, seen) for gpu in reading.gpus),
        unlisted=tuple(GpuProcess(facts.pid, None, facts, judge(facts)) for facts in unlisted),
    )


def end_leftover(process: GpuProcess) -> str:
    """Ask a leftover to end (SIGTERM) and return a sentence on what came of it.

    It is looked at once more: nothing is done unless it is the same process and still left over.
    """
    before, now = process.facts, look_at(process.pid)
    if before is None or now is None or now.started != before.started:
        return f"{process.pid} has ended already."
    if judge(now).standing is not Standing.LEFTOVER:
        return f"{process.pid} was left alone: {judge(now).reason}."
    try:
        target = psutil.Process(process.pid)
        if target.create_time() != before.started:
            return f"{process.pid} has ended already."
        target.terminate()
        target.wait(_PATIENCE_S)
    except psutil.NoSuchProcess:
        return f"{process.pid} has ended."
    except psutil.TimeoutExpired:
        return (
            f"{process.pid} was asked to end and still runs after {_PATIENCE_S:.0f} s; "
            f"`kill -KILL {process.pid}` ends it at once."
        )
    except (psutil.Error, OSError) as fault:
        return f"{process.pid} could not be ended: {fault}."
    return f"{process.pid} has ended."


def _use(gpu: Gpu, seen: dict[int, ProcessFacts | None]) -> GpuUse:
    processes = [
        GpuProcess(pid, used, seen[pid], judge(seen[pid])) for pid, used in gpu.processes.items()
    ]
    processes.sort(key=lambda process: (-(process.used or 0), process.pid))
    return GpuUse(gpu.index, one_line(gpu.name), gpu.total, gpu.used, gpu.free, tuple(processes))


def _why_none(reading: Reading) -> str:
    if reading.source:
        return f"No NVIDIA GPU is to be seen here: {reading.source} lists none."
    return f"No NVIDIA GPU can be asked here ({one_line('; '.join(reading.faults))})."
