"""Every number by which a verdict is made: with its unit and where it comes from; and the few names
of libraries and types that rules go by.

Names end in their unit: ``_BYTES``, ``_S`` (seconds), ``_SHARE`` (a part of one), ``_FACTOR``
(times), ``_READINGS`` (measurements of a series); what counts is named by what it counts. Rules
that ask for *little*, *most* or the *main part* of something go by the same shares, findings by the
same steps of bytes: a number of its own stands here only where a recorded program needs one.

The sources: *shapes* is ``benchmarks/growth_shapes.py``, which counts what a number decides on
synthetic shapes; *zoo* is ``tests/zoo/ablation.py``, which halves and doubles each number over
recorded programs and prints whose verdict changes. A number without another source is held by the
zoo. Limits of what a report lists, and the resolution of a fit, are no part of a verdict and stand
where they are used.
"""

from __future__ import annotations

# Parts of a whole.

HARMLESS_SHARE = 0.05
"""A peak of less than this part of what the process holds anyway, or a cache of less of what a
device's allocator has reserved, is not worth a change of code."""
LITTLE_SHARE = 0.1
"""What is less than this part of something is little of it: it is passed over."""
CONSIDERABLE_SHARE = 0.25
"""From this part on something counts: a rest in a tail, a container's part of memory when full."""
MOST_SHARE = 0.5
"""More than this part is most of something."""
MAIN_SHARE = 0.7
"""From this part on it stands for the whole: the phase that gives the unit, an entry that is its
container's growth (Eclipse MAT's rule for a big drop), readings that reach through a stretch."""

SIBLINGS_SHOWN = 64
"""Objects with one name that a census shows where it can't show all (``FIRST_SIBLINGS`` in
``heap/native/selection.c``): a row of so many may be of a part."""

# How many readings tell anything.

FEWEST_READINGS = 3
"""Readings below which nothing is concluded: two can't tell a level from a slope."""
FEWEST_CENSUSES = 2
"""Censuses that can show growth of a name: the one at the end of a run alone shows none."""
FEWEST_GROWING = 5
"""Readings that a growing tail takes, and growth within a phase that has one passage; those from
which scatter is estimated. Of four, noise alone rises every time once in 24 runs, of five once in
120."""
EVEN_READINGS = FEWEST_GROWING - 1
"""Readings that suffice if growth is even."""
EVEN_FACTOR = 1.6
"""They do if the steepest of their rises is at most so many times as steep as the least: a
warm-up's first rise is steeper, and of noise one series in 200 rises so."""
ALIKE_FACTOR = 2.5
"""Two pieces are one growth if the steeper one is at most so many times as steep."""
USUAL_GAPS_FACTOR = 3.0
"""Readings count alike in a slope unless the work between is more than so many times the usual."""
FEW_READINGS = 9
"""Up to so many the interval of slopes is too coarse, and Kendall's score decides instead; up to so
many a curve looks like a kink."""
Z_OF_FEW = 2.15
"""What it must reach: five readings do that if each is higher than all before, seven if of 21 pairs
two are not. Noise does in one series of a hundred."""
FEWEST_RISES = 3
"""Rises that growth takes, whatever the readings between, and events that one needs to be made out:
one is a jump, two are a coincidence."""

# The growth model: what is kept, how long a tail must be, its shape.

