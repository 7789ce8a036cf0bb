"""What is strange about a file: counted by kind and said once each."""

from __future__ import annotations

from collections import Counter

from leakscope.model.sizes import human_count

MOST_KINDS = 40


class Oddities:
    """Sentences about a file, each with how often it held."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def note(self, sentence: str) -> None:
        """Count one more occurrence of an oddity."""
        if sentence in self._counts or len(self._counts) < MOST_KINDS:
            self._counts[sentence] += 1

    def sentences(self) -> list[str]:
        """Return each oddity once, with its count where it is more than one."""
        return [
            f"{sentence[:1].upper()}{sentence[1:]}"
            + (f" ({human_count(count)} times)." if count > 1 else ".")
            for sentence, count in self._counts.items()
        ]
