"""Whether two runs did the same work: only then do their bytes compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

import numpy as np

from leakscope.model.comparison import Topic, WorkFact
from leakscope.model.report import Report, Work
from leakscope.model.text import human_bytes, plural

NOT_GIVEN = "not given"
GIVEN = "given"
ENVIRONMENT = {
    "python": "Python",
    "torch": "torch",
    "numpy": "numpy",
    "machine": "The machine",
    "platform": "The platform",
    "processors": "The number of processors",
    "allocator": "The allocator",
    "cuda": "CUDA",
    "gpu": "The GPU",
    "PYTORCH_ALLOC_CONF": "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_CUDA_ALLOC_CONF",
}
_LONGER = 3.0


def work_differences(before: Report, after: Report) -> list[str]:
    """Return a sentence for each reason why the two runs may not compare; usually none."""
    return [
        *_scripts(before, after),
        *_counts(before.work, after.work),
        *_durations(before.work, after.work),
        *_batches(before.work, after.work),
        *_arguments(before.run.command, after.run.command),
        *_environment_differences(before.run.environment, after.run.environment),
        *_conditions(before, after),
    ]


def scripts_apart(before: Report, after: Report) -> tuple[str, str] | None:
    """Return the names of both scripts where they differ; None where it is the same one.

    The folder doesn't count: a script is copied to another machine.
    """
    names = PurePath(before.run.script).name, PurePath(after.run.script).name
    return names if all(names) and names[0] != names[1] else None


def is_another_program(before: Report, after: Report) -> bool:
    """Return whether another script did other work: what it lacks need not have been mended.

    The copy of a script that has the fix in it does the same work under another name.
    """
    did_other = any(_counts(before.work, after.work)) or any(_batches(before.work, after.work))
    return did_other and scripts_apart(before, after) is not None


def _scripts(before: Report, after: Report) -> Iterator[str]:
    scripts = scripts_apart(before, after)
    if scripts is not None and is_another_program(before, after):
        yield f"The first run was of {scripts[0]}, the second of {scripts[1]}."


def _counts(before: Work, after: Work) -> Iterator[str]:
    for noun, earlier, later in (
        ("step", before.steps, after.steps),
        ("epoch", before.epochs, after.epochs),
        ("validation", before.validations, after.validations),
    ):
        if earlier != later:
            yield f"The first run did {plural(earlier, noun)}, the second {later:,}."
    if before.processes != after.processes:
        had = plural(before.processes, "process")
        yield f"The first run had {had}, the second {after.processes:,}."


def _durations(before: Work, after: Work) -> Iterator[str]:
    short, long = sorted((before.duration_s, after.duration_s))
    same_steps = before.steps == after.steps
    if short > 0 and long / short >= _LONGER and same_steps:
        which = "second" if after.duration_s > before.duration_s else "first"
        yield f"The {which} run took {long / short:.1f} times as long for the same steps."


def _batches(before: Work, after: Work) -> Iterator[str]:
    for phase in {**before.batches, **after.batches}:
        earlier, later = before.batches.get(phase), after.batches.get(phase)
        if earlier is None or later is None:
            which = "first" if later is None else "second"
            yield f"Only the {which} run had the phase {phase}."
        elif earlier != later:
            yield f"In {phase} the first run had {plural(earlier, 'batch')}, the second {later:,}."


def arguments_of(command: Sequence[str]) -> dict[str, str]:
    """Return what a program was given, by option; an option without a value is ``given``."""
    words = list(command)
    if words and PurePath(words[0]).name.startswith("python"):
        del words[0]
    found: dict[str, str] = {}
    name, place = "", 0
    for word in words[1:]:
        if word.startswith("-") and not _is_number(word):
            name, equals, value = word.partition("=")
            found[name] = value if equals else GIVEN
            name = "" if equals else name
        elif name:
            found[name], name = word, ""
        elif "=" in word:
            key, _, found_value = word.partition("=")
            found[key] = found_value
        else:
            place += 1
            found[f"argument {place}"] = word
    return found


def is_decisive(before: str, after: str) -> bool:
    """Return whether an argument decides about the work: numbers and switches do, names don't."""
    values = [value for value in (before, after) if value not in {GIVEN, NOT_GIVEN}]
    return all(map(_is_number, values))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _arguments(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    first, second = arguments_of(before), arguments_of(after)
    for name in {**first, **second}:
        earlier, later = first.get(name, NOT_GIVEN), second.get(name, NOT_GIVEN)
        if earlier != later and is_decisive(earlier, later):
            yield f"{name} differs: {earlier} in the first run, {later} in the second."


def _environment_differences(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for key, words in ENVIRONMENT.items():
        earlier, later = before.get(key), after.get(key)
        if earlier is not None and later is not None and earlier != later:
            yield f"{words} differs: {earlier} in the first run, {later} in the second."


def _conditions(before: Report, after: Report) -> Iterator[str]:
    if before.run.limit_bytes != after.run.limit_bytes:
        yield "The memory limits differ, and with them what counts as critical."
    if before.overhead.budget != after.overhead.budget:
        yield "leakscope's budgets differ: the runs were measured more and less densely."
    for which, report in (("first", before), ("second", after)):
        if report.run.goes_on:
            yield f"The {which} run is still running."
        elif not report.run.ended_regularly:
            yield f"The {which} run did not end by itself: {report.run.ended}."


SIZES = ("parameters", "optimizer state", "batches")
"""Components whose size depends on the model and the batch."""


def work_facts(before: Report, after: Report) -> list[WorkFact]:
    """Return each fact of both runs; those that differ and matter are warned of elsewhere."""
    return [
        *_work(before, after),
        *_sizes(before, after),
        *_program(before, after),
        *_environment_facts(before, after),
        *_measuring(before, after),
    ]


def _fact(topic: Topic, name: str, before: str, after: str, *, matters: bool = True) -> WorkFact:
    is_known = bool(before) and bool(after)
    return WorkFact(
        topic=topic,
        name=name,
        before=before,
        after=after,
        differs=is_known and before != after,
        matters=matters,
    )


def _work(before: Report, after: Report) -> Iterator[WorkFact]:
    earlier, later = before.work, after.work
    for name in ("steps", "epochs", "validations", "processes"):
        counts = getattr(earlier, name), getattr(later, name)
        if any(counts):
            yield _fact(Topic.WORK, name, *(f"{count:,}" for count in counts))
    for phase in {**earlier.batches, **later.batches}:
        batches = (f"{work.batches.get(phase, 0):,}" for work in (earlier, later))
        yield _fact(Topic.WORK, f"batches in {phase}", *batches)
    if before.ranks or after.ranks:
        ranks = (f"{max(len(report.ranks), 1):,}" for report in (before, after))
        yield _fact(Topic.WORK, "ranks", *ranks)


def _sizes(before: Report, after: Report) -> Iterator[WorkFact]:
    """Yield sizes at the first census; runs may be looked at sooner and later, so none decides."""
    for name in SIZES:
        sizes = [
            sum(c.start_bytes for c in report.components if c.name == name)
            for report in (before, after)
        ]
        if all(sizes):
            yield _fact(Topic.WORK, f"{name} at first", *map(human_bytes, sizes), matters=False)


def _program(before: Report, after: Report) -> Iterator[WorkFact]:
    yield _fact(Topic.PROGRAM, "script", before.run.script, after.run.script, matters=False)
    earlier, later = (arguments_of(report.run.command) for report in (before, after))
    for name in {**earlier, **later}:
        values = earlier.get(name, NOT_GIVEN), later.get(name, NOT_GIVEN)
        yield _fact(Topic.PROGRAM, name, *values, matters=is_decisive(*values))


def _environment_facts(before: Report, after: Report) -> Iterator[WorkFact]:
    earlier, later = before.run.environment, after.run.environment
    for name in sorted({**earlier, **later}):
        values = earlier.get(name, ""), later.get(name, "")
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


def by_step(seconds: Sequence[float], clock: Sequence[tuple[float, float]]) -> list[float]:
    """Return moments as steps: what lies between two steps in parts of one, by its time.

    The clock is :attr:`~leakscope.model.report.Timeline.steps`, not empty.
    """
    times, steps = [time for time, _ in clock], [step for _, step in clock]
    found: list[float] = np.interp(seconds, times, steps).tolist()
    return found


def units_done(work: Work, unit: str, phase: str = "") -> float:
    """Return how many steps, batches of a phase, validations, epochs, minutes or hours a run did;
    0 also of a unit that it doesn't count.
    """
    if unit == "batch":
        return float(work.batches.get(phase, 0))
    counts = {
        "step": float(work.steps),
        "epoch": float(work.epochs),
        "validation": float(work.validations),
        "minute": work.duration_s / 60,
        "hour": work.duration_s / 3600,
    }
    return counts.get(unit, 0.0)


def rate_in(rate: float, unit: str, phase: str, wanted: str, work: Work) -> float | None:
    """Return a rate per ``unit`` as a rate per ``wanted``; None where the run can't tell."""
    if unit == wanted:
        return rate
    own, later = units_done(work, unit, phase), units_done(work, wanted, phase)
    return rate * own / later if own > 0 and later > 0 else None
