"""Growth that comes with tensors of new shapes: a library's cache by shape, larger activations.

oneDNN compiles a kernel for each shape that it meets and caches it; larger batches need more at
once. Both end by themselves. A leak goes on between new shapes as well: what memory did there tells
them apart, if enough work was done there.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.policy import FEWEST_GROWING, GAUGE_NOISE_BYTES
from leakscope.analysis.series import INNER, BoolArray, FloatArray, IntArray
from leakscope.model import gauge

GOES_ON = 0.5
"""A leak brings between new shapes this part of what falls to the work there, or more."""
PARTS = 9
"""Work between new shapes is divided so; half of the parts must show a leak. One jump, as when the
C heap is enlarged, is in one of them."""
REST_SHARE = 0.1
"""Less of all work than this, done between new shapes, tells nothing; nor does any to which less
growth falls than resident memory moves by itself."""
CACHE_ENTRIES = 1024
"""The entries of oneDNN's cache, unless its user says otherwise: more shapes than these fill it."""


class Company(Enum):
    """What growth without a name came with."""

    WORK = "work"
    """With work, whether shapes were new or not; or the shapes aren't known."""
    SHAPES = "shapes"
    """With new shapes alone."""
    EITHER = "either"
    """New shapes were met so often that nothing tells."""


def company_of(case: Case, left: float, beside: float) -> Company:
    """Return what growth of host memory came with.

    Args:
        case: The run.
        left: The bytes of it that are asked about.
        beside: The bytes beside these that grow with work, such as those of culprits.

    """
    at = _looked_at(case)
    seen = case.track.gauge(gauge.SHAPES)[at]
    if len(at) < FEWEST_GROWING or seen[-1] - seen[0] < FEWEST_GROWING or left <= 0:
        return Company.WORK
    is_rest = _settled(np.diff(seen) == 0)
    work = np.diff(case.track.index[at])
    share = float(work[is_rest].sum() / max(work.sum(), 1))
    rises = np.diff(case.track.gauge(case.host_metric)[at])
    at_rest, due = _usual(work[is_rest], rises[is_rest]) - beside * share, left * share
    is_full = seen[len(seen) * 2 // 3] > CACHE_ENTRIES
    if share >= REST_SHARE and due >= GAUGE_NOISE_BYTES:
        if at_rest >= GOES_ON * due:
            return Company.WORK
        return Company.EITHER if is_full or left > policy.SHAPE_CACHE_BYTES else Company.SHAPES
    return Company.WORK if is_full or at_rest >= GOES_ON * left else Company.EITHER


def new_shapes(case: Case) -> int:
    """Return how many shapes were met for the first time while growth was accounted for."""
    seen = case.track.gauge(gauge.SHAPES)[_looked_at(case)]
    return int(seen[-1] - seen[0]) if len(seen) else 0


def _looked_at(case: Case) -> IntArray:
    """Return the measurements of the window that know both memory and shapes.

    Only in the midst of work: between phases the function that holds the batches may have returned.
    """
    if case.window is None:
        return np.empty(0, dtype=np.int64)
    known = np.intersect1d(case.track.known(gauge.SHAPES), case.track.known(case.host_metric))
    known = known[np.isin(case.track.kind[known], INNER)]
    return known[(known >= case.window.first) & (known <= case.window.last)]


def _settled(same: BoolArray) -> BoolArray:
    """Return which stretches met no new shape, nor did the one before.

    A batch's shape is seen as it is fetched; its backward pass and the last batch of its epoch cost
    kernels afterwards.
    """
    settled = same.copy()
    settled[:1] = False
    settled[1:] &= same[:-1]
    return settled


def _usual(work: IntArray, rises: FloatArray) -> float:
    """Return the growth of some stretches together, if all had grown at the usual rate."""
    if not len(work):
        return 0.0
    done, grown = (np.concatenate([[0.0], np.cumsum(each)]) for each in (work, rises))
    edges = np.interp(np.linspace(0.0, done[-1], PARTS + 1), done, grown)
    return float(np.median(np.diff(edges)) * PARTS)
