"""What a library itself offers against a culprit that the catalogue knows.

It comes before every pattern, for it knows the library's own settings. Where a pattern recognises
the user's own source and offers a diff, that is what to change in how the library is used, and the
library's words stay beside it. A fault of the library's is not mended there.
"""

from __future__ import annotations

import msgspec

from leakscope.model.known import KnownCulprit, Nature
from leakscope.model.report import Remedy


def prefer(known: KnownCulprit | None, general: Remedy) -> Remedy:
    """Return the library's own remedy, the general one where the catalogue knows of nothing."""
    if known is None:
        return general
    if general.diff is None or known.nature is Nature.FAULT:
        return Remedy(title=known.remedy.title, text=known.remedy.text)
    return msgspec.structs.replace(general, text=known.remedy.text)
