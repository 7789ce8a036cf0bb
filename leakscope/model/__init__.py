"""The vocabulary of leakscope as typed values, and how sizes and foreign names are written down.

Every other room speaks in these types and this room imports none of them: no torch, no input or
output, no arithmetic but rounding. Values that cross a process boundary are :class:`msgspec.Struct`
records, so that a recording written by somebody else is decoded by type and never executes
anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def exports(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__`` (PEP 562).

    Args:
        package: The package's own name.
        modules: For each module below it, the names that the package takes from there. None of
            them may be a module's name: importing that module would hide it.

    """
    homes = {name: module for module, names in modules.items() for name in names}

    def attribute(name: str) -> Any:
        if name not in homes:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message)
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        vars(sys.modules[package])[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return attribute, names
