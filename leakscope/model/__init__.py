"""The vocabulary of leakscope as typed values, and how sizes and foreign names are written down.

Every other room speaks in these types and this room imports none of them: no torch, no input or
output, no arithmetic but rounding. Values that cross a process boundary are :class:`msgspec.Struct`
records, so that a recording written by somebody else is decoded by type and never executes
anything.
"""

from __future__ import annotations

__version__ = "0.1.0"
