"""The check: what of a run's growth is allowed, and what a gate does about the rest.

Encoded as it stands a :class:`Check` is what ``leakscope check --format json`` writes, and a
:class:`Baseline` is the file that ``--write-baseline`` writes.
"""

from __future__ import annotations

from datetime import date
from enum import Enum

import msgspec

from leakscope.model.known import Recognised
from leakscope.model.report import RunFacts, RunVerdict, Severity

CHECK_SCHEMA_VERSION = 1
BASELINE_SCHEMA_VERSION = 1
Key = tuple[str, str, str, bool]
"""Signature, growth, device, and whether in workers: the same in any run."""


class Outcome(str, Enum):
    """What a check says as a whole."""

    PASSED = "passed"
    FAILED = "failed"
    """Something grows that is not allowed."""
    INCONCLUSIVE = "inconclusive"
    """Nothing was seen to grow, but the run is too thin to say so."""


class Standing(str, Enum):
    """Why something that grows fails the check, or why it doesn't."""

    FAILED = "failed"
    KNOWN = "known"
    """The baseline has it, and it grows no faster."""
    SUPPRESSED = "suppressed"
    """The project's configuration excuses it, with a reason."""
    IGNORED = "ignored"
    """The command line excuses it."""
    ALLOWED = "allowed"
    """It grows no faster than the limit."""
    NOTE = "note"
    """Worth knowing; never fails unless it is faster than a limit."""


class Suppression(msgspec.Struct, frozen=True, kw_only=True):
    """An excuse for what grows. It speaks of what all of its patterns match."""

    reason: str
    signature: str = ""
    pattern: str = ""
    """Of the name, the path in the heap, or the kind."""
    path: str = ""
    """Of the source file."""
    expires: date | None = None
    """The last day on which it counts."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a baseline remembers of something that grows."""

    name: str
    signature: str
    growth: str
    device: str = "host"
    phase: str = ""
    path: str = ""
    kind: str = ""
    """The container's, or the finding's. With name and type it is how an entry is recognised under
    another signature; one without a kind is recognised by its signature alone."""
    type: str = ""
    bytes_per_unit: float
    unit: str
    in_workers: bool = False
    reason: str = ""
    """Why it is put up with; written by people, kept when the baseline is written anew."""

    @property
    def key(self) -> Key:
        """What identifies it in any run."""
        return (self.signature, self.growth, self.device, self.in_workers)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What is known to grow, ordered by name."""

    schema_version: int = BASELINE_SCHEMA_VERSION
    culprits: list[Known]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Something that grows, as it stands before the gate."""

    standing: Standing
    why: str
    """Why it stands so, as a sentence."""
    rule: str
    """The kind of diagnosis: ``growing-container``, ``growing-within-phase``, ``kept-graph``, or
    the kind of a finding, such as ``allocator_slack``."""
    name: str
    """A culprit's name, or a finding's title."""
    sentence: str
    severity: Severity
    signature: str
    known_as: str = ""
    """The signature by which the baseline has it, where that is another."""
    growth: str
    device: str = "host"
    phase: str = ""
    path: str = ""
    """The name's path in the heap; empty for a finding."""
    kind: str = ""
    """The container's, such as ``list``, or the finding's."""
    type: str = ""
    """Of what a culprit's name means; empty for a finding."""
    bytes_per_unit: float
    interval: tuple[float, float]
    unit: str
    place: str = ""
    """The line to look at first: ``src/train.py:12``, relative to the repository."""
    places: list[str] = []
    remedy: str = ""
    in_workers: bool = False
    """Whether it grows in workers of a DataLoader, not in the process itself."""
    excuse: str = ""
    """The reason of the suppression or of the baseline's entry, where there is one."""
    recognised: Recognised | None = None
    """What the catalogue of known culprits says of it."""

    @property
    def key(self) -> Key:
        """What identifies it in any run."""
        return (self.signature, self.growth, self.device, self.in_workers)

    @property
    def known_key(self) -> Key:
        """What identifies it in the baseline."""
        return (self.known_as or self.signature, self.growth, self.device, self.in_workers)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A run held against what is allowed."""

    schema_version: int = CHECK_SCHEMA_VERSION
    outcome: Outcome
    passes: bool
    """Whether the exit code is 0; an inconclusive run passes unless ``--strict`` was given."""
    headline: str
    verdict: RunVerdict
    run: RunFacts
    growths: list[Checked]
    """What fails first, then the rest as in the report."""
    gone: list[Known] = []
    """Entries of the baseline that excuse nothing any more."""
    remarks: list[str] = []
    """Suppressions that expired or match nothing, and what else is to be mended."""
    missing: list[str] = []
    """What would settle an inconclusive run."""
    max_growth: str = ""
