"""``leakscope doctor``: what is in force, what can be measured here, what to do about the rest."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leakscope.cli.output import exit_codes, looks, write_output
from leakscope.model import __version__
from leakscope.model.documents import Health, InForce, Item, State
from leakscope.model.errors import EXIT_ERROR, EXIT_OK, LeakscopeError
from leakscope.model.text import human_bytes, plural
from leakscope.probes.nvidia import DriverReading, read_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

    from leakscope.configuration.project import Configuration
    from leakscope.model.known import Own


_FRAMEWORKS = (
    "transformers", "lightning", "pytorch-lightning", "accelerate", "torchmetrics",
    "pytorch-ignite", "keras", "peft", "tensorboard", "wandb", "mlflow", "numpy", "pillow",
)  # fmt: skip
_LITTLE_ROOM = 1 << 30
_EPILOG = """\b
Examples:
  leakscope doctor
  leakscope doctor --json

\b
torch is imported in another process, for which a minute is allowed.
""" + exit_codes(
    "everything installed works; what is missing is listed",
    "something is broken: a setting that can't be followed, a torch that can't be imported, …",
)


@click.command(epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def doctor(*, as_json: bool) -> int:
    """Show settings in force and what can be measured.

    It also says where each setting is from, and what to do about what is missing.
    """
    from leakscope.report import render_json
    from leakscope.report.terminal import render_health_text

    health = examine()
    if as_json:
        write_output(render_json(health), None, "json")
    else:
        write_output(render_health_text(health, **looks()), None)
    return EXIT_ERROR if health.is_broken else EXIT_OK


def examine() -> Health:
    """Return everything that the command shows; changes nothing and raises nothing."""
    from leakscope.capture.capabilities import query_capabilities
    from leakscope.cli.check import limit_in
    from leakscope.configuration.project import (
        read_configuration,
        read_known_culprits,
        read_suppressions,
    )
    from leakscope.probes.environment import memory_abilities

    configuration = read_configuration()
    faults = list(configuration.faults)
    try:
        limit_in(configuration)
    except LeakscopeError as fault:  # such a limit isn't in force
        configuration.chosen.pop("check.max-growth")
        faults.append(str(fault))
    remarks = list(configuration.remarks)
    suppressions = 0
    try:
        found, unknown = read_suppressions(configuration.section)
        suppressions = len(found)
        remarks += unknown
    except LeakscopeError as fault:
        faults.append(str(fault))
    own = read_known_culprits(configuration.section)
    faults += own.faults
    items = [Item(name="configuration", state=State.BROKEN, text=fault) for fault in faults]
    items += [Item(name="configuration", state=State.NOTE, text=remark) for remark in remarks]
    return Health(
        leakscope_version=__version__,
        project=str(configuration.section.path or ""),
        settings=settings_in_force(configuration),
        suppressions=suppressions,
        items=[
            *items,
            _python(),
            *_torch(query_capabilities()),
            _frameworks(),
            _known_culprits(own),
            *memory_abilities(),
            _room(configuration),
        ],
    )


def settings_in_force(configuration: Configuration) -> list[InForce]:
    """Return every setting with its value and where that was chosen."""
    from leakscope.configuration import SETTINGS
    from leakscope.configuration.project import Chosen

    settings = []
    for setting in SETTINGS:
        found = configuration.chosen.get(setting.name, Chosen(setting.default, "default"))
        value = str(found.value) if isinstance(found.value, Path) else found.value
        entry = InForce(
            name=setting.name, variable=setting.variable, value=value, source=found.source
        )
        settings.append(entry)
    return settings


def _python() -> Item:
    version = f"{platform.python_version()} ({sys.implementation.name})"
    if any(importlib.util.find_spec(reader) is not None for reader in ("tomllib", "tomli")):
        return Item(name="Python", state=State.OK, text=version)
    advice = "It has no reader for TOML: [tool.leakscope] isn't read. Install tomli."
    return Item(name="Python", state=State.NOTE, text=version, advice=advice)


def _torch(facts: dict[str, Any]) -> list[Item]:
    if "fault" in facts:
        advice = "Try it yourself: python -c 'import torch'."
        return [Item(name="torch", state=State.BROKEN, text=facts["fault"], advice=advice)]
    state, advice = State.OK, ""
    if "torch_fault" in facts:
        text = f"can't be imported: {facts['torch_fault']}"
        state, advice = State.BROKEN, "Install it again."
    else:
        text = facts.get("torch", "not installed: programs without it are recorded all the same")
    items = [_walker(facts), Item(name="torch", state=state, text=text, advice=advice)]
    return [*items, *device_items(facts)] if "torch" in facts else items


def _walker(facts: dict[str, Any]) -> Item:
    name = "walker of the heap"
    if "walker_fault" in facts:
        text = f"the native one can't be loaded: {facts['walker_fault']}"
        advice = "It was built for another Python: install leakscope again."
        return Item(name=name, state=State.BROKEN, text=text, advice=advice)
    if facts.get("walker") == "native":
        return Item(name=name, state=State.OK, text="native")
    is_for_this = sys.platform == "linux" and not sysconfig.get_config_var("Py_GIL_DISABLED")
    mended = (
        "install a wheel for this Python, or a C compiler and leakscope's sources."
        if is_for_this and platform.libc_ver()[0] == "glibc"
        else "the native one is for Linux with glibc, and a Python with its global lock."
    )
    advice = f"Censuses take longer, so there are fewer, and say less: {mended}"
    return Item(name=name, state=State.MISSING, text="the slower one in Python", advice=advice)


def _frameworks() -> Item:
    from leakscope.probes.environment import environment

    facts = environment(_FRAMEWORKS)
    found = [f"{name} {facts[name]}" for name in _FRAMEWORKS if name in facts]
    return Item(name="libraries", state=State.OK, text=", ".join(found) or "none that matter")


def _known_culprits(own: Own) -> Item:
    from leakscope.analysis.remedies.catalogue import shipped

    name, catalogue = "known culprits", shipped()
    mine = f", {len(own.entries)} of your own" if own.entries else ""
    if catalogue.faults:
        return Item(name=name, state=State.MISSING, text=catalogue.faults[0])
    entries = plural(len(catalogue.entries), "entry")
    return Item(name=name, state=State.OK, text=f"version {catalogue.version}, {entries}{mine}")


def _room(configuration: Configuration) -> Item:
    """Return whether runs can be recorded where they go."""
    name, runs = "folder of runs", Path(configuration.value("runs")).absolute()
    try:
        folder = next(path for path in (runs, *runs.parents) if path.exists())
        free = shutil.disk_usage(folder).free
    except (OSError, ValueError, StopIteration) as fault:
        return Item(name=name, state=State.BROKEN, text=f"{runs} can't be looked at ({fault})")
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        advice = "Choose another with LEAKSCOPE_RUNS, or runs in [tool.leakscope]."
        text = f"{runs} can't be made: {folder} is no folder that you may write to"
        return Item(name=name, state=State.BROKEN, text=text, advice=advice)
    little = free < _LITTLE_ROOM
    return Item(
        name=name,
        state=State.NOTE if little else State.OK,
        text=f"{runs}, {human_bytes(free)} free",
        advice="A recording that finds no room ends there; the training goes on." if little else "",
    )


def device_items(
    facts: dict[str, Any], read: Callable[[], DriverReading] = read_gpus
) -> list[Item]:
    """Return how torch's devices and the NVIDIA driver stand.

    ``facts`` are what the process that imported torch reported.
    """
    reading = read()
    return [_torch_devices(facts, reading), _driver(facts, reading)]


def _torch_devices(facts: dict[str, Any], reading: DriverReading) -> Item:
    build = facts.get("cuda_build") or facts.get("hip_build")
    kind = "CUDA" if facts.get("cuda_build") else "ROCm"
    state, advice = State.OK, ""
    if facts.get("devices"):
        text = f"{plural(facts['devices'], 'device')}, torch built for {kind} {build}"
    elif build:
        state, text = State.MISSING, f"torch is built for {kind} {build}, but can use no device"
        advice = "Look at nvidia-smi and CUDA_VISIBLE_DEVICES; in a container, pass the GPUs on."
    elif facts.get("accelerator"):
        text = facts["accelerator"]
    elif reading.gpus:
        state, text = State.MISSING, "torch is built without CUDA, though there is a GPU"
        advice = "Install a build of torch for CUDA."
    else:
        text = "none: torch is built for the CPU alone"
    return Item(name="devices", state=state, text=text, advice=advice)


def _driver(facts: dict[str, Any], reading: DriverReading) -> Item:
    name = "NVIDIA driver"
    if reading.gpus:
        sizes = [f" ({human_bytes(gpu.total)})" if gpu.total else "" for gpu in reading.gpus]
        text = ", ".join(gpu.name + size for gpu, size in zip(reading.gpus, sizes, strict=True))
        by_command = "It is read by nvidia-smi; with nvidia-ml-py it is read directly."
        advice = by_command if reading.source == "nvidia-smi" else ""
        return Item(name=name, state=State.OK, text=text, advice=advice)
    state, advice = State.OK, ""
    if facts.get("cuda_build"):
        state = State.MISSING
        advice = "What other processes hold on a GPU isn't shown: install nvidia-ml-py."
    return Item(name=name, state=state, text="reports no GPU", advice=advice)
