"""Templates that are compiled once, not for every report: as Python does with its own modules."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket, BytecodeCache


class TemplateCache(BytecodeCache):
    """Keeps compiled templates where Python keeps compiled modules, and under the same rules.

    That is in ``__pycache__`` beside them or below ``PYTHONPYCACHEPREFIX``; nothing is written
    with ``PYTHONDONTWRITEBYTECODE``, or where the folder can't be written to. What was compiled
    from another text, or by another Python or jinja, is not used.
    """

    def __init__(self, templates: Path) -> None:
        self._templates = templates

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket with what was compiled before, if it is of use."""
        try:
            with self._path(bucket).open("rb") as file:
                bucket.load_bytecode(file)
        except Exception:  # not there, cut short or broken: it is compiled again
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what was just compiled."""
        if sys.dont_write_bytecode:
            return
        path = self._path(bucket)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("wb") as file:
                    bucket.write_bytecode(file)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def _path(self, bucket: Bucket) -> Path:
        source = self._templates / f"{bucket.key}.{jinja2.__version__}.j2"
        return Path(cache_from_source(str(source)))
