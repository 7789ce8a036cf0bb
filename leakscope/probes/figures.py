"""matplotlib figures that pyplot keeps open until somebody closes them."""

from __future__ import annotations

import sys

from leakscope.model import gauge
from leakscope.probes.base import GuardedProbe


class FiguresProbe(GuardedProbe):
    """Counts pyplot's open figures where the program has imported pyplot; never imports it."""

    name = "figures"

    def measure(self) -> dict[str, int]:
        """Return the number of figures that pyplot's registry holds."""
        helpers = sys.modules.get("matplotlib._pylab_helpers")
        if helpers is None:
            return {}
        return {gauge.FIGURES: len(helpers.Gcf.figs)}
