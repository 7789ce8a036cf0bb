"""MLflow: the run that is active in the calling thread."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from leakscope.instrument.trackers.tracker import Told

_FOLDER = "leakscope"
_HERE = ("", "file", "sqlite")


class MLflow:
    """MLflow's metrics have a step each, so nothing of ours touches the program's."""

    name = "mlflow"
    logs_rows = False

    def place(self) -> MLflowRun | None:
        """Return the active run."""
        library = sys.modules.get(self.name)
        active_run = getattr(library, "active_run", None)
        run = None if active_run is None else active_run()
        return None if run is None else MLflowRun(library, run.info)


class MLflowRun:
    """A run of MLflow's."""

    def __init__(self, library: Any, info: Any) -> None:
        self._library = library
        self._info = info

    @property
    def is_local(self) -> bool:
        """Whether metrics and files go into a folder or a database file of this machine."""
        stores = (self._library.get_tracking_uri(), self._info.artifact_uri)
        return all(_is_here(str(store)) for store in stores)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Log metrics in one request."""
        now = int(time.time() * 1000)
        metric = self._library.entities.Metric
        self._client.log_batch(
            self._info.run_id,
            metrics=[metric(name, figure, now, step) for name, figure in figures.items()],
        )

    def keep(self, told: Told) -> None:
        """Log the report as an artifact, the rates as metrics, the verdict as a tag."""
        client, run = self._client, self._info.run_id
        if told.rates:
            self.log(told.rates, told.step)
        client.set_tag(run, "leakscope.verdict", told.verdict)
        client.set_tag(run, "leakscope.headline", told.sentence)
        client.log_artifact(run, str(told.page), _FOLDER)

    @property
    def _client(self) -> Any:
        return self._library.MlflowClient()


def _is_here(store: str) -> bool:
    return urlsplit(store).scheme in _HERE and not store.startswith("databricks")
