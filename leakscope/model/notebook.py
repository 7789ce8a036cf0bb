"""What a notebook keeps by itself, and what to do about that."""

from __future__ import annotations

OUTPUT_HISTORY = "the notebook's output history Out"
"""How the container is called in which IPython keeps what cells displayed."""
REMEDY = (
    "A cell's last expression is displayed and kept, as Out[3] and _3, until the kernel ends. End "
    "the line with a semicolon, or assign to a name and del it; Out.clear() or %reset -f out lets "
    "go of what is kept already."
)
