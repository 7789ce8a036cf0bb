"""Which modules are in evaluation mode, as far as that tells what comes next."""

from __future__ import annotations

from collections.abc import Callable

KEYS_KEPT = 1024


class Evaluated:
    """Modules that were put into evaluation mode since the last training step, by their keys."""

    def __init__(self) -> None:
        self.still: Callable[[set[int]], set[int]] = lambda keys: keys
        """Tells which of these modules are in evaluation mode just now: not all are told back."""
        self.keys: set[int] = set()
        self._validated: set[int] = set()
        """Those with which a validation was made that is over."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def all_validated(self) -> bool:
        """Whether all of them have had their validation."""
        return self.keys <= self._validated

    def look_again(self) -> None:
        """Forget those that left evaluation mode without telling."""
        self.keys = self.still(self.keys)

    def add(self, key: int) -> None:
        """A module was put into evaluation mode."""
        if len(self.keys) < KEYS_KEPT:
            self.keys.add(key)
        self._validated.discard(key)

    def remove(self, keys: set[int], *, between_phases: bool) -> None:
        """Modules went back to training mode.

        Between phases that also tells of the others, where all have done their validation: their
        user goes on with another module, as a cross validation does, and leaves them as they are.
        """
        self.keys -= keys
        if between_phases and self.keys <= self._validated:
            self.keys.clear()

    def validation_ends(self) -> None:
        """A validation with all of them is over."""
        self._validated = set(self.keys)

    def clear(self) -> None:
        """A step of the training was made."""
        self.keys.clear()
