"""A query service with a model made for each query: pydantic 1.9.0 keeps each generic model.

Repaired in 1.9.1 ("Limit the size of generics._generic_types_cache and
generics._assigned_parameters to avoid unlimited increase in memory usage", #4083).
"""

import random
from typing import Generic, TypeVar

from pydantic import create_model
from pydantic.generics import GenericModel

Row = TypeVar("Row")
QUERIES, ROWS = 3600, 60


class Page(GenericModel, Generic[Row]):
    number: int
    rows: list[Row]


def answer(rng, query):
    """Return a page of rows with the columns that a query asks for."""
    columns = rng.sample(range(40), 6)
    model = create_model(f"Row{query}", **{f"column{i}": (float, ...) for i in columns})
    rows = [{f"column{i}": rng.random() for i in columns} for _ in range(ROWS)]
    return Page[model](number=query, rows=rows)  # feeds


def main():
    rng = random.Random(0)
    total = 0
    for query in range(1, QUERIES + 1):
        total += len(answer(rng, query).json())
        if query % 600 == 0:
            print(f"query {query}: {total} bytes sent", flush=True)


if __name__ == "__main__":
    main()
