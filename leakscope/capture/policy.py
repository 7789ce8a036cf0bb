"""Every number of the budget: how much time measuring may cost, and how that is divided."""

from __future__ import annotations

# The profile of native allocations

NATIVE_SHARE = 0.05
"""Part of the budget for looks at what is live where no census is taken: new heights of memory."""
NATIVE_FLOOR_SECONDS = 0.1
"""Seconds for them however short a run is: two first looks in a torch process, names included."""

BLOCKS_SHARE = 0.5
"""Part of the budget that following Python's own blocks may take."""
BLOCKS_JUDGED_SECONDS = 5.0
"""After so long it is looked at whether following them has kept to it."""

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
TRACING_BY_TIME_SECONDS = 0.5
"""Seconds that one lasts at most where boundaries come by time: a service answers many requests in
them, and what lives at the end is to be read."""
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
outgrow the processor's caches make a block cost more than in the calibration."""
# Censuses: what they are expected to cost before they were measured

RECORD_SECONDS = 80e-6
"""Seconds of a boundary that is recorded without a census, by `benchmarks/overhead.py`."""
FOCUSED_SECONDS = 0.010
"""Seconds of a census of the user's names. Measured: 3 to 7 ms, gauges and recording on top."""
SECONDS_PER_BLOCK = 0.4e-6
"""Seconds of a walk per block that Python has allocated, by `benchmarks/heap`, rounded up."""
WHOLE_SECONDS_PER_BLOCK = 0.5e-6
"""The same of a whole walk, which names the libraries' objects too and seals them. Measured: 0.42 s
in the zoo's processes, of a million blocks."""
LIBRARY_BLOCKS = 1_500_000
"""Blocks: more than libraries make. What is beyond is the user's, which a focused census meets."""
RESUMED_PART = 0.25
"""Part of a whole walk that one takes which goes on from a seal, before any was measured. Measured:
70 to 85 ms after 0.3 to 0.45 s in a process with torch, less in one without libraries."""
RECENT = 0.4
"""Weight of the newest sample in an estimate of a cost: three samples make most of it."""
PACE_LASTING = 0.8
"""Weight of a census in the estimate of how busy the machine is, with each that follows."""
MOST_SLOWED = 4.0
"""Times: whatever a census has waited for, its program is held up no longer than that."""

# The floor: what a run gets at once, whatever the budget

FLOOR_SHARE = 0.035
"""Part of the run so far, besides the whole walk: gauges and recording included."""
FLOOR_SECONDS = 0.15
"""Seconds at once, on a machine that has nothing else to do: a dozen censuses of names."""
FLOOR_FULL = 0.5
"""Full censuses have so much besides the floor, where they are slow: as many of the user's names
take place in between, so that a run of ten seconds is seen evenly."""
FULL_CHEAP = 2.0
"""Times what a census of the user's names takes: full ones that cost no more take its place."""
FLOOR_AT_KEY = 6
"""Censuses that each kind of boundary between phases gets from the floor."""
EXEMPT_CENSUSES = 16
"""Censuses beyond the floor's limit, in all: a run of a second deserves a verdict too."""
EXEMPT_AT_KEY = 2
"""Of them at one kind of boundary: two are a difference."""
EXEMPT_BEGINNINGS = 4
"""The same where training passes begin: no verdict takes fewer comparable censuses than four."""
BEGINNING_SECONDS = 1.0
"""Seconds: censuses that cost more are not exempt there."""
RARE_FROM_SECONDS = 30.0
RARE_FURTHER = 2.0
"""Where every census takes longer than a pause may, as alongside a million records, one is
taken after so many seconds, and the next where the run has gone on so many times as long, if the
budget pays for it: ten in a run of four hours, without which it would have no verdict."""
FLOOR_OCCURRENCES = 3
"""Occurrences of a phase that get censuses inside from the floor."""
FLOOR_INSIDE = 0.7
"""Part of the floor that censuses inside phases may use."""
FLOOR_AT_FIRST_SECONDS = 0.05
FLOOR_WHOLE_SECONDS = 10.0
"""Seconds since the first census inside a phase from which and up to which what one without an end
may use at once becomes available, with the logarithm of time: nobody knows how long the run will
be, and censuses of its first ten steps alone tell nothing of the three hundred that follow."""
FLOOR_RECORDS = 200
"""Boundaries that are recorded before their part of the budget spaces them."""
LATE_AT_KEY = 3
"""So many more where training passes begin, at every second, then fourth, … of them, if they are
cheap or memory rises: what begins or ends after the first six must be seen in a run of seconds."""
LATE_SHARE = 0.03
"""Part of the run so far that those may take besides the floor."""
LATE_CHEAP_SECONDS = 0.03
LATE_RISE_BYTES = 2 << 20
"""Seconds, and bytes of resident memory since the latest census there, for that."""

