"""What was decided is written down as plain numbers, whatever the rules computed with."""

from __future__ import annotations

import msgspec
import numpy as np

from leakscope.analysis.run_context import Decisions


def test_figures_of_arrays_are_written_as_numbers() -> None:
    decisions = Decisions()
    decisions.add("a", "moved", "moved", figure=np.ones(2)[0], threshold=np.float64(0.7))
    (single,) = msgspec.json.decode(msgspec.json.encode(decisions.listed()))
    assert (single["figure"], single["threshold"]) == (1.0, 0.7)
    decisions.add("a", "moved", "moved")
    assert decisions.listed()[0].figure is None
