"""Every number by which a verdict is made: with its unit and where it comes from.

Shares are of the run unless they say otherwise: of the work from the first reading to the last.
Names end in their unit: ``_BYTES``, ``_S`` (seconds), ``_SHARE`` (a part of one), ``_FACTOR``
(times), ``_READINGS`` (measurements of a series); what counts is named by what it counts.

The sources: *shapes* is ``benchmarks/growth_shapes.py``, which counts what a number decides on
synthetic shapes; *zoo* is ``tests/zoo/ablation.py``, which halves and doubles each number over
recorded programs and prints whose verdict changes. A number without another source is held by the
zoo. Limits of what a report lists are no part of a verdict and stand where they are used.
"""

from __future__ import annotations

# The growth model: how many readings tell anything.

FEWEST_READINGS = 3
"""Readings below which nothing is concluded: two looks can't tell a level from a slope."""
FEWEST_GROWING = 5
"""Readings that a growing tail takes, and growth within a phase that has one passage. Of four,
noise alone rises every time once in 24 runs, of five once in 120."""
EVEN_READINGS = FEWEST_GROWING - 1
"""Readings that suffice if growth is even."""
EVEN_FACTOR = 1.6
"""They do if the steepest of their rises is at most so many times as steep as the least: a
warm-up's first rise is steeper, and of noise one series in 200 rises so."""
ALIKE_FACTOR = 2.5
"""Two pieces are one growth if the steeper one is at most so many times as steep."""
FEW_READINGS = 9
"""Up to so many the interval of slopes is too coarse: Kendall's score decides instead."""
Z_OF_FEW = 2.15
"""What it must reach: five readings do that if each is higher than all before, seven if of 21 pairs
two are not. Noise does in one series of a hundred."""
FEWEST_RISES = 3
"""Rises that growth takes, whatever the readings between: one is a jump, two are a coincidence."""
FEWEST_FLAT = 3
"""Readings that a flat tail takes, the one at which it begins among them."""

# The growth model: what is kept.

STEP_SHARE = 0.02
"""A change of less than this part of all growth is no rise and no release. Containers over-allocate
in steps of an eighth of their own size, which is little of what they hold."""
RELEASE_SCATTERS = 5.5
"""Readings scatter by so many standard deviations without a release."""
FEWEST_SCATTERED = 6
"""Readings from which scatter is estimated, a kink looks like it in fewer; and teeth from which the
lowest reading of each stands for it."""
NORMAL_MAD = 1.482602218505602
"""Standard deviations in the median absolute deviation of normal noise."""
ROUNDING = 1e-9
"""Scatter of less than this part of the range is the rounding of floats."""
LATE_SHARE = 2 / 3
"""Where the last third of a run, or of a tail, begins. A series that is released must
have come back to its least there; a tail of scattered readings must rise there too."""
EARLY_SHARE = 0.5
"""Scattered readings must have been as low within this part of the run already."""
EXACT_SHARE = 0.25
"""Readings are exact if a release of scatter's width is at most this part of the range."""

# The growth model: how long a tail must be.

GROWING_SHARE = 0.2
"""Part of the run that a growing tail takes."""
FLAT_SHARE = 0.25
"""Part of the run that a flat tail takes. A buffer that fills up in the middle of a run is seen
full in its last third; with a fourth the verdict comes one reading earlier."""
REST_FACTOR = 2.0
"""A flat tail is so many times as long as the longest rest before it: a staircase rests as well."""
LONG_REST_FACTOR = 1.3
"""Growth is not passed for going on after a rest, of a fourth of the tail or more, so many times as
long as the longest before it."""
END_SHARE = 0.1
"""A rest at the end of less than this part of the tail is none."""
JUMP_SHARE = 0.8
"""Growth came in jumps if fewer than ``FEWEST_RISES`` rises brought more than this part of it."""
JUMP_FACTOR = 1.5
"""A jump is so many times as steep as the growth that it is part of."""
LONE_SHARE = 0.5
"""A last reading after a gap of more than this part of the tail stands alone."""
FLAT_OF_RISE = 0.08
"""A tail is flat if by the upper end of its interval it gains at most this part of what was gained
before it."""
FLAT_OF_NOISE = 0.25
"""The same against the scatter of its readings. Readings without any trend reach it from some 40 of
them on; a drift of a third of the scatter is not passed for flat."""
USUAL_GAPS = 3.0
"""Readings count alike in a slope unless the work between is more than so many times the usual."""
Z_GROWING = 2.575829303548901
"""99 % two-sided: noise must not be accused once in 40 series."""
Z_INTERVAL = 1.959963984540054
"""95 %: the interval that is reported, and by which a tail is flat."""
MOST_FURTHER = 10.0
"""A verdict that would take more than so many runs is not waited for: no advice is given."""
LEAST_FURTHER = 0.25
"""Part of the tail for which a scattered trend is watched on at least."""

