"""Where the messages of this package go: to the program's log where it has one, else to stderr."""

from __future__ import annotations

import logging
import sys

LOGGERS = ("leakscope", "leakscope.cleanup")


def silent_logger() -> logging.Logger:
    """Return a logger that nobody hears."""
    logger = logging.getLogger("leakscope.nobody")
    logger.disabled = True
    return logger


def say(text: str, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
    """Log a text; never raises.

    Without a logger of the caller's it goes to ``leakscope.cleanup``. Where nobody listens there,
    it is written to stderr rather than lost, unless a level was set on ``leakscope`` or
    ``leakscope.cleanup``: that is how a program silences it.
    """
    try:
        listener = logger or logging.getLogger(LOGGERS[-1])
        if logger is not None or (listener.hasHandlers() and listener.isEnabledFor(level)):
            listener.log(level, "%s", text)
        elif all(logging.getLogger(name).level == logging.NOTSET for name in LOGGERS):
            sys.stderr.write(f"leakscope: {text}\n")
            sys.stderr.flush()
    except Exception:
        pass