STEP_SHARE = 0.02
"""A change of less than this part of all growth is no rise and no release, and deviations of less
don't speak against a straight line. Containers over-allocate in steps of an eighth of their own
size, which is little of what they hold."""
RELEASE_SCATTERS = 5.5
"""Readings scatter by so many standard deviations without a release."""
LATE_SHARE = 2 / 3
"""Where the last third of a run, or of a tail, begins. A series that is released must
have come back to its least there; a tail of scattered readings must rise there too."""
GROWING_SHARE = 0.2
"""Part of the run that a growing tail takes."""
REST_FACTOR = 2.0
"""A flat tail is so many times as long as the longest rest before it: a staircase rests as well."""
JUMP_SHARE = 0.8
"""Growth came in jumps if fewer than ``FEWEST_RISES`` rises brought more than this part of it."""
JUMP_FACTOR = 1.5
"""A jump is so many times as steep as the growth that it is part of."""
JUMP_STEEPNESS = 8.0
"""A rise so many times as steep as all others is a jump, as where a path got another name."""
FLAT_OF_RISE = 0.08
"""A tail is flat if by the upper end of its interval it gains at most this part of what was gained
before it."""
Z_GROWING = 2.575829303548901
"""99 % two-sided: noise must not be accused once in 40 series."""
Z_INTERVAL = 1.959963984540054
"""95 %: the interval that is reported, and by which a tail is flat."""
BREAK_COST = 5.0
"""What a break must save, in units of the log-likelihood, and by how much an event must explain a
series better than work does. Chosen on synthetic shapes: below 4 noise breaks straight growth at 10
readings, above 8 a fill of 10 readings passes for growth."""
ALIKE_COST = 2.0
"""Two explanations that differ by no more than this, in the same units, are equally good: a
likelihood ratio of e squared, the usual bound in comparing models by information criteria (Burnham
and Anderson 2002)."""
SETTLED = 3.0
"""Growth that settles exponentially is over after so many time constants: 95 % of it came."""
EVEN_HALVES = 0.85
"""A second half that rises at least so much as the first doesn't settle: where a time constant is
three times the run, it is this part."""
SLOWING = 0.5
"""A tail whose second half rises less than this part of its first slows down."""
HORIZON = 10
"""Growth is projected over so many observed runs: people profile a part of what they train. A
verdict that would take more than so many is not waited for."""

# Noise: changes up to this much mean nothing.

GAUGE_NOISE_BYTES = float(1 << 20)
"""Resident memory moves by pages, arenas and stacks without any leak; so does garbage. What gains
less neither carries the growth of memory nor pins free memory, and isn't worth a note."""
SAMPLED_DEVIATIONS = 3.0
"""Deviations of what scatters, an estimate from samples or readings of memory, that are noise."""
ROW_NOISE_BYTES = 4096.0
"""Retained sizes are exact, but tables of dicts and lists are over-allocated in small jumps."""
ELSEWHERE_NOISE_BYTES = float(1 << 16)
"""Of what is new outside the user's names, which is weighed object by object."""
COUNT_NOISE = 0.5
"""Counts are exact."""

# Steps of bytes: from each on, something more is reported.

LITTLE_BYTES = float(2 << 20)
"""What rose by less than this leaves no run undecided, unless a name of the program's is most of
what memory gained; what a phase gathers up to it is not worth a note."""
HARMLESS_BYTES = float(4 << 20)
"""Growth of less than this, over the horizon, disturbs nobody, and without a name it is no leak:
libraries warm up by as much, several processes move by as much."""
NOTED_BYTES = float(8 << 20)
"""What DataLoader workers copy, or gain by a name, and what a step leaves to the next one, is worth
a note from so much on."""
NOTEWORTHY_BYTES = float(16 << 20)
"""A peak, garbage, what a step leaves over, shared memory, pages of a file, or growth that is put
down to things that are counted, is worth a word from so much on; growth without a name where nobody
can say that memory as a whole goes on growing."""
GROWTH_BYTES = float(32 << 20)
"""What a gauge without names must have gained to be a diagnosis, and free memory in the C heap,
which settles over some epochs."""
COSTLY_BYTES = float(64 << 20)
"""What is no leak but takes at least this much is named in the first line. Cache, holes or rounding
of a device's allocator are worth a word from so much on, and garbage is worth a warning."""
LARGE_BYTES = float(128 << 20)
"""Child processes that import torch and make their batches ready take less; free memory in the C
heap that doesn't grow is a note from so much on."""

# Units of work.

FEWEST_STEPS = 20
"""With fewer, validations after every step or two are no rare thing."""
EPOCH_PREFERENCE = 1e-3
"""Part of the variation by which another unit must fit a series better than epochs do."""
LATEST_SAVE_READINGS = 12
"""After its beginning an asynchronous save may arrive at so many measurements at the latest: it
writes alongside some steps of training."""
LEADING_COUNTERS = 3
"""Of two counters that explain a series together, one is work or among so many that explain most of
it alone."""
TEARDOWN_S = 0.25
"""Seconds before the end of a run in which a program may be ending its tasks and threads."""
CLOCKS_S = 1.0
"""Seconds by which two clocks, and the beginning and end of a process, are known."""
ENDING_S = 10.0
"""A process that ends releases its memory: seconds that this may take."""

# What has a name, and what has none.

