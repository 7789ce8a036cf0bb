"""For notebooks.

>>> %load_ext leakscope

``%%leakscope`` above a cell records it and shows what the report says; ``%leakscope`` says where
things stand, ``%leakscope RUN`` shows a run. In code, with or without a notebook:

>>> leakscope.notebook.run("leakscope-runs/20260101-120000-train")
"""

from leakscope.notebook.answers import CulpritAnswer, RunAnswer, run

__all__ = ["CulpritAnswer", "RunAnswer", "run"]
