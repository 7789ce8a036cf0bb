"""Traced reports, a database for each tenant: opentelemetry 0.39b0 keeps each engine of SQLAlchemy.

So that listeners can be removed later. Repaired in 0.40b0 ("Use a weak reference to sqlalchemy
Engine to avoid memory leak",
https://github.com/open-telemetry/opentelemetry-python-contrib/pull/1771), and the rest in 0.50b0.
"""

import random
import time
from collections import Counter

import sqlalchemy as sa
from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

REPORTS, PER_SECOND, ORDERS = 720, 60, 30
REPORT_EVERY = 120

metadata = sa.MetaData()
orders = sa.Table(
    "orders",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("article", sa.String(20)),
    sa.Column("pieces", sa.Integer),
    sa.Column("price", sa.Float),
)


class Durations(SpanProcessor):
    """How long the statements take, by their names."""

    def __init__(self):
        self.seconds, self.spans = Counter(), Counter()

    def on_end(self, span):
        self.seconds[span.name] += (span.end_time - span.start_time) / 1e9
        self.spans[span.name] += 1


class Tenant:
    """A customer with a database of its own, which is opened for each report."""

    def __init__(self, number, rnd):
        self.name = f"tenant-{number:04d}"
        self.rows = [
            {"number": n, "article": f"a{rnd.randrange(50)}", "pieces": rnd.randint(1, 9),
             "price": round(rnd.uniform(1, 90), 2)}
            for n in range(ORDERS)
        ]  # fmt: skip

    def open(self):
        engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)  # feeds
        metadata.create_all(engine)
        with engine.begin() as connection:
            connection.execute(orders.insert(), self.rows)
        return engine


def report(tenant):
    """Return the articles that a tenant sold most of."""
    engine = tenant.open()
    try:
        with engine.connect() as connection:
            sold = sa.func.sum(orders.c.pieces * orders.c.price).label("sold")
            query = sa.select(orders.c.article, sold).group_by(orders.c.article)
            return connection.execute(query.order_by(sold.desc()).limit(3)).all()
    finally:
        engine.dispose()


def main():
    rnd, durations = random.Random(0), Durations()
    provider = TracerProvider()
    provider.add_span_processor(durations)
    SQLAlchemyInstrumentor().instrument(tracer_provider=provider)
    begun = time.monotonic()
    for number in range(1, REPORTS + 1):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        best = report(Tenant(rnd.randrange(2000), rnd))
        if number % REPORT_EVERY == 0:
            spans = sum(durations.spans.values())
            print(f"{number} reports, {spans} spans, best {best[0].article}", flush=True)
    print(durations.spans.most_common(3))


if __name__ == "__main__":
    main()
