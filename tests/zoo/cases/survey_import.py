"""Imports survey exports; every file has its own columns, so it gets its own record class."""

import io
import random
import time

import pyarrow as pa
import pyarrow.csv as pacsv

FILES = 320


class Record:
    """Base of the per-file record classes."""

    _known = []
    columns = ()
    vocabulary = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        Record._known.append(cls)

    def __init__(self, values):
        self.values = values

    def encode(self):
        return [self.vocabulary.get(v, -1) for v in self.values]

    @classmethod
    def describe(cls):
        return f"{cls.__name__}: {len(cls.columns)} columns, {len(cls.vocabulary)} words"


def fake_export(rng, n):
    cols = [f"q{i}_{rng.randrange(100)}" for i in range(rng.randrange(4, 7))]
    out = io.StringIO()
    out.write(",".join(cols) + "\n")
    for _ in range(400):
        out.write(",".join(f"answer-{n}-{rng.randrange(4000)}" for _ in cols) + "\n")
    return out.getvalue().encode()


def record_class(n, table):
    vocab = {}
    for col in table.columns:
        for v in col.to_pylist():
            vocab.setdefault(v, len(vocab))
    return type(
        f"Survey{n:04d}",
        (Record,),
        {
            "columns": tuple(table.column_names),
            "vocabulary": vocab,
        },
    )


def import_file(data, n):
    table = pacsv.read_csv(io.BytesIO(data))
    cls = record_class(n, table)
    checksum = 0
    rows = zip(*(c.to_pylist() for c in table.columns))
    for row in rows:
        checksum = (checksum * 31 + sum(cls(row).encode())) % 1_000_003
    return checksum, cls.describe(), table.num_rows


def main():
    rng = random.Random(23)
    pa.set_cpu_count(1)
    total = 0
    start = time.time()
    for n in range(FILES):
        data = fake_export(rng, n)
        checksum, text, rows = import_file(data, n)
        total += rows
        time.sleep(0.03)  # next file of the drop folder
        if n % 30 == 0:
            print(f"file {n} checksum {checksum} rows {total} {text}", flush=True)
    print(f"{FILES} files, {total} rows in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
