"""What a library itself offers against a culprit that the catalogue knows.

It comes before every pattern, for it knows the library's own settings. Where a pattern offers a
diff against the user's source as well, that is kept and said.
"""

from __future__ import annotations

import msgspec

from leakscope.model.known import KnownCulprit
from leakscope.model.report import Remedy


def prefer(known: KnownCulprit | None, general: Remedy) -> Remedy:
    """Return the library's own remedy, the general one where the catalogue knows of nothing."""
    if known is None:
        return general
    own = Remedy(title=known.remedy.title, text=known.remedy.text)
    if general.diff is None:
        return own
    return msgspec.structs.replace(
        own, text=f"{own.text} In your source: {general.title}.", diff=general.diff
    )
