"""The errors a user may meet, each one sentence that says what is wrong and what to do."""

from __future__ import annotations

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_THRESHOLD = 2


class LeakscopeError(Exception):
    """A fault that the user can mend. ``slug`` names it in the documentation."""

    def __init__(self, message: str, *, slug: str = "error") -> None:
        super().__init__(message)
        self.slug = slug


class NoRunError(LeakscopeError):
    """The path is no run directory, or nothing in it can be read."""


class NewerSchemaError(LeakscopeError):
    """The run was written by a newer leakscope than this one."""


class RunExistsError(LeakscopeError):
    """The output directory already holds a run."""


class UnwritableError(LeakscopeError):
    """The output directory can't be written."""


class NoSnapshotError(LeakscopeError):
    """The file is no snapshot of torch's CUDA allocator, or not one that may be opened."""