# The growth model: the shape.

BREAK_COST = 5.0
"""What a break must save, in units of the log-likelihood. Chosen on synthetic shapes: below 4 noise
breaks straight growth at 10 readings, above 8 a fill of 10 readings passes for growth."""
SCALE_SHARE = 0.02
"""Deviations of less than this part of the range don't speak against a straight line."""
MOST_KNOTS = 24
"""Places at which a break may lie, evenly over the readings: the fit takes a millisecond."""
MOST_READINGS = 90
"""Readings that are fitted and paired; of more, so many that keep the shape."""
SHORTEST_CONSTANT = 0.04
LONGEST_CONSTANT = 0.7
CONSTANTS_TRIED = 18
"""Time constants of an approach to a level that are tried, as shares of the run: shorter ones are
jumps, longer ones look straight."""
FEWEST_CURVED = 8
"""Readings that a curve takes; of fewer three pieces or a kink look the same."""
SETTLED = 3.0
"""Growth that settles exponentially is over after so many time constants: 95 % of it came."""
CURVE_GAIN = 2.0
"""How much better, in the units of ``BREAK_COST``, an exponential must fit than straight pieces."""
EVEN_HALVES = 0.85
"""A second half that rises at least so much as the first doesn't settle: where a time constant is
three times the run, it is this part."""
SLOWING = 0.5
"""A tail whose second half rises less than this part of its first slows down."""

# Noise: changes up to this much mean nothing.

GAUGE_NOISE_BYTES = float(1 << 20)
"""Resident memory moves by pages, arenas and stacks without any leak; so does garbage."""
SAMPLED_DEVIATIONS = 3.0
"""Standard deviations of an estimate from samples that count as noise."""
ROW_NOISE_BYTES = 4096.0
"""Retained sizes are exact, but tables of dicts and lists are over-allocated in small jumps."""
CHILDREN_NOISE_BYTES = float(4 << 20)
"""Of the memory of several processes together."""
ELSEWHERE_NOISE_BYTES = float(1 << 16)
"""Of what is new outside the user's names, which is weighed object by object."""
COUNT_NOISE = 0.5
"""Counts are exact."""

# Growth per event: chosen on synthetic series (tests/analysis/test_growth_events.py), where neither
# growth per step beside events nor growth per event beside others is put down to the wrong one.

FEWEST_EVENTS = 3
"""What happened less often in the stretch that a rate is of can't be told from a jump."""
EVENT_ALIKE = 2.0
"""Two counters that differ by no more than this, in the units of ``BREAK_COST``, explain a series
equally well: a likelihood ratio of e squared, the usual bound in comparing models by information
criteria (Burnham and Anderson 2002)."""
EVENT_MARGIN = 5.0
"""By so much an event must explain a series better than work does: the cost of a break."""
EVENT_WHOLE = 0.7
"""Part of what was gained that rates must account for, and the inverse that they may exceed it by:
a fit of least deviations passes over what came in a few jumps."""
EVENT_SHARE = 0.5
"""Part of that which events must bring for the growth to be told by them."""
EVENT_PART = 0.1
"""A second rate that brings less than this part of the growth is left out."""
EVENT_RARE = 0.5
"""What happens more often than this in each unit of work isn't told to coincide with it: a log
record of every step."""
EVENTS_LEADING = 3
"""Of two counters one is work or among so many that explain most alone."""
MOST_PIVOTS = 24
"""Rises of one kind through which a fit of two rates is tried to pass."""

# Units of work.

