"""The run directory: written while training, read afterwards, on any machine.

A run is a folder with a manifest (``run.json``), one append-only journal per process and, where a
supervisor watched, ``outcome.json``. Nothing waits for the end of the program: after ``kill -9``
every record that :meth:`RecordingWriter.write` acknowledged is readable. Nothing is ever pickled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leakscope.model import exports

if TYPE_CHECKING:
    from leakscope.recording.directory import (
        RunDirectory,
        redact_command,
        redact_environment,
        redact_text,
    )
    from leakscope.recording.reader import open_run
    from leakscope.recording.writer import RecordingWriter

__all__ = [
    "RecordingWriter",
    "RunDirectory",
    "open_run",
    "redact_command",
    "redact_environment",
    "redact_text",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "directory": ("RunDirectory", "redact_command", "redact_environment", "redact_text"),
        "reader": ("open_run",),
        "writer": ("RecordingWriter",),
    },
)
