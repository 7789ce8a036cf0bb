# ruff: noqa: INP001  no package: only this folder is to be found
"""The start-up hook of a program that ``subprocess`` was to start: Python imports it by its name.

It leaves environment and path as the program would have found them, has an own ``sitecustomize``
of the installation run in its place, and begins to wait for the moment at which the recording is
due. Until then it costs a thread; leakscope is imported when that moment has come.
"""

import os
import sys

_PASSES_ON = "ray/_private/workers/setup_worker.py"
"""Becomes another program by ``exec``: that is the one to be recorded."""


def _enter() -> None:
    if any(word.endswith(_PASSES_ON) for word in sys.orig_argv[1:]):
        return
    text = os.environ.pop("LEAKSCOPE_CHILD", None)
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [place for place in sys.path if place != here]
    sys.path_importer_cache.pop(here, None)
    if text is None:
        return
    import json

    carried = json.loads(text)
    if carried["path"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = carried["path"]
    sys.path.append(carried["root"])  # leakscope needn't be installed where the program finds it
    try:
        from leakscope.capture import children
    finally:
        sys.path.pop()
    children.run_program(carried["place"])


def _chain() -> None:
    """Run the ``sitecustomize`` that would have been found without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    found = PathFinder.find_spec("sitecustomize")
    if found is None or found.loader is None:
        return
    sys.modules["sitecustomize"] = module = module_from_spec(found)
    found.loader.exec_module(module)


try:
    _enter()
except Exception:
    pass  # the program must not notice
_chain()
