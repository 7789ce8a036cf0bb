"""The standard library's counter of lines, and coverage where it is installed."""

import os
import tempfile
import trace

from driving import train


def counted(model, x):
    kept = []
    for i in range(5):
        if i % 2:
            kept.append(i)
    return kept


counter = trace.Trace(count=1, trace=0)
counter.runfunc(train, in_epoch=counted)
found = {(os.path.basename(f), n): c for (f, n), c in counter.results().counts.items()}
print(sorted((k, v) for k, v in found.items() if k[0] == os.path.basename(__file__)))
try:
    import coverage
except ImportError:
    print("no coverage")
else:
    with tempfile.TemporaryDirectory() as folder:
        measured = coverage.Coverage(data_file=f"{folder}/data", include=[__file__], branch=True)
        with measured.collect():
            train(in_epoch=counted)
        print(sorted(measured.get_data().lines(__file__)))
