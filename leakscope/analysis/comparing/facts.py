"""What was compared to see whether two runs did the same work, alike or not."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.analysis.comparing.work import ENVIRONMENT, NOT_GIVEN, arguments_of, is_decisive
from leakscope.model.comparison import Topic, WorkFact
from leakscope.model.report import Report
from leakscope.model.sizes import human_bytes

SIZES = ("parameters", "optimizer state", "batches")
"""Components whose size tells of the model and of the batch."""


def work_facts(before: Report, after: Report) -> list[WorkFact]:
    """Return each fact of both runs; those that differ and matter are warned of elsewhere."""
    return [
        *_work(before, after),
        *_sizes(before, after),
        *_program(before, after),
        *_environment(before, after),
        *_measuring(before, after),
    ]


def _fact(topic: Topic, name: str, before: str, after: str, *, matters: bool = True) -> WorkFact:
    told = bool(before) and bool(after)
    return WorkFact(
        topic=topic,
        name=name,
        before=before,
        after=after,
        differs=told and before != after,
        matters=matters,
    )


def _work(before: Report, after: Report) -> Iterator[WorkFact]:
    one, other = before.work, after.work
    for name in ("steps", "epochs", "validations", "processes"):
        counts = getattr(one, name), getattr(other, name)
        if any(counts):
            yield _fact(Topic.WORK, name, *(f"{count:,}" for count in counts))
    for phase in {**one.batches, **other.batches}:
        batches = (f"{work.batches.get(phase, 0):,}" for work in (one, other))
        yield _fact(Topic.WORK, f"batches in {phase}", *batches)
    if before.ranks or after.ranks:
        ranks = (f"{max(len(report.ranks), 1):,}" for report in (before, after))
        yield _fact(Topic.WORK, "ranks", *ranks)


def _sizes(before: Report, after: Report) -> Iterator[WorkFact]:
    """Yield sizes at the first census; runs may be looked at sooner and later, so none decides."""
    for name in SIZES:
        sizes = [_first_size(report, name) for report in (before, after)]
        if all(sizes):
            yield _fact(Topic.WORK, f"{name} at first", *map(human_bytes, sizes), matters=False)


def _first_size(report: Report, name: str) -> int:
    return sum(c.start_bytes for c in report.components if c.name == name)


def _program(before: Report, after: Report) -> Iterator[WorkFact]:
    yield _fact(Topic.PROGRAM, "script", before.run.script, after.run.script, matters=False)
    one, other = (arguments_of(report.run.command) for report in (before, after))
    for name in {**one, **other}:
        values = one.get(name, NOT_GIVEN), other.get(name, NOT_GIVEN)
        yield _fact(Topic.PROGRAM, name, *values, matters=is_decisive(*values))


def _environment(before: Report, after: Report) -> Iterator[WorkFact]:
    one, other = before.run.environment, after.run.environment
    for name in sorted({**one, **other}):
        values = one.get(name, ""), other.get(name, "")
        yield _fact(Topic.ENVIRONMENT, name.replace("_", " "), *values, matters=name in ENVIRONMENT)


def _measuring(before: Report, after: Report) -> Iterator[WorkFact]:
    limits = (report.run.limit_bytes for report in (before, after))
    yield _fact(Topic.MEASURING, "memory limit", *(human_bytes(b) if b else "" for b in limits))
    budgets = (report.overhead.budget for report in (before, after))
    yield _fact(
        Topic.MEASURING, "budget", *("" if b is None else f"{100 * b:.3g} %" for b in budgets)
    )
    versions = (report.run.leakscope_version for report in (before, after))
    yield _fact(Topic.MEASURING, "leakscope", *versions, matters=False)
    yield _fact(Topic.MEASURING, "ended", before.run.ended, after.run.ended)
