"""What is said of a key or a value that makes no sense."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from leakscope.model.errors import LeakscopeError
from leakscope.model.printable import clipped

_LONGEST = 60


def bad(sentence: str) -> LeakscopeError:
    """Return the error for a choice that can't be followed."""
    return LeakscopeError(sentence, slug="bad-configuration")


def unknown(key: str, known: Iterable[str], where: str) -> str:
    """Return a sentence that names the known key which is most like an unknown one."""
    names = list(known)
    shown = clipped(key, _LONGEST)
    likely = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    meant = f"did you mean {likely[0]}?" if likely else f"it knows {', '.join(names)}."
    return f"{where} has no {shown}; {meant}"
