"""TOML: read by Python itself, before 3.11 by ``tomli``, from which Python has it."""

from __future__ import annotations

import importlib
from typing import Any


def read_toml(text: str) -> dict[str, Any]:
    """Return what a TOML document says.

    Raises:
        ImportError: this Python has no reader for it.
        ValueError: it is none.

    """
    try:
        reader = importlib.import_module("tomllib")
    except ImportError:
        reader = importlib.import_module("tomli")
    table: dict[str, Any] = reader.loads(text)
    return table
