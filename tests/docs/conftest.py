"""One process that records the snippets of all pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from snippet_recorder import SnippetRecorder


@pytest.fixture(scope="session")
def recorder() -> Iterator[SnippetRecorder]:
    """Return what records programs without the seconds that importing torch takes."""
    with SnippetRecorder() as it:
        yield it
