"""Out of memory, recognised and explained: who asked for how much, what was there, what would help.

The figures come from the exception's own words where it has some, for they were written at the
moment of the failure, else from the statistics now. On a device, torch has emptied its cache
before it gives up, so what is reserved but not live then lies in holes between live blocks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from leakscope.cleanup.accelerator import device_levels
from leakscope.cleanup.live import LiveTensors, live_tensors
from leakscope.cleanup.statistics import HostMemory, memory_stats
from leakscope.model.sizes import human_bytes, human_share
from leakscope.probes.failure import HOST, Told, is_of_device, is_out_of_memory, read_message

__all__ = ["OutOfMemory", "explain", "is_out_of_memory", "judged"]

CAPACITY = "capacity"
FRAGMENTATION = "fragmentation"
UNKNOWN = "unknown"

_OWN_OF_DRIVER = 0.05
"""Less than this share of a device is the driver's own, or rounding."""
_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_TOO_LARGE = (
    "The request alone is larger than {}: look at the shapes that lead to it; "
    "no setting and no cleanup can help."
)


@dataclass(frozen=True)
class OutOfMemory:
    """One failure to allocate, in bytes; None where nothing tells. Holds nothing but figures."""

    kind: str
    """The type of the exception."""
    place: str
    """``host``, ``cuda:0``, or ``device`` where nothing tells which."""
    verdict: str
    """``capacity``, ``fragmentation`` or ``unknown``."""
    requested: int | None
    allocated: int | None
    """Live on the device; on the host, what was resident."""
    holes: int | None
    """Reserved by torch between live blocks."""
    free: int | None
    """Free on the device for everybody; on the host, the headroom."""
    total: int | None
    """Of the device; on the host, the limit of the container or batch job if there is one."""
    others: int | None
    """Used on the device by other processes."""
    live: LiveTensors
    advice: tuple[str, ...]

    def __str__(self) -> str:
        lines = [self.headline, *(f"  {line}" for line in self.live.lines(self.place))]
        lines += [f"  → {line}" for line in self.advice]
        return "\n".join(lines)

    @property
    def headline(self) -> str:
        """What happened in one sentence."""
        asked = f"{human_bytes(self.requested)} asked for" if self.requested else "size not told"
        told = [
            ("live" if self.place != "host" else "resident", self.allocated),
            ("in holes", self.holes),
            ("free" if self.place != "host" else "of headroom", self.free),
            ("used by other processes", self.others or None),
        ]
        parts = [f"{human_bytes(size)} {word}" for word, size in told if size is not None]
        of = f" of {human_bytes(self.total)}" if self.total else ""
        verdict = "" if self.verdict == UNKNOWN else f" by {self.verdict}"
        there = f"; {', '.join(parts)}{of}" if parts else ""
        return f"Out of memory on {self.place}{verdict}: {asked}{there}."


def explain(error: BaseException) -> OutOfMemory:
    """Return what an exception and the statistics tell; keeps neither it nor any tensor.

    Never raises: what can't be found out, perhaps for lack of memory, is left out.
    """
    kind = type(error).__name__
    try:
        told = read_message(error)
        if told.device == HOST:
            return _on_host(kind, told.requested, live_tensors())
        return _on_device(kind, told, live_tensors())
    except Exception:
        place = "device" if is_of_device(error) else HOST
        return OutOfMemory(
            kind, place, UNKNOWN, None, None, None, None, None, None, LiveTensors(), ()
        )


def judged(requested: int | None, free: int | None, holes: int | None) -> str:
    """Return the verdict: fragmentation where the free bytes would do, were they in one piece."""
    if requested is None or free is None or holes is None or requested <= free:
        return UNKNOWN
    return FRAGMENTATION if requested <= free + holes else CAPACITY