UNIT_SHARE = 0.7
"""The phase that carries this part of the growth gives the unit."""
TIMED_SHARE = 0.5
"""Part of the time without a boundary of the program's own from which growth is counted by time."""
EACH_STEP_SHARE = 0.7
"""Passes for so many of the steps, and more, are parts of the steps."""
FEWEST_STEPS = 20
"""With fewer, validations after every step or two are no rare thing."""
FEWEST_EPOCHS = 3
"""With fewer, growth is counted in steps."""
EPOCH_PREFERENCE = 1e-3
"""Part of the variation by which another counter must fit better than epochs."""
ENDING_S = 10.0
ENDING_SHARE = 0.1
"""A process that ends releases its memory: seconds that this may take, and part of its time."""

# Accumulation points: where in a tree of rows growth lies.

SPREAD_SHARE = 0.5
"""Growth lies in a container if this part of it comes from more objects, not larger ones; or if
this part is in no single object below."""
SMALL_SIBLING_SHARE = 0.3
"""An entry with less than this part of its container's growth is a small one."""
SIMILAR_SIBLINGS = 4
"""This many small entries of one container are one culprit: ``results``, not its keys."""
SIBLINGS_SHARE = 0.9
"""Entries make up their container's growth where they come to this part of it."""
BIG_DROP_SHARE = 0.7
"""An entry with this part of the growth is where it lies: Eclipse MAT's rule."""
SAME_PACE_SHARE = 0.5
"""What gains at least this part of as many items as another gains items as fast."""

# Growth within a phase.

FALLEN_SHARE = 0.5
"""What climbed in a phase has fallen back when less than this part of the climb is left."""
RETURNED_SHARE = 0.7
"""Part of the passages seen to their end in which it must have fallen back."""
OWNER_SHARE = 0.5
"""What climbs within a phase may be growth of an owner that gains so much of it across phases."""
ROOM_SHARE = 0.9
"""A passage has room for what climbed in it when it rises by this part of it: gauges and censuses
are read at different batches."""

# Paths that were seen too seldom to be judged by themselves.

REACHES = 0.7
"""Readings account for a stretch if they reach through so much of it."""
CARRIED_SHARE = 0.5
"""A path that makes up this part of what memory goes on to gain goes on with it."""
CARRIED_BYTES = float(1 << 20)
"""Such a path and memory must have gained so much."""
JUMP_STEEPNESS = 8.0
"""A rise so many times as steep as all others is a jump, as where a path got another name."""

# Exclusions of paths, in their order.

MOVED_SHARE = 0.7
"""``moved``: a path that gains so much of what another loses at the same time holds what that
held."""
GRADIENT_SHARE = 0.9
"""``follows_the_model``: what follows the gradients grows by no more than they do: small growth
would pass for noise."""
STATES_PER_PARAMETER = 3
"""``follows_the_model``: most optimizers keep at most so many tensors of a parameter's size for it:
Adam two or three."""
RESTED_SHARE = 0.25
"""``rested_since``: memory rests if it gains less than this part of what a path would have brought
by itself."""
LEAST_DUE_BYTES = float(512 << 10)
"""``rested_since``: less than this may come and go without any container."""
CAPACITY_OF_LIMIT = 0.25
"""``declares_a_bound``: a container is accused only if, full, it would fill this part of memory. So
is garbage that the next collection finds."""
UNANSWERED_CALLS = 64
"""``declares_a_bound``: a library's cache with as many entries that has never answered a call is no
cache. The first of every cache's calls find nothing."""

# Terms of private memory: floors, then the rules in their order.

