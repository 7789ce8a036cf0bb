"""Every number by which the growth model decides: with its unit and where it comes from.

Shares are of the run unless they say otherwise: of the work from the first reading to the last.
``benchmarks/growth_shapes.py`` counts what those of the model decide on synthetic shapes,
``tests/zoo/ablation.py`` what each decides on recorded programs.
"""

from __future__ import annotations

FEWEST_READINGS = 3
"""Readings below which nothing is concluded: two looks can't tell a level from a slope."""
FEWEST_GROWING = 5
"""Readings that a growing tail takes. Of four, noise alone rises every time once in 24 runs, of
five once in 120."""
EVEN_FACTOR = 1.6
"""Four readings do if the steepest of their rises is at most so many times as steep as the least:
a warm-up's first rise is steeper, and of noise one series in 200 rises so."""
ALIKE_FACTOR = 2.5
"""Two pieces of which one is at most so many times as steep as the other are one growth."""
FEW_READINGS = 9
"""Up to so many the interval of slopes is too coarse: Kendall's score tells instead."""
Z_OF_FEW = 2.15
"""What it must reach: five readings do that if each is higher than all before, seven if of 21 pairs
two are not. Noise does in one series of a hundred."""
FEWEST_RISES = 3
"""Rises that growth takes, whatever the readings between: one is a jump, two are a coincidence."""
FEWEST_FLAT = 3
"""Readings that a flat tail takes, the one at which it begins among them."""

STEP_SHARE = 0.02
"""A change of less than this part of all growth is no rise and no release. Containers over-allocate
in steps of an eighth of their own size, which is little of what they hold."""
RELEASE_SCATTERS = 5.5
"""Readings scatter by so many standard deviations without a release."""
FEWEST_SCATTERED = 6
"""Readings from which scatter is told, a kink looks like it in fewer; and teeth from which the
lowest reading of each stands for it."""
NORMAL_MAD = 1.482602218505602
"""Standard deviations in the median absolute deviation of normal noise."""
ROUNDING = 1e-9
"""Scatter of less than this part of the range is the rounding of floats."""
LATE_SHARE = 2 / 3
"""What is given back must have been as low as ever in the last third of the run."""
END_SHARE = 0.1
"""A rest at the end of less than this part of the tail is none."""
EXACT_SHARE = 0.25
"""Scatter, as wide as a release must be, is little beside a range of which it is this part."""
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
JUMP_SHARE = 0.8
"""Growth of which fewer rises than ``FEWEST_RISES`` brought more than this part came in jumps."""
JUMP_FACTOR = 1.5
"""A jump is so many times as steep as the growth that it is part of."""

FLAT_OF_RISE = 0.08
"""A tail is flat if by the upper end of its interval it gains at most this part of what was gained
before it."""
FLAT_OF_NOISE = 0.25
"""The same against the scatter of its readings. Readings without any trend reach it from some 40 of
them on; a drift of a third of the scatter is not passed for flat."""

USUAL_GAPS = 3.0
"""Readings count alike in a slope unless the work between is more than so many times the usual."""

BREAK_COST = 5.0
"""What a break must save, in units of the log-likelihood. Chosen on synthetic shapes: below 4 noise
breaks straight growth at 10 readings, above 8 a fill of 10 readings passes for growth."""
SCALE_SHARE = 0.02
"""Deviations of less than this part of the range don't speak against a straight line."""
MOST_KNOTS = 24
"""Places at which a break may lie, evenly over the readings: the fit takes a millisecond."""
MOST_READINGS = 90
"""Readings that are fitted and paired; of more, so many that keep the shape."""

SETTLED = 3.0
"""Growth that settles exponentially is over after so many time constants: 95 % of it came."""
CURVE_GAIN = 2.0
"""How much better, in the units of ``BREAK_COST``, an exponential must fit than straight pieces."""
EVEN_HALVES = 0.85
"""A second half that rises at least so much as the first doesn't settle: where a time constant is
three times the run, it is this part."""
SLOWING = 0.5
"""A tail whose second half rises less than this part of its first slows down."""

Z_GROWING = 2.575829303548901
"""99 % two-sided: noise must not be accused once in 40 series."""
Z_INTERVAL = 1.959963984540054
"""95 %: the interval that is reported, and by which a tail is flat."""
MOST_FURTHER = 10.0
"""More runs than this nobody waits for: no more is asked for."""

