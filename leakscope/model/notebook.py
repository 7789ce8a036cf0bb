"""What a notebook keeps by itself, and what to do about that."""

from __future__ import annotations

import sys

OUTPUT_HISTORY = "the notebook's output history Out"
"""How the container is called in which IPython keeps what cells displayed."""
REMEDY = (
    "A cell's last expression is displayed and kept, as Out[3] and _3, until the kernel ends. End "
    "the line with a semicolon, or assign to a name and del it; Out.clear() or %reset -f out lets "
    "go of what is kept already."
)


def cells_of_shell() -> dict[str, int]:
    """Return the cells that IPython has run, by what it calls their code: the number of each."""
    shells = sys.modules.get("IPython.core.interactiveshell")
    kind = getattr(shells, "InteractiveShell", None)
    shell = getattr(kind, "_instance", None)
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", None)
    return numbers if isinstance(numbers, dict) else {}
