"""Every process on every GPU: whose it is, whether it is left over, what ending it frees, as
values and as text.

Left over is only what is certain: this user's Python process that holds a GPU, was started by a
launcher which should still be its parent, and has been adopted by init because that launcher is
gone.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

import psutil

from leakscope.model.layout import AnswerCell, Column, Table, table_lines
from leakscope.model.text import clipped, human_bytes, one_line, plural
from leakscope.probes.nvidia import DriverReading, Gpu, read_gpus
from leakscope.probes.process import status_of

_PATIENCE_S = 10.0


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses a GPU, or has one open."""

    pid: int
    used: int | None
    """Bytes on that GPU; None where the driver doesn't report it."""
    facts: ProcessFacts | None
    """None where it can't be seen."""
    judgement: Judgement

    @property
    def is_leftover(self) -> bool:
        """Whether it is certain that nobody wants it."""
        return self.judgement.standing is ProcessStanding.LEFTOVER


@dataclass(frozen=True)
class GpuUse:
    """A GPU and its users, in bytes."""

    index: int
    name: str
    total: int | None
    used: int | None
    free: int | None
    processes: tuple[GpuProcess, ...]

    @property
    def unexplained(self) -> int | None:
        """Used, but by none of these processes: other containers, the driver; None if unknown."""
        sizes = [process.used for process in self.processes]
        if self.used is None or None in sizes:
            return None
        return max(0, self.used - sum(size or 0 for size in sizes))

    @property
    def leftover_bytes(self) -> int:
        """What ending the leftovers would free here, as far as the driver reports it."""
        return sum(process.used or 0 for process in self.processes if process.is_leftover)


@dataclass(frozen=True)
class GpuSurvey:
    """All GPUs; ``unlisted`` are this user's processes that have one open but aren't listed."""

    source: str | None
    """``nvidia-ml`` or ``nvidia-smi``; None where no GPU could be queried."""
    gpus: tuple[GpuUse, ...] = ()
    unlisted: tuple[GpuProcess, ...] = ()
    remark: str | None = None
    """Why there is none."""

    @property
    def processes(self) -> dict[int, GpuProcess]:
        """Those on all GPUs and those that aren't listed, by their numbers."""
        listed = [process for gpu in self.gpus for process in gpu.processes]
        return {process.pid: process for process in [*listed, *self.unlisted]}

    @property
    def leftovers(self) -> dict[int, GpuProcess]:
        """The leftovers among them."""
        return {pid: process for pid, process in self.processes.items() if process.is_leftover}


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
    if judge(now).standing is not ProcessStanding.LEFTOVER:
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


def _why_none(reading: DriverReading) -> str:
    if reading.source:
        return f"No NVIDIA GPU is to be seen here: {reading.source} lists none."
    return f"No NVIDIA GPU can be asked here ({one_line('; '.join(reading.faults))})."


class ProcessStanding(str, Enum):
    """What a process on a GPU is to the current user."""

    LEFTOVER = "leftover"
    DETACHED = "detached"
    STOPPED = "stopped"
    ENDED = "ended"
    RUNNING = "running"
    ASKING = "this"
    OTHERS = "other user"
    UNSEEN = "unseen"


@dataclass(frozen=True)
class Judgement:
    """A standing, why, and what the user can do; an empty remedy: nothing from outside."""

    standing: ProcessStanding
    reason: str
    remedy: str = ""


def judge(facts: ProcessFacts | None) -> Judgement:
    """Return what a process is to the current user; None is one that can't be seen."""
    if facts is None:
        return Judgement(
            ProcessStanding.UNSEEN,
            "not to be seen from here: in another container, or it has just ended",
        )
    if facts.is_asking:
        return Judgement(ProcessStanding.ASKING, "this command, or what started it")
    if not facts.is_own:
        return Judgement(ProcessStanding.OTHERS, f"belongs to {facts.user}")
    if facts.status == "zombie":
        return Judgement(
            ProcessStanding.ENDED,
            f"has ended, but its parent {_parent(facts)} has not taken note; no signal helps, "
            "ending the parent does",
        )
    if facts.holds_gpu is False:
        return Judgement(
            ProcessStanding.UNSEEN,
            "has no GPU open: the driver's number means a process in another container",
        )
    return _judge_own(facts)


def _judge_own(facts: ProcessFacts) -> Judgement:
    if facts.status in ("stopped", "tracing-stop"):
        return Judgement(
            ProcessStanding.STOPPED,
            "is stopped (Ctrl-Z, or a debugger) and keeps its memory",
            f"kill -CONT {facts.pid}   # goes on; or: kill {facts.pid}; kill -CONT {facts.pid}",
        )
    if not facts.is_adopted:
        return Judgement(ProcessStanding.RUNNING, f"its parent {_parent(facts)} is there")
    if facts.is_service:
        return Judgement(ProcessStanding.RUNNING, "a service that systemd watches over")
    if facts.launcher and facts.is_python and facts.holds_gpu:
        return Judgement(
            ProcessStanding.LEFTOVER,
            f"was started by {facts.launcher}, which is gone",
            f"kill {facts.pid}",
        )
    if facts.ignores_hangup:
        reason = "has no parent any more, and was made to outlive its terminal (nohup)"
    else:
        reason = "has no parent any more: left over, or meant to run in the background"
    return Judgement(ProcessStanding.DETACHED, reason, f"kill {facts.pid}   # if you don't want it")


