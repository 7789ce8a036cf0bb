"""What of leakscope's own appears in pytest's report: its faults as warnings, and where a report
was written.

A fault of ours never fails a test that passes.
"""

from __future__ import annotations

import pytest

REPORTED = "leakscope_report"
"""The property of a test that names its report."""


class LeakscopeWarning(UserWarning):
    """leakscope could not measure a test, which therefore was only run."""


def tell(item: pytest.Item, fault: Exception) -> None:
    """Warn that a test was run without being measured."""
    text = f"leakscope could not measure {item.nodeid} ({type(fault).__name__}: {fault})"
    try:
        item.warn(LeakscopeWarning(text))
    except Warning:  # -W error makes errors of warnings, which would fail a test for our fault
        item.add_report_section("call", "leakscope", text)
