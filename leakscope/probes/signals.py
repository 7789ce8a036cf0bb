"""What the kernel tells of another process's signals and of its state (Linux)."""

from __future__ import annotations

from pathlib import Path


def catches(pid: int, number: int) -> bool | None:
    """Return whether a process has a handler for a signal; None where that can't be told."""
    caught = status_of(pid).get("SigCgt")
    try:
        return None if caught is None else bool(int(caught, 16) >> (number - 1) & 1)
    except ValueError:
        return None


def status_of(pid: int) -> dict[str, str]:
    """Return the fields of ``/proc/PID/status``; none where there is no such process or file."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return {}
    fields = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in fields}