def _parent(facts: ProcessFacts) -> str:
    if not facts.parent:
        return "outside this container"
    return f"{facts.parent_name or 'process'} ({facts.parent})"


T = TypeVar("T")

_PROC = Path("/proc")
_DEVICE_FILE = re.compile(r"/dev/nvidia\d+$")
"""What a process that uses a GPU holds open; monitors may hold ``/dev/nvidiactl`` alone."""
_INITS = frozenset(
    [
        *("systemd", "init", "launchd", "runit", "s6-svscan"),
        *("tini", "docker-init", "dumb-init", "catatonit", "pause"),
    ]
)
"""Processes that adopt those whose parent has ended, apart from process 1."""
_COMMANDS = (
    ("multiprocessing", re.compile(r"from multiprocessing\.(spawn|forkserver)\b")),
    ("Jupyter", re.compile(r"ipykernel_launcher|-m ipykernel\b")),
)
_WORKER = "pt_data_worker"
"""How torch names the workers of a DataLoader."""
_TORCHRUN = "TORCHELASTIC_RUN_ID"
"""In the environment of what torchrun started."""
_PYTHON = re.compile(r"^(python|pypy|pt_main|pt_data|torchrun|ray::)")


@dataclass(frozen=True)
class ProcessFacts:
    """One process, as it was when looked at."""

    pid: int
    user: str
    is_own: bool
    """Whether it runs for the current user."""
    is_asking: bool
    """Whether it is this process or one that led to it."""
    command: str
    is_python: bool
    started: float
    """Seconds since the epoch."""
    status: str
    parent: int
    parent_name: str
    is_adopted: bool
    """Whether an init of the machine, the session or the container is its parent."""
    is_service: bool
    """Whether systemd started it and watches over it."""
    ignores_hangup: bool
    """Whether it was made to outlive its terminal, as ``nohup`` does."""
    launcher: str | None
    """Who starts such processes and should be its parent: ``torchrun``, ``DataLoader``, …"""
    holds_gpu: bool | None
    """Whether it has a GPU's device file open; None where that can't be seen."""


def look_at(pid: int) -> ProcessFacts | None:
    """Return the facts about a process; None where no process of that number is to be seen."""
    try:
        return _facts(psutil.Process(pid))
    except (psutil.Error, OSError):
        return None


def own_gpu_holders() -> list[ProcessFacts]:
    """Return this user's other processes that have a GPU's device file open."""
    numbers = [pid for pid in psutil.pids() if pid != os.getpid() and holds_gpu(pid)]
    found = [look_at(pid) for pid in numbers]
    return [facts for facts in found if facts is not None and facts.is_own]


def holds_gpu(pid: int) -> bool | None:
    """Return whether a process has a GPU's device file open; None where that can't be seen."""
    links = _answer_or(lambda: list((_PROC / str(pid) / "fd").iterdir()), None)
    if links is None:
        return None
    # One that was closed since leads nowhere.
    return any(_DEVICE_FILE.match(str(_answer_or(link.readlink, link))) for link in links)


def _facts(process: psutil.Process) -> ProcessFacts:
    started = process.create_time()
    is_own = _is_own(process)
    asking = psutil.Process()
    lineage: list[psutil.Process] = _answer_or(asking.parents, [])
    words = _answer_or(process.cmdline, []) or [_answer_or(process.name, "?")]
    command = one_line(" ".join(words))
    parent = _answer_or(process.parent, None)
    parent_name = _answer_or(parent.name, "") if parent is not None else ""
    # A Python that is a container's first process may be the launcher.
    is_init = parent is not None and (parent.pid == 1 or parent_name in _INITS)
    thread = _read(process.pid, "comm").strip()
    program = words[0].rpartition("/")[2]
    ignored = int(status_of(process.pid).get("SigIgn", "0"), 16)
    return ProcessFacts(
        pid=process.pid,
        user=one_line(_answer_or(process.username, "?")),
        is_own=is_own,
        is_asking=process.pid in {asking.pid, *(parent.pid for parent in lineage)},
        command=command,
        is_python=bool(_PYTHON.match(program) or _PYTHON.match(thread)),
        started=started,
        status=_answer_or(process.status, ""),
        parent=parent.pid if parent is not None else 0,
        parent_name=one_line(parent_name),
        is_adopted=is_init and not _PYTHON.match(parent_name),
        is_service=_is_service(_read(process.pid, "cgroup")),
        ignores_hangup=bool(ignored >> (signal.SIGHUP - 1) & 1),
        launcher=_launcher(process, command, thread),
        holds_gpu=holds_gpu(process.pid),
    )


def _launcher(process: psutil.Process, command: str, thread: str) -> str | None:
    if thread == _WORKER:
        return "DataLoader"
    for launcher, words in _COMMANDS:
        if words.search(command):
            return launcher
    environment: dict[str, str] = _answer_or(process.environ, {})
    return "torchrun" if _TORCHRUN in environment else None