UNNAMED_BYTES = float(4 << 20)
"""Growth without a name of less than this is no leak: libraries warm up by as much. A share of less
growth says nothing."""
UNNAMED_SHARE = 0.3
"""Part of the growth of memory that must lack a name for one to be missed."""
RELEASED_SHARE = 0.1
"""Part of the objects of a type by which their number may fall, while only native code refers to
them, and they still count as leaked: others of that type come and go. A queue that drains falls by
more: one of 64 in `tests/end_to_end/programs/leaky_encoder.c` by all of them."""
OPEN_POOL_BYTES = float(16 << 20)
"""The same where nobody can say that memory as a whole goes on growing."""
SLACK_BYTES = float(32 << 20)
SLACK_SHARE = 0.5
"""The same of free memory in the C heap, which settles over some epochs."""
HANDED_OUT_SHARE = 0.5
"""``first_touch``: if the C heap handed out less than this part of growth, its memory was handed
out before."""
SHAPE_CACHE_BYTES = float(1 << 30)
"""``new_shapes``: oneDNN's cache has 1,024 entries of a MiB at most: growth beyond is more than it
may hold."""
SHAPE_CACHE_ENTRIES = 1024
"""``new_shapes``: the entries of oneDNN's cache, unless its user says otherwise: more shapes than
these fill it."""
DRIVEN_BY_WORK_SHARE = 0.5
"""``new_shapes``: a leak brings between new shapes this part of what falls to the work there, or
more."""
REST_PARTS = 9
"""``new_shapes``: work between new shapes is divided so; half of the parts must show a leak. One
jump, as when the C heap is enlarged, is in one of them."""
REST_OF_SHAPES_SHARE = 0.1
"""``new_shapes``: less of all work than this, done between new shapes, tells nothing; nor does any
to which less growth falls than resident memory moves by itself."""
COLLECTED_SHARE = 0.25
"""``collector_will_come``: CPython collects all generations when so many objects, as a part of
those that survived the last time, have become old since."""
COLLECTED_SOON = 3.0
"""``collector_will_come``: times as much garbage as was seen: until then the collector comes
soon."""
UNNAMED_LINE_SHARE = 0.25
"""Part of what grows without a name that a line must have allocated to be reported with it."""
PINNING_BYTES = float(1 << 20)
"""``pinned_by_culprit``, ``pinned_by_filling``: slack that rises with containers that gain so much
lies between their parts."""

# Findings that are no container.

GAUGE_BYTES = float(32 << 20)
"""What a gauge without names must have gained to be a diagnosis; so must a process tree that is
watched from outside, and memory that garbage is said to raise."""
IMPUTED_BYTES = float(8 << 20)
"""Growth that nothing else explains is put down to things that are counted from so much on."""
FIGURES = 5
OPEN_FILES = 20
THREADS = 8
PROCESSES = 8
"""Fewer new ones than this are no diagnosis."""
SHARED_MEMORY_BYTES = float(16 << 20)
"""Named files of shared memory that nobody removes are a diagnosis from so much on: workers'
batches in flight are less."""
MAPPED_FILE_BYTES = float(16 << 20)
"""Pages of one file, read while the program works, from which on they are told to be no leak."""
NAMED_SHARE = 0.5
"""Shared memory is reported under a name that holds this part of it."""
WATCHED_READINGS = 8
"""Readings from outside below which growth may as well be a beginning."""
CHILDREN_BYTES = float(128 << 20)
"""A child process that imports torch and makes its batches ready takes less."""
GARBAGE_BYTES = float(16 << 20)
"""Garbage below this does no harm, whoever switched the collector off."""
GARBAGE_WARNED_BYTES = float(64 << 20)
"""Below this even a large share of the peak is not worth a warning."""
GARBAGE_SHARE = 0.5
"""Garbage that made up this part of what memory had risen by is what rises; looks at which it was
this part of its most saw as much."""
GARBAGE_OFTEN_SHARE = 0.5
"""Part of the looks at which it must have been as much."""
GARBAGE_LOOK_BYTES = float(8 << 20)
"""What memory must have risen by for a single look to tell what rises."""
COLLECTOR_OFF_SHARE = 0.5
"""The collector was off if it was at more than this part of the readings."""
COLLECTOR_S = 0.5
COLLECTOR_SHARE = 0.05
"""What the collector takes by itself, or calls of one line that clean, is a note from so many
seconds on, and from this part of the time: less is not worth a change of code."""
LONG_PAUSE_S = 0.1
"""Full collections that take ever longer are a note once they take so long: many steps do not."""
PAUSE_NOISE_US = 20_000.0
"""Microseconds by which full collections of the same objects differ on a busy machine."""
COLLECTED_OBJECTS_SHARE = 0.2
"""A container is named with the collector's time if it has this part of all objects."""
CALL_FREES_BYTES = float(1 << 20)
CALL_FINDS_OBJECTS = 1000
"""A call that frees less, and a collection that finds fewer objects, need not have been made."""
SLACK_HELD_BYTES = float(128 << 20)
SLACK_HELD_SHARE = 0.3
"""Free memory in the C heap that doesn't grow is a note from so much on, and from this part of
what the process holds."""
LEFTOVER_BYTES = float(8 << 20)
LEFTOVER_SHARE = 0.05
"""What a step leaves to the next one, gradients or variables, is a note from so much on, and from
this part of all tensors alive: less changes no peak that anybody would notice."""
REPLACED_SHARE = 0.2
"""The same of what goes in the course of the next step: it may be gone before the peak anyway."""
LEFTOVER_NAME_BYTES = float(1 << 20)
"""What a single variable, or frozen parameters, must hold to be reported."""
LEFTOVER_CENSUSES = 2
"""Censuses at the ends of steps that it takes."""
NUMBERED_NAMES = 5
"""Variables that differ in numbers alone, from which on they are made by the program."""

