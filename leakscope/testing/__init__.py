"""Leaks found by tests: a scenario is repeated, and what grows with every round trip is named.

Nothing is imported here: pytest loads ``plugin`` in every run, also in those that never use it. A
fault of leakscope's never fails a test that passes: it is a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

REPORTED = "leakscope_report"
"""The property of a test that names its report."""


class LeakscopeWarning(UserWarning):
    """leakscope could not measure a test, which therefore was only run."""


def warn_unmeasured(item: pytest.Item, fault: Exception) -> None:
    """Warn that a test was run without being measured."""
    text = f"leakscope could not measure {item.nodeid} ({type(fault).__name__}: {fault})"
    try:
        item.warn(LeakscopeWarning(text))
    except Warning:  # -W error makes errors of warnings, which would fail a test for our fault
        item.add_report_section("call", "leakscope", text)
