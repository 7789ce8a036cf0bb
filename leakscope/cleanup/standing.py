"""Whether a process on a GPU is left over, and what can be done about it.

Left over is only what is certain: this user's Python process that holds a GPU, was started by a
launcher which should still be its parent, and has been adopted by init because that launcher is
gone. A background job also has no parent any more, and is wanted: so without a launcher's mark a
process without parent is called detached, and never ended by us.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from leakscope.cleanup.processes import ProcessFacts


class Standing(str, Enum):
    """What a process on a GPU is to the user who asks."""

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

    standing: Standing
    reason: str
    remedy: str = ""


def judge(facts: ProcessFacts | None) -> Judgement:
    """Return what a process is to the user who asks; None is one that can't be seen."""
    if facts is None:
        return Judgement(
            Standing.UNSEEN, "not to be seen from here: in another container, or it has just ended"
        )
    if facts.is_asking:
        return Judgement(Standing.ASKING, "this command, or what started it")
    if not facts.is_own:
        return Judgement(Standing.OTHERS, f"belongs to {facts.user}")
    if facts.status == "zombie":
        return Judgement(
            Standing.ENDED,
            f"has ended, but its parent {_parent(facts)} has not taken note; no signal helps, "
            "ending the parent does",
        )
    if facts.holds_gpu is False:
        return Judgement(
            Standing.UNSEEN,
            "has no GPU open: the driver's number means a process in another container",
        )
    return _judge_own(facts)


def _judge_own(facts: ProcessFacts) -> Judgement:
    if facts.status in ("stopped", "tracing-stop"):
        return Judgement(
            Standing.STOPPED,
            "is stopped (Ctrl-Z, or a debugger) and keeps its memory",
            f"kill -CONT {facts.pid}   # goes on; or: kill {facts.pid}; kill -CONT {facts.pid}",
        )
    if not facts.is_adopted:
        return Judgement(Standing.RUNNING, f"its parent {_parent(facts)} is there")
    if facts.is_service:
        return Judgement(Standing.RUNNING, "a service that systemd watches over")
    if facts.launcher and facts.is_python and facts.holds_gpu:
        return Judgement(
            Standing.LEFTOVER,
            f"was started by {facts.launcher}, which is gone",
            f"kill {facts.pid}",
        )
    if facts.ignores_hangup:
        reason = "has no parent any more, and was made to outlive its terminal (nohup)"
    else:
        reason = "has no parent any more: left over, or meant to run in the background"
    return Judgement(Standing.DETACHED, reason, f"kill {facts.pid}   # if you don't want it")


def _parent(facts: ProcessFacts) -> str:
    if not facts.parent:
        return "outside this container"
    return f"{facts.parent_name or 'process'} ({facts.parent})"
