"""`leakscope gpu`: tells who uses each GPU, and ends nothing that nobody confirmed."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result

from leakscope.cli import leakscope
from leakscope.cli.output import exit_code_of

ROOT = Path(__file__).parents[2]
UUID = "GPU-e18afb8d-1627-f8ff-2ba3-c05c5a8e9e67"

START_AND_DIE = """
import multiprocessing, time
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(120,))
    worker.start()
    print(worker.pid, flush=True)
    time.sleep(120)
"""

# The command in a process of its own, where a plain file stands in for a GPU's device file.
COMMAND = """
import re, sys
from leakscope.cleanup import nvidia, survey as processes
processes._DEVICE_FILE = re.compile(re.escape(sys.argv.pop(1)) + "$")
sys.modules["pynvml"] = None
from leakscope.cli import main
main()
"""


def invoke(*words: str) -> Result:
    return CliRunner().invoke(leakscope, ["gpu", *words], standalone_mode=False)


class Machine:
    """A folder with an `nvidia-smi` that lists processes, and a file that stands in for a GPU's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.device = folder / "nvidia0"
        self.device.touch()
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        }

    def lists(self, *pids: int) -> None:
        rows = "\n".join(f"{UUID}, {pid}, 2048" for pid in pids)
        command = self.folder / "nvidia-smi"
        command.write_text(
            f'#!/bin/sh\ncase "$1" in\n--query-gpu=*) echo "0, {UUID}, 8192, 4096, 4096, A GPU";;\n'
            f"*) cat <<EOF\n{rows}\nEOF\n;;\nesac\n"
        )
        command.chmod(0o755)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", COMMAND, str(self.device), "gpu", *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=60, check=False,
            env=self.environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def answer(self, text: str) -> str:
        """Run `gpu --force` in a terminal, type an answer and return all that was shown."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            self.command("--force"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=self.environment,
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                read = os.read(ours, 4096)
            except OSError:
                break
            shown += read
            if b"anything else to leave it" in read:
                os.write(ours, text.encode() + b"\n")
        os.close(ours)
        assert process.wait(60) == 0
        return shown.decode()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def orphan(machine: Machine) -> Iterator[psutil.Process]:
    with machine.device.open("w") as file:
        parent = subprocess.Popen(
            [sys.executable, "-c", START_AND_DIE], stdout=subprocess.PIPE, stderr=file, text=True
        )
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    while worker.ppid() == parent.pid or "spawn_main" not in str(worker.cmdline()):
        time.sleep(0.02)
    yield worker
    if worker.is_running():
        worker.kill()


def test_without_a_gpu_one_sentence_and_1(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "leakscope", "gpu"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": str(tmp_path)}, timeout=60,
    )  # fmt: skip
    if done.returncode == 0:
        pytest.skip("there is a GPU here, and pynvml")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("leakscope: No NVIDIA GPU ")
    assert done.stderr.count("\n") == 1


def test_without_a_gpu_json_is_json_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    result = CliRunner().invoke(leakscope, ["gpu", "--json"])
    assert result.exit_code == 1
    output = json.loads(result.stdout)
    assert output["gpus"] == []
    assert "can be asked" in output["remark"]


@pytest.mark.parametrize("other", ["--json", "--stats-only"])
def test_force_goes_with_nothing_that_asks_no_questions(other: str) -> None:
    result = invoke("--force", other)
    assert result.exception is not None
    assert exit_code_of(result.exception) == 2


def test_processes_and_what_can_be_freed_are_shown(
    machine: Machine, orphan: psutil.Process
) -> None:
    machine.lists(os.getpid(), orphan.pid, 2**22 + 1)
    done = machine.run()
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "GPU 0 · A GPU · 4 GiB of 8 GiB used, 4 GiB free"
    states = {int(line.split()[2]): line for line in lines if line.startswith("      2 GiB")}
    assert " this  " in states[os.getpid()]
    assert " leftover " in states[orphan.pid]
    assert " unseen" in states[2**22 + 1]
    assert "was started by multiprocessing, which is gone" in done.stdout
    assert "2 GiB on GPU 0, by ending 1 leftover" in done.stdout
    assert f"kill {orphan.pid}\n" in done.stdout
    assert orphan.status() != "zombie"


def test_stats_only_gives_no_advice(machine: Machine, orphan: psutil.Process) -> None:
    machine.lists(orphan.pid)
    assert "kill" not in machine.run("--stats-only").stdout


def test_json_tells_the_same(machine: Machine, orphan: psutil.Process) -> None:
    machine.lists(orphan.pid)
    output = json.loads(machine.run("--json").stdout)
    assert output["source"] == "nvidia-smi"
    (process,) = output["gpus"][0]["processes"]
    assert (process["pid"], process["used"]) == (orphan.pid, 2 << 30)
    assert process["judgement"]["standing"] == "leftover"


def test_a_process_that_isnt_listed_but_has_a_gpu_open_is_shown(
    machine: Machine, orphan: psutil.Process
) -> None:
    machine.lists()
    done = machine.run()
    assert "no process is listed" in done.stdout
    assert "Yours, with a GPU open though the driver doesn't list them" in done.stdout
    assert f"kill {orphan.pid}\n" in done.stdout


def test_force_without_a_terminal_ends_nothing(machine: Machine, orphan: psutil.Process) -> None:
    machine.lists(orphan.pid)
    done = machine.run("--force")
    assert done.returncode == 1
    assert "nothing was ended" in done.stderr
    assert orphan.status() != "zombie"


@pytest.mark.parametrize("answer", ["", "y", "yes", "1"])
def test_force_ends_nothing_for_another_answer(
    machine: Machine, orphan: psutil.Process, answer: str
) -> None:
    machine.lists(orphan.pid)
    assert "Left alone." in machine.answer(answer)
    assert orphan.status() != "zombie"


def test_force_ends_a_leftover_whose_number_was_typed(
    machine: Machine, orphan: psutil.Process
) -> None:
    machine.lists(orphan.pid)
    assert f"{orphan.pid} has ended." in machine.answer(str(orphan.pid))
    assert not orphan.is_running() or orphan.status() == "zombie"


def test_force_with_nothing_left_over_says_so(machine: Machine) -> None:
    machine.lists(os.getpid())
    done = machine.run("--force")
    assert done.returncode == 0
    assert "nothing is left over" in done.stderr
