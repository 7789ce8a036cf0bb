"""Runs cells in a real shell of IPython's, in a process of its own: the argument names their file.

Prints, as JSON, what each displayed: the types of what had a representation, and the text.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

reported, cells = Path(sys.argv[1]), json.loads(Path(sys.argv[1]).read_text())
shell = InteractiveShell.instance(colors="NoColor")
shell.history_manager.enabled = False
if "as-files" in sys.argv[2:]:  # as a Jupyter kernel calls its cells
    from ipykernel.compiler import XCachingCompiler

    shell.compile = XCachingCompiler()
answers = []
for cell in cells:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        result = shell.run_cell(cell, store_history=True)
    error = result.error_before_exec or result.error_in_exec
    shown = shell.display_formatter.format(result.result)[0] if result.result is not None else {}
    answers.append(
        {
            "number": result.execution_count,
            "printed": printed.getvalue(),
            "error": type(error).__name__ if error else None,
            "html": shown.get("text/html", ""),
            "text": shown.get("text/plain", ""),
        }
    )
reported.write_text(json.dumps(answers))
