"""Whether two runs did the same work: only then do their bytes compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from leakscope.analysis.ending import STILL_RUNNING, WATCHED_ENDED
from leakscope.model.report import Report, Work
from leakscope.model.sizes import plural

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
_ENDED_BY_ITSELF = frozenset({"", "completed", "detached", "exit code 0", WATCHED_ENDED})
_LONGER = 3.0


def work_differences(before: Report, after: Report) -> list[str]:
    """Return a sentence for each reason why the two runs may not compare; usually none."""
    return [
        *_scripts(before, after),
        *_counts(before.work, after.work),
        *_durations(before.work, after.work),
        *_batches(before.work, after.work),
        *_arguments(before.run.command, after.run.command),
        *_environment(before.run.environment, after.run.environment),
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
    for noun, one, other in (
        ("step", before.steps, after.steps),
        ("epoch", before.epochs, after.epochs),
        ("validation", before.validations, after.validations),
    ):
        if one != other:
            yield f"The first run did {plural(one, noun)}, the second {other:,}."
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
        one, other = before.batches.get(phase), after.batches.get(phase)
        if one is None or other is None:
            which = "first" if other is None else "second"
            yield f"Only the {which} run had the phase {phase}."
        elif one != other:
            yield f"In {phase} the first run had {plural(one, 'batch')}, the second {other:,}."


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
        one, other = first.get(name, NOT_GIVEN), second.get(name, NOT_GIVEN)
        if one != other and is_decisive(one, other):
            yield f"{name} differs: {one} in the first run, {other} in the second."


def _environment(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for key, words in ENVIRONMENT.items():
        one, other = before.get(key), after.get(key)
        if one is not None and other is not None and one != other:
            yield f"{words} differs: {one} in the first run, {other} in the second."


def _conditions(before: Report, after: Report) -> Iterator[str]:
    if before.run.limit_bytes != after.run.limit_bytes:
        yield "The memory limits differ, and with them what counts as critical."
    if before.overhead.budget != after.overhead.budget:
        yield "leakscope's budgets differ: the runs were measured more and less densely."
    for which, report in (("first", before), ("second", after)):
        if report.run.ended == STILL_RUNNING:
            yield f"The {which} run is still running."
        elif report.run.ended not in _ENDED_BY_ITSELF:
            yield f"The {which} run did not end by itself: {report.run.ended}."