SIMILAR_NAMES = 4
"""This many small entries of one container are one culprit: ``results``, not its keys. So many
variables that differ in numbers alone are made by the program."""
STATES_PER_PARAMETER = 3
"""Most optimizers keep at most so many tensors of a parameter's size for it: Adam two or three."""
UNANSWERED_CALLS = 64
"""A library's cache with as many entries that has never answered a call is no cache. The first of
every cache's calls find nothing."""
UNNAMED_SHARE = 0.3
"""Part of the growth of memory that must lack a name for one to be missed."""
COLLECTED_SHARE = 0.25
"""CPython collects all generations when so many objects, as a part of those that survived the last
time, have become old since."""
SHAPE_CACHE_ENTRIES = 1024
"""Of oneDNN's cache of kernels, unless its user says otherwise: more shapes than these fill it."""
FEWEST_COUNTED = 8
"""Fewer new figures, files, threads or processes than this are no diagnosis."""
REGISTRY_ENTRIES = 20
"""The same of entries of a registry: importing a library brings some."""
DEEP_GRAPH = 4000.0
"""Nodes of a graph that a census may have left: chains of five thousand aren't walked again."""
PILED_UP = 100
"""So many tasks or threads of one function, still growing, are a leak whatever they weigh."""
FEWEST_REPLACED = 2
"""Workers that ended and had a successor, from which on a pool replaces them as a rule."""
SUCCESSOR_SECONDS = 5.0
"""After the end of a worker, within which its successor begins."""
REPLACED_FACTOR = 1.5
"""A worker that gained so many times as much as any that was replaced isn't like them."""
PILED_UP_FACTOR = 64.0
"""A container of tasks or threads keeps those that pile up if it gains items at most so many times
as fast, or as slowly, as their number rises."""
TINY_BLOCKS = 500
"""Tiny blocks of a device's allocator, live or new, that are worth a word."""

# Processes that are held against each other.

WORKERS_JUDGED = 32
"""DataLoader workers with most measurements, beyond which the others are taken to be like them."""
CHILDREN_JUDGED = 16
"""The same of other children."""
OUTLIER_FACTOR = 3.0
"""The course of one process leaves that of its like where it gained so many times as much as the
next."""
LASTING_SHARE = 0.05
"""A rank must have left the others' course for this part of its own steps: what a rank does to end
is no course."""
INHERITED_FACTOR = 1.1
"""What a worker has inherited doesn't grow by more than this, and neither do two readings of it
differ by more."""
INHERITED_ITEMS = 1000
"""Items from which on a structure that workers inherit is worth a look at its pages."""

# Device memory.

FULL_SHARE = 0.995
"""From this part of live bytes on, an allocator of ``LARGE_DEVICE_BYTES`` is full: a snapshot
without a failed request is taken for one of a device that ran out of room."""
LARGE_DEVICE_BYTES = 1 << 30
"""Reserved bytes from which on that is concluded."""
CHURNED_SEGMENTS = 50
"""Segments that were taken and released, from which on a program churns its cache."""
COMPILED_ENTRIES = 4
"""Compiled versions of one function that are worth a word when they reach most of its limit."""

# The gate.

BASELINE_TOLERANCE = 0.2
"""What a baseline knows may grow faster than it says by this part, unless
``check.tolerance`` says otherwise."""

# The collector's time.

COLLECTOR_S = 0.5
"""What the collector takes by itself, or calls of one line that clean, is a note from so many
seconds on, and from a twentieth of the time: less is not worth a change of code."""
LONG_PAUSE_S = 0.1
"""Full collections that take ever longer are a note once they take so long: many steps do not."""
PAUSE_NOISE_US = 20_000.0
"""Microseconds by which full collections of the same objects differ on a busy machine."""
CALL_FINDS_OBJECTS = 1000
"""A collection that finds fewer objects need not have been made."""

# The severity.

RATE_PER_STEP = 1024.0
"""Noise floor per step, batch or task: some floats and strings a step are a log, not a leak."""
RATE_PER_PASS = 32 * 1024.0
"""Noise floor per validation or epoch."""
PEAK_OF_LIMIT = 0.85
"""A peak above this part of the limit threatens the run: the next larger batch ends it."""

# Names that rules go by.

WEIGHED_LIBRARIES = ("_imaging", "libarrow", "_backend_agg")
"""Beginnings of the names of libraries whose memory the census weighs: pixels of Pillow's images
and of matplotlib's figures, buffers of Arrow."""
TORCH_LIBRARIES = ("libtorch", "libc10")
"""Beginnings of the names of torch's own libraries."""
GRAPH_TYPES = ("torch.", "collections.OrderedDict", "dict", "tuple")
"""Beginnings of the names of types that autograd graphs have in Python."""
