"""Which logging calls feed a handler that keeps records: those on loggers that it hears."""

from __future__ import annotations

import re
import textwrap

import pytest

from leakscope.analysis.source import SourceIndex
from leakscope.model.census import CensusRow, Content, Owner, RootKind, Site

CONFIGURED = """
import logging, logging.config
logging.config.dictConfig({
    "handlers": {"console": CONSOLE, "details": DETAILS},
    "loggers": {
        "train": {"handlers": ["console"], "propagate": False},
        "train.grad": {"handlers": ["details"], "propagate": False},
        "train.grad.norm": {"level": "DEBUG"},
        "train.grad.quiet": {"propagate": False},
    },
})
log = logging.getLogger("train")
grad_log = logging.getLogger("train.grad")
norm_log = grad_log.getChild("norm")
quiet_log = logging.getLogger("train.grad.quiet")
"""
CALLS = """
def main():
    for x in loader:
        grad_log.debug("a %s", x)  # grad
        norm_log.debug("b %s", x)  # norm
        quiet_log.debug("c %s", x)  # quiet
        log.info("d %s", x)  # log
        logging.info("e %s", x)  # root
        given_log.info("f %s", x)  # given
"""


def row(path: str, variable: str, sites: list[Site] | None = None) -> CensusRow:
    return CensusRow(
        path=path,
        name=path.partition("·")[2],
        root=RootKind.GLOBAL,
        owner=Owner(kind="module", name="__main__", variable=variable, file="/p/train.py"),
        type="list",
        kind="list",
        host_bytes=1 << 20,
        holds=[Content(type="logging.LogRecord", count=9, bytes=1 << 20)],
        allocated_at=sites or [],
    )


def calls_that_feed(text: str, requested: CensusRow) -> list[str]:
    """Return the marks of the lines that are named, the likeliest first."""
    text = textwrap.dedent(text)
    index = SourceIndex({"/p/train.py": text, "/p/logs.py": LOGS})
    lines = [text.splitlines()[line.line - 1] for line in index.feeding(requested.owner, requested)]
    return [re.sub(r".*# ", "", line) for line in lines]


LOGS = """
import logging
far_log = logging.getLogger("far")
"""
ON_GRAD_LOG = row("__main__·grad_log.handlers[*].buffer", "grad_log")
ON_HANDLER = row("__main__·handler.buffer", "handler")


def test_only_its_logger_and_children_that_propagate_feed_a_handler() -> None:
    assert calls_that_feed(CONFIGURED + CALLS, ON_GRAD_LOG) == ["grad", "norm", "given"]


def test_children_feed_the_handler_of_a_parent() -> None:
    open_ = CONFIGURED.replace('"handlers": ["details"], "propagate": False', '"handlers": []')
    open_ = open_.replace('["console"]', '["details"]')
    requested = row("__main__·log.handlers[*].buffer", "log")
    assert calls_that_feed(open_ + CALLS, requested) == ["grad", "norm", "log", "given"]


def test_all_that_propagates_feeds_the_handler_of_the_root_logger() -> None:
    text = """
    import logging
    logging.basicConfig(handlers=[MemoryHandler(100)])
    log = logging.getLogger("train")
    grad_log = logging.getLogger("train.grad")
    grad_log.propagate = False
    """
    requested = row("logging·root.handlers[*].buffer", "root")
    found = calls_that_feed(textwrap.dedent(text) + CALLS, requested)
    assert found == ["norm", "quiet", "log", "root", "given"]


def test_the_name_of_a_logger_in_the_path_tells_it() -> None:
    path = "logging·Logger.manager.loggerDict['train.grad'].handlers[*].buffer"
    assert calls_that_feed(CONFIGURED + CALLS, row(path, "Logger")) == ["grad", "norm", "given"]


def test_a_handler_of_two_loggers_hears_both() -> None:
    shared = CONFIGURED.replace('["console"], "propagate"', '["console", "details"], "propagate"')
    found = calls_that_feed(shared + CALLS, ON_GRAD_LOG)
    assert found == ["grad", "norm", "log", "given"]


@pytest.mark.parametrize(
    ("attached", "feeds"),
    [
        ("grad_log.addHandler(handler)", ["grad", "norm"]),
        ("logging.getLogger('far').addHandler(handler)", ["far"]),
        ("grad_log.addHandler(handler); far_log.addHandler(handler)", ["grad", "norm", "far"]),
        ("log.addHandler(handler)", ["grad", "norm", "log"]),
        ("grad_log.addHandler(MemoryHandler(1))", ["grad", "norm", "log", "far"]),
        ("attach(handler)", ["grad", "norm", "log", "far"]),
        ("for one in found: one.addHandler(handler)", ["grad", "norm", "log", "far"]),
    ],
)
def test_a_handler_hears_the_loggers_that_it_was_given_to(attached: str, feeds: list[str]) -> None:
    text = f"""
    import logging
    from logs import far_log
    log = logging.getLogger("train")
    grad_log = logging.getLogger("train.grad")
    handler = MemoryHandler(100)
    {attached}
    class Step:
        def __init__(self):
            self.log = logging.getLogger("train.grad.norm")
        def run(self, x):
            grad_log.debug("a %s", x)  # grad
            self.log.debug("b %s", x)  # norm
            log.info("c %s", x)  # log
            far_log.info("d %s", x)  # far
    """
    assert calls_that_feed(text, ON_HANDLER) == feeds


def test_where_nothing_tells_the_loggers_apart_the_line_seen_allocating_comes_first() -> None:
    text = "import logging\n" + CALLS
    seen = text.splitlines().index('        quiet_log.debug("c %s", x)  # quiet') + 1
    sites = [Site(file="/p/train.py", line=seen, bytes=1 << 20, count=9)]
    found = calls_that_feed(text, row("__main__·grad_log.handlers[*].buffer", "grad_log", sites))
    assert found[0] == "quiet"
    assert len(found) == 6
