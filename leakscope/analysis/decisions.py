"""What was decided of each series, by which rule, with the figure and the threshold."""

from __future__ import annotations

from leakscope.model.report import Decision

MOST = 400
"""Decisions that a report carries, the first ones: what came to most is decided first."""


class Decisions:
    """The decisions of one analysis, in their order; of one rule on one subject the last."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Decision] = {}

    def add(
        self,
        subject: str,
        rule: str,
        outcome: str,
        *,
        figure: float | None = None,
        threshold: float | None = None,
        path: str = "",
    ) -> None:
        """Note a decision.

        Args:
            subject: The name, gauge or term that was judged.
            rule: Which rule decided.
            outcome: What came of it, in words.
            figure: What the rule went by.
            threshold: What the figure was held against.
            path: The path pattern, where the subject has one.

        """
        self._made[path or subject, rule] = Decision(
            subject=subject,
            path=path,
            rule=rule,
            figure=None if figure is None else float(figure),  # numpy's own are written by no JSON
            threshold=None if threshold is None else float(threshold),
            outcome=outcome,
        )

    def told(self) -> list[Decision]:
        """Return what was decided, at most so much as a report carries."""
        return list(self._made.values())[:MOST]