GAUGE_NOISE_BYTES = float(1 << 20)
"""Resident memory moves by pages, arenas and stacks without any leak."""
COSTLY_BYTES = 64 << 20
"""What is no leak but takes at least this much is named in the first line."""
SAMPLED_DEVIATIONS = 3.0
"""Standard deviations of an estimate from samples that count as noise."""
ROW_NOISE_BYTES = 4096.0
"""Retained sizes are exact, but tables of dicts and lists are over-allocated in small jumps."""
CHILDREN_NOISE_BYTES = float(4 << 20)
"""Of several processes together."""
ELSEWHERE_NOISE_BYTES = float(1 << 16)
"""Of what is new outside the user's names, which is weighed object by object."""
COUNT_NOISE = 0.5
"""Counts are exact."""

UNNAMED_BYTES = float(4 << 20)
"""Growth without a name of less than this is no leak: libraries warm up by as much."""
UNNAMED_SHARE = 0.3
"""Part of the growth of memory that must lack a name for one to be missed."""
OPEN_POOL_BYTES = float(16 << 20)
"""The same where nobody can say that memory as a whole goes on growing."""
SLACK_BYTES = float(32 << 20)
SLACK_SHARE = 0.5
"""The same of free memory in the C heap, which settles over some epochs."""
GAUGE_BYTES = float(32 << 20)
"""What a gauge without names must have gained to be a diagnosis."""
IMPUTED_BYTES = float(8 << 20)
"""Growth that nothing else explains is put down to things that are counted from so much on."""
FIGURES = 5
OPEN_FILES = 20
THREADS = 8
PROCESSES = 8
"""Fewer new ones than this are no diagnosis."""
UNDECIDED_BYTES = float(2 << 20)
"""What rose by less than this leaves no run undecided."""
CARRIED_SHARE = 0.5
"""A path that makes up this part of what memory goes on to gain goes on with it."""

MOVED_SHARE = 0.7
"""A path that gains so much of what another loses at the same time holds what that held."""
GRADIENT_SHARE = 0.9
"""What follows the gradients grows by no more than they do: small growth would pass for noise."""
STATES_PER_PARAMETER = 3
"""Most optimizers keep at most so many tensors of a parameter's size for it: Adam two or three."""
COLLECTED_SHARE = 0.25
"""CPython collects all generations when so many objects, as a part of those that survived the last
time, have become old since."""
COLLECTED_SOON = 3.0
"""Times as much garbage as was seen: until then the collector comes soon."""
CAPACITY_OF_LIMIT = 0.25
"""A container that declares a bound is accused only if, full, it would fill this part of memory."""
OWNER_SHARE = 0.5
"""What climbs within a phase may be growth of an owner that gains so much of it across phases."""
HANDED_OUT_SHARE = 0.5
"""Growth of which the C heap has handed out less than this part was handed out before."""
PINNING_SHARE = 0.25
PINNING_BYTES = float(1 << 20)
"""Slack beside a container with this part of the growth, and so much, lies between its parts."""
SHAPE_CACHE_BYTES = float(1 << 30)
"""oneDNN's cache has 1,024 entries of a MiB at most: growth beyond is more than it may hold."""

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
"""What is less than this is also held against what stands between two boundaries, as a copy does
of all that was gathered."""
BOOKKEEPING_BYTES = float(1 << 20)
"""What a library gathers by itself is not worth a note up to this much."""
GATHERED_BYTES = float(2 << 20)
"""What a phase gathers and gives back is not worth a note up to this much."""
MEMBER_SHARE = 0.05
"""Several lists gathered in one phase are judged together; one this small is left out."""

REACHES = 0.7
"""Censuses account for a stretch if they reach through so much of it."""
CARRIED_BYTES = float(1 << 20)
"""Such a path and memory must have gained so much."""
RESTED_SHARE = 0.25
"""Memory rests if it gains less than this part of what a path would have brought by itself."""
LEAST_DUE_BYTES = float(512 << 10)
"""Less than this may come and go without any container."""
JUMP_STEEPNESS = 8.0
"""A rise so many times as steep as all others is a jump, as where a path got another name."""
CHILDREN_BYTES = float(128 << 20)
"""A child process that imports torch and makes its batches ready takes less."""
