"""The fixture ``leakscope``: tests that say themselves what a round trip is."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from leakscope.model.errors import LeakscopeError
from leakscope.model.growth import Growth
from leakscope.testing.measured import Measured, fail_for, plan_of, write_report


class Asked:
    """Repeats what a test asks for, and tells it what grows."""

    def __init__(self, item: pytest.Function) -> None:
        self._item = item
        self._measured: Measured | None = None
        self._calls: Generator[int, None, None] | None = None

    def rounds(self, **options: Any) -> Iterator[int]:
        """Repeat the body of a loop: ``for _ in leakscope.rounds(steps=20): …``.

        A round trip begins and ends with the loop's body. It is repeated as often as is needed to
        tell, as :func:`leakscope.find_growth` does, whose ``steps``, ``warmup``, ``allow`` and
        ``ignore`` this takes; each is yielded its number. Afterwards ask ``growth`` or ``check()``.
        """
        plan = plan_of((), options, "leakscope.rounds()")
        self._measured = Measured(self._item, plan, with_fixtures=True)
        self.close()
        self._calls = iter(self._measured)
        return self._calls

    def find_growth(self, scenario: Callable[[], object], **options: Any) -> list[Growth]:
        """Repeat a call instead of a loop's body, and return what grows."""
        for _ in self.rounds(**options):
            scenario()
        return self.growth

    @property
    def growth(self) -> list[Growth]:
        """What grew in the latest rounds, the fastest first; empty where nothing did.

        Raises:
            LeakscopeError: there were no rounds, or they were left before they were over.

        """
        return self._finished().report.growths

    def check(self) -> None:
        """Fail the test when something grew, with a report where one is asked for.

        Raises:
            LeakscopeError: there were no rounds, or they were left before they were over.

        """
        __tracebackhide__ = True
        report = self._finished().report
        if report.growths:
            write_report(self._item, report)
            fail_for(report)

    def close(self) -> None:
        """End rounds that were left before they were over."""
        if self._calls is not None:
            self._calls.close()

    def _finished(self) -> Measured:
        if self._measured is None or not self._measured.is_over:
            raise LeakscopeError(
                "Nothing is known of growth before the rounds are over: "
                "let `for _ in leakscope.rounds():` come to its end.",
                slug="rounds-not-over",
            )
        return self._measured
