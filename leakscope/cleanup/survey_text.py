"""A survey of the GPUs as lines for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator

from leakscope.cleanup.standing import Standing
from leakscope.cleanup.survey import GpuProcess, GpuSurvey, GpuUse
from leakscope.model.printable import clipped
from leakscope.model.sizes import human_bytes, plural

_NEEDS_NO_REASON = (Standing.RUNNING, Standing.ASKING, Standing.OTHERS)
_HEADINGS = ("used", "process", "user", "state", "since", "command")
_NARROWEST = 20


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
        for process in survey.unlisted:
            yield from _process_lines(process, width, advise)
        yield ""
    if advise:
        yield from _advice(survey)
    yield f"Told by {survey.source}."


def _gpu_lines(gpu: GpuUse, width: int, advise: bool) -> Iterator[str]:
    used, total, free = (_size(size) for size in (gpu.used, gpu.total, gpu.free))
    yield f"GPU {gpu.index} · {gpu.name} · {used} of {total} used, {free} free"
    if not gpu.processes:
        yield "  no process is listed"
    else:
        yield _row(*_HEADINGS[:-1]) + _HEADINGS[-1]
    for process in gpu.processes:
        yield from _process_lines(process, width, advise)
    if gpu.unexplained and gpu.total and gpu.unexplained > gpu.total // 50:
        yield (
            f"  {human_bytes(gpu.unexplained)} are used by none of these: the driver, or processes "
            "that can't be seen from here"
        )


def _process_lines(process: GpuProcess, width: int, advise: bool) -> Iterator[str]:
    judgement = process.judgement
    # What has that number here is another process than the driver means.
    facts = None if judgement.standing is Standing.UNSEEN else process.facts
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.started)) if facts else ""
    head = _row(
        _size(process.used),
        str(process.pid),
        facts.user if facts else "?",
        judgement.standing.value,
        since,
    )
    command = facts.command if facts else ""
    yield (head + clipped(command, max(_NARROWEST, width - len(head)))).rstrip()
    if advise and judgement.standing not in _NEEDS_NO_REASON:
        yield f"{'':>23}↳ {judgement.reason}"


def _row(used: str, pid: str, user: str, state: str, since: str) -> str:
    return f"  {used:>9}  {pid:>8}  {user:<10.10}  {state:<10}  {since:<16}  "


def _advice(survey: GpuSurvey) -> Iterator[str]:
    processes = {one.pid: one for gpu in survey.gpus for one in gpu.processes}
    processes |= {one.pid: one for one in survey.unlisted}
    yield "What can be freed"
    leftovers = survey.leftovers
    for gpu in survey.gpus:
        if gpu.leftover_bytes:
            count = sum(one.is_leftover for one in gpu.processes)
            yield (
                f"  {human_bytes(gpu.leftover_bytes)} on GPU {gpu.index}, by ending "
                f"{plural(count, 'leftover')}"
            )
    if leftovers:
        yield f"    kill {' '.join(map(str, leftovers))}"
    others = [one for one in processes.values() if one.judgement.remedy and not one.is_leftover]
    if others:
        yield "  Perhaps, if you don't want them any more"
        yield from (f"    {one.judgement.remedy}" for one in others)
    if not leftovers and not others:
        yield "  Nothing from outside: no process of yours is left over."
    if any(one.judgement.standing is Standing.UNSEEN for one in processes.values()):
        yield "  Processes of other containers can be told from outside them, or with --pid=host."
    yield "  A process that runs gives memory back only by itself (leakscope.cleanup, inside it)."
    yield ""


def _size(size: int | None) -> str:
    return "?" if size is None else human_bytes(size)