def _on_device(kind: str, told: Told, live: LiveTensors) -> OutOfMemory:
    levels = device_levels()
    _, _, number = told.device.partition(":")
    names = [name for name in levels if not number or name.endswith(f":{number}")]
    place = names[0] if len(names) == 1 else (told.device if number else "device")
    level = levels.get(place)
    allocated, holes = told.allocated, told.holes
    if allocated is None and level is not None:
        allocated, holes = level.allocated, level.reserved - level.allocated
    failure = OutOfMemory(
        kind,
        place,
        judged(told.requested, told.free, holes),
        told.requested,
        allocated,
        holes,
        told.free,
        told.total,
        _used_by_others(told),
        live,
        (),
    )
    return _with(failure, _advice_for_device(failure, told.allowed))


def _used_by_others(told: Told) -> int | None:
    """As the message lists them; where it doesn't, as in containers, what nothing else explains."""
    if told.others is not None:
        return told.others
    if told.total is None or told.free is None or told.process is None:
        return None
    rest = told.total - told.free - told.process
    return rest if rest > told.total * _OWN_OF_DRIVER else 0


def _on_host(kind: str, requested: int | None, live: LiveTensors) -> OutOfMemory:
    host = memory_stats().host
    verdict = UNKNOWN
    if requested is not None and host.headroom is not None and requested > host.headroom:
        verdict = CAPACITY
    failure = OutOfMemory(
        kind, "host", verdict, requested, host.rss, None, host.headroom, host.cgroup_limit, None,
        live, (),
    )  # fmt: skip
    return _with(failure, _advice_for_host(failure, host))


def _with(failure: OutOfMemory, advice: list[str]) -> OutOfMemory:
    return replace(failure, advice=tuple(advice))


def _advice_for_device(failure: OutOfMemory, allowed: int | None) -> list[str]:
    advice = []
    requested, free, allocated = failure.requested, failure.free, failure.allocated
    if requested and failure.total and requested > failure.total:
        return [_TOO_LARGE.format("the device")]
    if allowed is not None:
        advice.append(
            f"The process may use {human_bytes(allowed)}: a fraction was set "
            "(set_per_process_memory_fraction)."
        )
    if failure.verdict == FRAGMENTATION:
        advice.append(_against_holes())
        if allocated and failure.holes is not None and failure.holes < allocated // 10:
            advice.append(
                f"Little would be gained: {human_share(allocated / (allocated + failure.holes))} "
                "of what torch holds is live. Make the batch smaller, too."
            )
    elif failure.verdict == CAPACITY and allocated and requested and free is not None:
        lacking = requested - free - (failure.holes or 0)
        advice.append(
            f"At least {human_bytes(lacking)} are lacking, {human_share(lacking / allocated)} of "
            "what is live: a smaller batch with gradient accumulation, torch.utils.checkpoint, or "
            "autocast make activations smaller."
        )
    if failure.others and requested and failure.others >= requested - (free or 0):
        advice.append(
            f"Other processes use {human_bytes(failure.others)} of the device: "
            "`leakscope gpu` tells who they are."
        )
    return advice


def _against_holes() -> str:
    settings = [os.environ.get(name, "") for name in _SETTINGS]
    if any("expandable_segments:True" in setting for setting in settings):
        return (
            "There is enough memory, but in holes, though expandable_segments is on: make the "
            "sizes vary less (bucketed or padded batches)."
        )
    return (
        "There is enough memory, but in holes between live blocks: start the program with "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
    )


def _advice_for_host(failure: OutOfMemory, host: HostMemory) -> list[str]:
    advice = []
    requested = failure.requested
    if requested and host.headroom and requested > 4 * (host.headroom + host.rss):
        return [_TOO_LARGE.format("this machine's memory")]
    if host.cgroup_limit is not None and host.headroom is not None:
        advice.append(
            f"The container or job is limited to {human_bytes(host.cgroup_limit)}, of which "
            f"{human_bytes(host.headroom)} are left."
        )
    if host.malloc_free and requested and host.malloc_free >= requested:
        advice.append(
            f"The C library keeps {human_bytes(host.malloc_free)} free: "
            "clear_memory(force=True) may return it."
        )
    if failure.verdict == UNKNOWN and requested and host.headroom and requested <= host.headroom:
        advice.append(
            "The system has more than was asked for: look for a limit on address space "
            "(ulimit -v) or on overcommitted memory."
        )
    return advice