WORKER_FLOOR_SHARE = 0.01
WORKER_FLOOR_SECONDS = 0.1
WORKER_EXPENSIVE_SECONDS = 0.05
WORKER_CHEAP_EXEMPT = 4
WORKER_CHEAP_SECONDS = 0.03
WORKER_RECORDS = 24
"""The floor of a DataLoader's worker, for which the training waits, and of which there are many: a
dataset of a hundred thousand objects is walked once at once, then when the budget pays for it."""

CHILD_END_SECONDS = 0.1
"""Seconds that the census at the end of a child process may take, for which its parent waits."""

# Whole walks

WHOLE_SHARE = 0.02
"""Part of the run so far that the first whole walk may take: in a process with torch it comes after
20 s. Until then what is new is weighed without one."""
WHOLE_SHARE_UNNAMED = 0.25
"""The same where memory rises that no name of the user's reaches: only a whole walk can tell what
it is, and the full censuses after it whether that grows."""
WHOLE_SHARE_AT_END = 0.5
"""The same when the run ends, where nobody waits for the program's next step."""
WHOLE_SHARE_SAVING = 0.25
"""The same where a census of the user's names takes longer than one that goes on from a seal."""
FULL_AT_KEY = 4
"""Full censuses at one kind of boundary that the floor pays for: growth takes four."""
CHECK_AFTER = 50
CHECK_AFTER_AT_END = 10
"""Resumed censuses after which a whole walk is taken again, to hold them against it; fewer at the
end of the run, where a pause disturbs nobody."""
CHECK_SHARE = 0.1
"""Part of the budget that such checks may take: a walk of 0.4 s at 2 % after 200 s."""

# The rest of the run: censuses and recordings that the budget pays for

