"""Weights & Biases: the run that ``wandb.init()`` has made the global one.

A row of its history has one step, which only rises. What is logged without being committed waits
for the program's next log and goes into that row, so the program's rows and steps stay as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from leakscope.instrument.trackers.tracker import Told


class WandB:
    """The module ``wandb``."""

    name = "wandb"
    logs_rows = True

    def place(self) -> WandBRun | None:
        """Return the run that is open, unless it takes its figures from TensorBoard's files."""
        library = sys.modules.get(self.name)
        run = getattr(library, "run", None)
        if run is None or run.disabled or takes_from_tensorboard():
            return None
        return WandBRun(library, run)


class WandBRun:
    """A run of Weights & Biases."""

    def __init__(self, library: Any, run: Any) -> None:
        self._library = library
        self._run = run

    @property
    def is_local(self) -> bool:
        """Whether it is written down only, to be sent when the user says so."""
        return bool(self._run.offline)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Add figures to the program's next row."""
        self._run.log(dict(figures), commit=False)

    def keep(self, told: Told) -> None:
        """Log the report as an artifact; verdict and rates go into the summary."""
        self._run.summary.update(
            {
                "leakscope/verdict": told.verdict,
                "leakscope/headline": told.sentence,
                **told.rates,
            }
        )
        artifact = self._library.Artifact(f"leakscope-{self._run.id}", type="leakscope-report")
        artifact.add_file(str(told.page), name=told.page.name)
        self._run.log_artifact(artifact)


def takes_from_tensorboard() -> bool:
    """Return whether wandb sends on what is written to TensorBoard (``sync_tensorboard=True``)."""
    patched = getattr(sys.modules.get("wandb"), "patched", None)
    return bool(patched and patched.get("tensorboard"))
