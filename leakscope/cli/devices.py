"""What torch and the driver tell of devices, for ``leakscope doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leakscope.cleanup.nvidia import Reading, read_gpus
from leakscope.model.health import Item, State
from leakscope.model.sizes import human_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Callable


def device_items(facts: dict[str, Any], read: Callable[[], Reading] = read_gpus) -> list[Item]:
    """Return how torch's devices and the NVIDIA driver stand.

    Args:
        facts: What the process that imported torch told.
        read: Asks the driver.

    """
    reading = read()
    return [_torch_devices(facts, reading), _driver(facts, reading)]


def _torch_devices(facts: dict[str, Any], reading: Reading) -> Item:
    build = facts.get("cuda_build") or facts.get("hip_build")
    kind = "CUDA" if facts.get("cuda_build") else "ROCm"
    if facts.get("devices"):
        text = f"{plural(facts['devices'], 'device')}, torch built for {kind} {build}"
        return Item(name="devices", state=State.OK, text=text)
    if build:
        return Item(
            name="devices",
            state=State.MISSING,
            text=f"torch is built for {kind} {build}, but can use no device",
            advice="Look at nvidia-smi and CUDA_VISIBLE_DEVICES; in a container, pass the GPUs on.",
        )
    if facts.get("accelerator"):
        return Item(name="devices", state=State.OK, text=facts["accelerator"])
    if reading.gpus:
        return Item(
            name="devices",
            state=State.MISSING,
            text="torch is built without CUDA, though there is a GPU",
            advice="Install a build of torch for CUDA.",
        )
    return Item(name="devices", state=State.OK, text="none: torch is built for the CPU alone")


def _driver(facts: dict[str, Any], reading: Reading) -> Item:
    name = "NVIDIA driver"
    if reading.gpus:
        gpus = ", ".join(
            f"{gpu.name}" + (f" ({human_bytes(gpu.total)})" if gpu.total else "")
            for gpu in reading.gpus
        )
        by_command = reading.source == "nvidia-smi"
        advice = "It is asked by nvidia-smi; nvidia-ml-py asks NVML itself." if by_command else ""
        return Item(name=name, state=State.OK, text=gpus, advice=advice)
    wanted = bool(facts.get("cuda_build"))
    return Item(
        name=name,
        state=State.MISSING if wanted else State.OK,
        text="tells of no GPU",
        advice="What other processes hold on a GPU isn't told: install nvidia-ml-py."
        if wanted
        else "",
    )
