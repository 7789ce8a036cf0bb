"""What `nvidia-smi` writes is understood, in the forms that NVIDIA documents and users posted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leakscope.probes import nvidia
from leakscope.probes.nvidia import parse_gpus, parse_processes, read_gpus

MIB = 1 << 20
UUID = "GPU-e18afb8d-1627-f8ff-2ba3-c05c5a8e9e67"
OTHER = "GPU-00000000-1627-f8ff-2ba3-c05c5a8e9e67"


def stand_in(folder: Path, script: str) -> None:
    """Write an `nvidia-smi` that answers by a shell script, to see how answers are taken."""
    command = folder / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin{os.pathsep}/usr/bin")
    monkeypatch.setattr(nvidia, "_read_nvml", lambda: (_ for _ in ()).throw(ImportError()))
    return tmp_path


def test_gpus_are_read_without_units() -> None:
    (gpu,) = parse_gpus(f"0, {UUID}, 40960, 1024, 39936, NVIDIA A100-SXM4-40GB\n").values()
    assert (gpu.index, gpu.uuid, gpu.name) == (0, UUID, "NVIDIA A100-SXM4-40GB")
    assert (gpu.total, gpu.used, gpu.free) == (40960 * MIB, 1024 * MIB, 39936 * MIB)


def test_sizes_may_carry_their_unit_and_lines_end_as_on_windows() -> None:
    (gpu,) = parse_gpus(f"1, {UUID}, 6144 MiB, 10 MiB, 6134 MiB, Quadro, with a comma\r\n").values()
    assert (gpu.used, gpu.name) == (10 * MIB, "Quadro, with a comma")
    assert parse_processes(f"{UUID}, 40170, 185 MiB\r\n") == [(UUID, 40170, 185 * MIB)]


@pytest.mark.parametrize(
    "shown",
    ["[N/A]", "N/A", "[Not Supported]", "[Insufficient Permissions]", "[Unknown Error]", ""],
)
def test_what_the_driver_doesnt_tell_is_none_and_the_rest_is_kept(shown: str) -> None:
    line = f"0, {UUID}, {shown}, {shown}, {shown}, NVIDIA A100-SXM4-80GB"
    (gpu,) = parse_gpus(line).values()
    assert (gpu.total, gpu.used, gpu.free) == (None, None, None)
    assert parse_processes(f"{UUID}, 524, {shown}") == [(UUID, 524, None)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found\n",
        "No running processes found\n",
        "gpu_uuid, pid, used_gpu_memory [MiB]\n",
        "index, uuid, memory.total [MiB], memory.used [MiB], memory.free [MiB], name\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "\x00\xff,,,,,,,\n",
    ],
)
def test_lines_that_are_no_figures_are_skipped(text: str) -> None:
    assert parse_gpus(text) == {}
    assert parse_processes(text) == []


def test_processes_are_put_on_their_gpus(folder: Path) -> None:
    stand_in(
        folder,
        f"""case "$1" in
        --query-gpu=*) echo "0, {UUID}, 1000, 600, 400, A"; echo "1, {OTHER}, 1000, 0, 1000, B";;
        *) echo "{UUID}, 11, 200"; echo "{UUID}, 12, [N/A]"; echo "{UUID}, 11, 300";;
        esac""",
    )
    reading = read_gpus()
    assert reading.source == "nvidia-smi"
    assert [gpu.processes for gpu in reading.gpus] == [{11: 300 * MIB, 12: None}, {}]


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("echo NVIDIA-SMI has failed because it couldn\\'t communicate; exit 9", "has failed"),
        ("exit 6", "ended with code 6"),
        ("echo 'No devices were found'; exit 6", "No devices were found"),
    ],
)
def test_a_failing_driver_is_reported_in_its_own_words(
    folder: Path, script: str, fault: str
) -> None:
    stand_in(folder, script)
    reading = read_gpus()
    assert (reading.source, reading.gpus) == (None, ())
    assert fault in reading.faults[1]


def test_a_driver_that_hangs_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "_TIMEOUT_S", 0.2)
    stand_in(folder, "exec sleep 60")
    assert "did not answer" in read_gpus().faults[1]


def test_a_machine_without_it_is_reported(folder: Path) -> None:
    assert read_gpus().faults == (
        "nvidia-ml: the module pynvml is not installed",
        "nvidia-smi: it is not installed",
    )
