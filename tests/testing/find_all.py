"""Prints as JSON what `find_growth` finds in scenarios, each called by its name.

python find_all.py FILE NAME...
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import leakscope


def main() -> None:
    path = Path(sys.argv[1])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = {
        name: [
            {
                "holder": growth.holder,
                "path": growth.path,
                "bytes": growth.bytes_per_call,
                "objects": growth.objects_per_call,
                "fed_by": growth.fed_by,
                "kind": growth.kind,
                "sentence": str(growth),
            }
            for growth in leakscope.find_growth(
                getattr(module, name), steps=10, project_root=path.parent
            )
        ]
        for name in sys.argv[2:]
    }
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
