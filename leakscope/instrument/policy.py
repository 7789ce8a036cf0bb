"""Numbers of the budget: how much time what is measured may cost, and how that is divided.

Each has its unit, and where it comes from. "Budget" is the share of wall time that the user allows.
"""

from __future__ import annotations

# The profile of native allocations

NATIVE_SHARE = 0.05
"""Part of the budget for looks at what is live where no census is taken: new heights of memory."""
NATIVE_FLOOR_SECONDS = 0.1
"""Seconds for them however short a run is: two first looks in a torch process, names included."""

# Windows of tracing: tracemalloc, and the allocator's history on devices

TRACING_SHARE = 0.5
"""Part of the budget that windows of one kind may take. The rest is for censuses and gauges."""
TRACING_FLOOR_SECONDS = 0.3
"""Seconds that windows of one kind may cost all together in a run however short it is: a program
of some seconds needs its lines named too. Half of what one window might last before costs were
measured while it was open; the zoo's programs need no more to have their lines found."""
TRACING_WINDOWS = 3
"""Windows in a run: lines are ranked by what one sees, more of them tell little."""
TRACING_WINDOWS_IN_PHASE = 2
"""Windows in a phase, so that a growing training leaves one for its validation."""
TRACING_BATCHES = 8
"""Batches after which a window has seen enough: what grows with each has then grown eight times."""
TRACING_MOST_SECONDS = 4.0
"""Seconds after which a window ends, cheap or not: what lives then is compared with its begin."""
TRACING_ASSUMED_SLOWDOWN = 1.0
"""Seconds that tracing is taken to add to each second of a program, where neither steps outside a
window nor counted blocks tell. Measured: 0.2 to 1.8 (1.2 to 2.8 times the time)."""
TRACING_PILOT = 3
"""Stretches of the program, outside a window, that make a usual pace: of fewer a median is none."""
TRACING_PACES_KEPT = 15
"""Latest stretches outside that count: the pace of a program drifts with its data and machine."""
TRACING_PHASES_KEPT = 100
"""Phases whose pace is known: a program may make up any number of names."""
TRACING_SAFETY = 1.5
"""What a window is foretold to cost is multiplied by this before it opens: tables of traces that
outgrow the processor's caches make a block dearer than in the calibration."""