# The verdict and its severity.

UNDECIDED_BYTES = float(2 << 20)
"""What rose by less than this leaves no run undecided."""
COSTLY_BYTES = 64 << 20
"""What is no leak but takes at least this much is named in the first line."""
HORIZON = 10
"""Growth is projected over ten observed runs: people profile a part of what they train."""
STEADY_BYTES = float(4 << 20)
"""Less than this over the horizon disturbs nobody: a history of floats."""
RATE_PER_STEP = 1024.0
"""Noise floor per step or batch: some floats and strings a step are a log, not a leak."""
RATE_PER_PASS = 32 * 1024.0
"""Noise floor per validation or epoch."""
PEAK_OF_LIMIT = 0.85
"""A peak above this part of the limit threatens the run: the next larger batch ends it."""
PEAK_SHARE = 0.5
"""Growth within a phase matters when it makes up more than half of the phase's height."""
PEAK_BYTES = float(16 << 20)
"""Below this a peak is not worth a change of code, whatever its share."""
PEAK_OF_BASELINE = 0.05
"""The same, relative to what the process holds anyway."""
WARNED_OF_BASELINE = 0.1
"""Growth within a phase of less than this part of what the process holds anyway must also be most
of the highest passage: what stands between two boundaries, as a copy of all that was gathered,
counts there."""
BOOKKEEPING_BYTES = float(1 << 20)
"""What a library gathers by itself is not worth a note up to this much."""
GATHERED_BYTES = float(2 << 20)
"""What a phase gathers and releases is not worth a note up to this much."""
MEMBER_SHARE = 0.05
"""Several lists gathered in one phase are judged together; one this small is left out."""

# Device memory: the same for a run and for a snapshot file.

DEVICE_BYTES = 64 << 20
"""Cache, holes, pending frees or rounding of less than this are not worth a word, whatever their
share."""
DEVICE_CACHE_SHARE = 0.05
"""Cache is named from this part of the reserved bytes on."""
DEVICE_STUCK_SHARE = 0.10
"""Holes between live blocks are named from this part of the reserved bytes on."""
DEVICE_PENDING_SHARE = 0.01
"""Blocks that the program freed and another stream still uses are named from this part of the
reserved bytes on."""
DEVICE_FILLED_SHARE = 0.9
"""With this part of the reserved bytes live at the peak, each step fills the holes again."""
DEVICE_HELPS_SHARE = 0.25
"""A setting that reaches less than this part of the stuck bytes isn't worth trying."""
DEVICE_LEAK_BYTES = 32 << 20
"""Growth of live bytes without a name that is a finding."""
DEVICE_UNNAMED_SHARE = 0.4
"""Part of the growth of live bytes that must be without a name."""
DEVICE_OTHER_SHARE = 0.3
"""If something else grew by more than this part of what the cache or the holes grew by, it is the
cause: live tensors, and for the cache holes and private pools too."""
TINY_BLOCKS = 500
"""Tiny blocks, live or more than at the beginning, that are worth a word."""
TINY_BLOCKS_NOISE = 100.0
"""The number of live blocks is taken to vary by so many."""
ROUNDING_SHARE = 0.5
"""Blocks are tiny if this part of their bytes is rounding: with 512 bytes as the least, they were
asked for with less than 256."""
