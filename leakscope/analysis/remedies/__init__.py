"""What to change about a culprit: one module per recognised pattern, the most specific first.

Each module's ``recognise`` returns a remedy where its pattern is there and None where it isn't.
A diff is offered only where the change is safe as far as the sources show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leakscope.analysis.remedies import (
    class_attributes,
    concatenation,
    default_argument,
    dict_caches,
    exit_stacks,
    figures,
    function_caches,
    gathered_rounds,
    gathered_within,
    generic,
    gradient_logs,
    growing_modules,
    heaps,
    hidden_state,
    hooks,
    kept_tensors,
    known_culprits,
    library_objects,
    library_registries,
    linked_objects,
    log_handlers,
    log_records,
    metric_state,
    model_copies,
    moving_average,
    output_history,
    param_groups,
    queues,
    replay_buffers,
    retained_graph,
    running_total,
    slices,
    source_bounds,
    stored_activations,
    stored_exceptions,
    subscribers,
    teed,
    trainer_evaluation,
    warnings_given,
    weak_keys,
    windows,
)
from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source import FeedingLine, SourceIndex
from leakscope.model.census import CensusRow
from leakscope.model.known import KnownCulprit
from leakscope.model.report import Remedy

PATTERNS: tuple[Callable[[Case], Remedy | None], ...] = (
    output_history.recognise,
    trainer_evaluation.recognise,
    function_caches.recognise,
    weak_keys.recognise,
    hooks.recognise,
    subscribers.recognise,
    log_handlers.recognise,
    log_records.recognise,
    warnings_given.recognise,
    teed.recognise,
    param_groups.recognise,
    figures.recognise,
    default_argument.recognise,
    stored_exceptions.recognise,
    growing_modules.recognise,
    slices.recognise,
    exit_stacks.recognise,
    running_total.recognise,
    moving_average.recognise,
    concatenation.recognise,
    hidden_state.recognise,
    linked_objects.recognise,
    gradient_logs.recognise,
    stored_activations.recognise,
    model_copies.recognise,
    kept_tensors.recognise,
    retained_graph.recognise,
    source_bounds.recognise,
    queues.recognise,
    heaps.recognise,
    replay_buffers.recognise,
    metric_state.recognise,
    library_objects.recognise,
    class_attributes.recognise,
    dict_caches.recognise,
    windows.recognise_tail,
    gathered_rounds.recognise,
    windows.recognise_unread,
    gathered_within.recognise,
    library_registries.recognise,
)


def propose(
    row: CensusRow,
    *,
    growth: str,
    unit: str,
    phase: str,
    feeding: list[FeedingLine],
    sources: SourceIndex,
    items_per_unit: float | None = None,
    known: KnownCulprit | None = None,
    above: Sequence[CensusRow] = (),
    inside: Sequence[CensusRow] = (),
    shrank: bool = False,
    falls_back: bool = True,
) -> Remedy:
    """Return the remedy for a culprit, with a diff where its pattern is recognised.

    Args:
        row: The culprit's row at its highest census.
        growth: ``across`` or ``within``.
        unit: What the growth is counted by: ``step``, ``validation``, ``epoch``, …
        phase: The phase in which it grows.
        feeding: Its feeding lines, best first.
        sources: The recorded sources.
        items_per_unit: Items added per unit, where known.
        known: The entry of the catalogue that describes it, whose remedy comes first.
        above: The rows on the way from the root to it, outermost first.
        inside: The rows that are named through it, the nearest first.
        shrank: Whether it was seen shorter than before, and then to grow again.
        falls_back: Where it grows within a phase: whether it was seen to be given back.

    """
    how = row, growth, unit, phase
    case = Case(*how, feeding, sources, items_per_unit, above, inside, shrank, falls_back)
    return known_culprits.prefer(known, _general(case))


def _general(case: Case) -> Remedy:
    for recognise in PATTERNS:
        remedy = recognise(case)
        if remedy is not None:
            return remedy
    return generic.recognise(case)