def _is_own(process: psutil.Process) -> bool:
    if not hasattr(os, "getuid"):
        return bool(_answer_or(process.username, "") == _answer_or(psutil.Process().username, "?"))
    real, effective, _ = process.uids()
    return bool(real == effective == os.getuid())


def _is_service(groups: str) -> bool:
    """Whether the innermost unit in a process's control groups is a service of systemd."""
    units = [
        part
        for line in groups.splitlines()
        for part in line.rpartition(":")[2].split("/")
        if part.endswith((".service", ".scope"))
    ]
    return bool(units) and units[-1].endswith(".service") and not units[-1].startswith("user@")


def _read(pid: int, name: str) -> str:
    return _answer_or(lambda: (_PROC / str(pid) / name).read_text(errors="replace"), "")


def _answer_or(query: Callable[[], T], otherwise: T) -> T:
    """What the system says about a process: little of another user's, nothing of an ended one."""
    try:
        return query()
    except (psutil.Error, OSError):
        return otherwise


_NEEDS_NO_REASON = (ProcessStanding.RUNNING, ProcessStanding.ASKING, ProcessStanding.OTHERS)
_COLUMNS = (
    Column("used", width=11),
    Column("process", width=8),
    Column("user", number=False, width=10),
    Column("state", number=False, width=10),
    Column("since", number=False, width=16),
    Column("command", number=False, flexible=True, least=20),
)
_LONGEST_USER = 10
_REASON_INDENT = " " * 23
"""Under the user."""


def survey_lines(survey: GpuSurvey, *, width: int = 100, advise: bool = True) -> Iterator[str]:
    """Yield what was found; with advice also why and what can be freed, and how."""
    if not survey.gpus:
        yield survey.remark or ""
        return
    for gpu in survey.gpus:
        yield from _gpu_lines(gpu, width, advise)
        yield ""
    if survey.unlisted:
        yield "Yours, with a GPU open though the driver doesn't list them"
        yield from _process_lines(survey.unlisted, width, advise)
        yield ""
    if advise:
        yield from _advice(survey)
    yield f"Told by {survey.source}."


def _gpu_lines(gpu: GpuUse, width: int, advise: bool) -> Iterator[str]:
    used, total, free = (_size_text(size) for size in (gpu.used, gpu.total, gpu.free))
    yield f"GPU {gpu.index} · {gpu.name} · {used} of {total} used, {free} free"
    if gpu.processes:
        yield from _process_lines(gpu.processes, width, advise)
    else:
        yield "  no process is listed"
    if gpu.unexplained and gpu.total and gpu.unexplained > gpu.total // 50:
        yield (
            f"  {human_bytes(gpu.unexplained)} are used by none of these: the driver, or processes "
            "that can't be seen from here"
        )


def _process_lines(processes: Sequence[GpuProcess], width: int, advise: bool) -> Iterator[str]:
    """Yield a table of processes, each with the reason of its state below it."""
    table = Table(_COLUMNS, [_cells(process) for process in processes])
    headings, *lines = table_lines(table, width)
    yield headings
    for process, line in zip(processes, lines, strict=True):
        yield line
        judgement = process.judgement
        if advise and judgement.standing not in _NEEDS_NO_REASON:
            yield f"{_REASON_INDENT}↳ {judgement.reason}"


def _cells(process: GpuProcess) -> list[AnswerCell]:
    judgement = process.judgement
    # What has that number here is another process than the driver means.
    facts = None if judgement.standing is ProcessStanding.UNSEEN else process.facts
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.started)) if facts else ""
    texts = (
        _size_text(process.used),
        str(process.pid),
        clipped(facts.user, _LONGEST_USER) if facts else "?",
        judgement.standing.value,
        since,
        facts.command if facts else "",
    )
    return [AnswerCell(text) for text in texts]


def _advice(survey: GpuSurvey) -> Iterator[str]:
    processes = survey.processes
    yield "What can be freed"
    leftovers = survey.leftovers
    for gpu in survey.gpus:
        if gpu.leftover_bytes:
            count = sum(process.is_leftover for process in gpu.processes)
            yield (
                f"  {human_bytes(gpu.leftover_bytes)} on GPU {gpu.index}, by ending "
                f"{plural(count, 'leftover')}"
            )
    if leftovers:
        yield f"    kill {' '.join(map(str, leftovers))}"
    others = [
        process
        for process in processes.values()
        if process.judgement.remedy and not process.is_leftover
    ]
    if others:
        yield "  Perhaps, if you don't want them any more"
        yield from (f"    {process.judgement.remedy}" for process in others)
    if not leftovers and not others:
        yield "  Nothing from outside: no process of yours is left over."
    if any(process.judgement.standing is ProcessStanding.UNSEEN for process in processes.values()):
        yield "  Processes of other containers are visible from outside them, or with --pid=host."
    yield "  A process that runs gives memory back only by itself (leakscope.cleanup, inside it)."
    yield ""


def _size_text(size: int | None) -> str:
    return "?" if size is None else human_bytes(size)