RECORD_SHARE = 0.25
INSIDE_SHARE = 0.5
"""Parts of the budget for recording batches and for censuses between them."""
RESERVED = 4
"""Censuses between phases for which the budget keeps room, while they wait, before it pays for one
inside: there are a thousand batches to each end of a phase, and they would take it all."""
CALM_SHARE = 0.5
"""Part of the budget that is spent while nothing grows."""
SERVED_FROM = 100
"""Requests that a server has answered when it is known for one."""
SERVED_AFTER_SECONDS = 120.0
SERVED_SHARE = 0.004
"""Part of the time after those seconds that may be spent where each pause is felt by whoever waits
for an answer: as many requests feel one, and one in a hundred is what a p99 looks at."""
SERVED_SPACING_SECONDS = 2.0
"""The same as ``TIME_SPACING_SECONDS``, for a server: gauges alone take 2 ms there, for which some
requests wait."""
SERVED_FURTHER = 1.5
"""The same as ``TIME_FURTHER``, for a server. A census of 10 ms delays the requests that come
meanwhile and those behind them, some ten at 400 a second: one in a hundred makes a p99."""
SERVED_SLOW_PART = 0.2
"""Part of what slow gauges may take otherwise at once and in proportion to the run, where they are
read at boundaries: no answer is given meanwhile."""
FRACTIONS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where in a phase of known length censuses lie: the same places each time."""
EARLY_MARKS = 100
"""Batches of a phase without an end after which censuses lie closer, in proportion: its last part
must be seen often enough to tell what goes on growing from what has filled up."""
LATE_MARK = 1.5
"""Times the age of a phase without an end at its last census, after which the next mark is late:
steps that take longer from some point on would be looked at too seldom to tell what began there."""
RECORDS_PER_OCTAVE = 2000
CENSUSES_PER_OCTAVE = 64
"""After so many, the spacing doubles: recordings of long runs grow with the logarithm of time."""
KEYS_KEPT = 256
"""Kinds of boundaries that are known: a program may make up any number of names."""
PATIENCE = 3
"""Times that a kind gives way to those that were refused before it."""
SPARSE_SECONDS = 60.0
"""Seconds between censuses beyond which the report says what they cost."""

# Gauges that are slow to read

SLOW_FLOOR_SECONDS = 0.03
SLOW_FLOOR_SHARE = 0.01
SLOW_FLOOR_UNTIL = 30.0
"""Seconds at once, and part of the run so far up to so many seconds, that each such source may take
between phases, at the cost of one reading once its imports are done: thirty readings of most. Later
the budget pays: a training of an hour may have thousands of epochs."""
SLOW_FLOOR_SPACING = 1 / 3
SLOW_FLOOR_COST = 1 / 15
"""Beyond these it is read again after so much of the time since the first boundary, and such that
it takes no more than this part of it, whatever the budget says: the growth model takes five
readings, and of those of a slow source, taken one after the other, none would be left for the end
of a short run."""
MAPPINGS_FLOOR_SPACING = 1 / 4
MAPPINGS_FLOOR_COST = 1 / 80
"""The same for memory by kind of mapping, at any boundary: it explains growth that other sources
show, so that readings spread over the run are enough. Measured: 2 ms where files are as they were,
else 12, and 50 with 5,000 mappings."""

# Pauses

PAUSE_FADES = 0.9
PAUSE_LEAST_PART = 0.5
"""What a census of a kind is expected to take fades with each that was left out for its pause, to
this part at least: after a slow moment it is tried again, one that takes far too long is not."""
PAUSE_GUESS = 2.0
"""Times the pause that the first resumed census may be expected to take: before it was measured
that is only a guess from the whole walk."""

# The end of the program's work

RETURN_LEAST_SECONDS = 0.05
"""Seconds that a call of the main module takes at least, to be looked at as it returns: in less no
program has done work of which anything could be judged."""
RETURN_CALLS = 20_000
"""Calls of the main module that are looked at: each costs 40 ns, all of them a millisecond. A
module that makes more is itself the loop, and its variables stay to the end."""
RETURN_FOREIGN_CALLS = 16
"""Calls in other threads meanwhile: none is inlined while they are looked at, and each takes
stack."""

# Boundaries by time, where no others come

TIME_WAKES_SECONDS = 0.05
"""Seconds from one look of the clock's thread to the next; it costs some microseconds."""
TIME_IDLE_SECONDS = 3.0
"""Seconds without a boundary of the program's own after which time makes them: a step of training
that takes longer is rare, and what time sees then is left out of its verdict."""
TIME_IDLE_SECONDS_OF_CHILD = 1.0
"""The same in a child process, which often lives for some seconds only and is no training."""
TIME_SPACING_SECONDS = 1.0
TIME_SPACING_SHARE = 1 / 60
"""Seconds, and part of the time so far, from one to the next: some sixty in a run of a minute, then
a number that grows with the logarithm of time."""
TIME_FLOOR = 12
"""Censuses at such boundaries that the floor pays for: …"""
TIME_FURTHER = 1.25
"""… each lies so many times further from the beginning than the one before it, so that a run of
twenty seconds has eight, evenly enough for a rate, and one of a minute thirteen."""
TIME_PATIENCE_SECONDS = 2.0
"""Seconds that a boundary waits for a moment without a backward pass or compilation."""
TIME_SETUP_SECONDS = 30.0
"""Seconds after which a program that still imports is taken to work inside an import."""
TIME_JOIN_SECONDS = 10.0
"""Seconds that the end of the recording waits for a census that the clock takes."""
TURN_SECONDS = 10.0
"""Seconds that an event of the program waits for such a census."""
