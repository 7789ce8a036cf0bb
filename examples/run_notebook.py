"""Run the cells of a notebook one after the other, as its own page would.

    python examples/run_notebook.py NOTEBOOK RUN

Its `%%leakscope --out …` records into RUN instead. It needs IPython and no server.
"""

import json
import re
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

notebook, run = Path(sys.argv[1]), sys.argv[2]
shell = InteractiveShell.instance(colors="NoColor")
shell.history_manager.enabled = False
for cell in json.loads(notebook.read_text())["cells"]:
    if cell["cell_type"] == "code":
        source = re.sub(r"^(%%leakscope --out) \S+", rf"\1 {run}", "".join(cell["source"]))
        shell.run_cell(source, store_history=True).raise_error()
