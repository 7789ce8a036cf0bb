"""What libraries of services keep: templates, consoles, loggers, metrics, sessions."""

import asyncio
import os
from pathlib import Path

from rounds import rounds, run

TEXT = "x" * 4000


def jinja2_unbounded_cache(leaks):
    import jinja2

    loader = jinja2.FunctionLoader(lambda name: "{{ a }} " * 20 + name)
    env = jinja2.Environment(loader=loader, cache_size=-1 if leaks else 20, autoescape=True)
    for i in rounds():
        for j in range(4):
            env.get_template(f"{i}.{j}")


def rich_recording(leaks):
    import rich.console

    with Path(os.devnull).open("w") as nowhere:
        console = rich.console.Console(record=True, file=nowhere, width=200)
        for i in rounds():
            for j in range(20):
                console.print("x" * 150, i, j)
            if not leaks:
                console.export_text()


def rich_progress_tasks(leaks):
    import rich.console
    import rich.progress

    with Path(os.devnull).open("w") as nowhere:
        progress = rich.progress.Progress(console=rich.console.Console(file=nowhere))
        for i in rounds():
            for j in range(20):
                task = progress.add_task(f"file {i} {j}", total=10)
                progress.update(task, advance=10)
                if not leaks:
                    progress.remove_task(task)


def loguru_handlers(leaks):
    import loguru

    logger = loguru.logger
    logger.remove()
    for _ in rounds():
        for j in range(10):
            number = logger.add(lambda text: None, format=f"{{message}}{j}")
            if not leaks:
                logger.remove(number)


def prometheus_labels(leaks):
    import prometheus_client

    seen = prometheus_client.Histogram("latency", "of a request", ["user"])
    for i in rounds():
        for j in range(10):
            seen.labels(user=f"{i}-{j}" if leaks else str(j)).observe(1.0)


def prometheus_registry(leaks):
    import prometheus_client

    registry = prometheus_client.CollectorRegistry()
    for i in rounds():
        for j in range(10):
            metric = prometheus_client.Histogram(f"job_{i}_{j}", "of a job", registry=registry)
            if not leaks:
                registry.unregister(metric)


def opentelemetry_attributes(leaks):
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    provider = MeterProvider([InMemoryMetricReader()])
    counter = provider.get_meter("program").create_counter("requests")
    for i in rounds():
        for j in range(10):
            counter.add(1, {"user": f"{i}-{j}-{TEXT[:1000]}" if leaks else str(j)})


def opentelemetry_spans_in_memory(leaks):
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("program")
    for i in rounds():
        for j in range(10):
            with tracer.start_as_current_span(f"request {i} {j}"):
                pass
        if not leaks:
            exporter.clear()


def sqlalchemy_pending(leaks):
    import sqlalchemy as sa
    from sqlalchemy.orm import Session, declarative_base

    base = declarative_base()

    class Row(base):
        __tablename__ = "row"
        id = sa.Column(sa.Integer, primary_key=True)
        text = sa.Column(sa.String)

    engine = sa.create_engine("sqlite://")
    base.metadata.create_all(engine)
    with Session(engine, autoflush=False) as session:
        for i in rounds():
            for j in range(10):
                session.add(Row(text=f"{TEXT[:2000]}{i}.{j}"))
            if not leaks:
                session.commit()


def sqlalchemy_tables(leaks):
    import sqlalchemy as sa

    metadata = sa.MetaData()
    for i in rounds():
        for j in range(4):
            columns = [sa.Column(f"c{k}", sa.Integer) for k in range(4)]
            table = sa.Table(f"t{i}_{j}", metadata, *columns)
            if not leaks:
                metadata.remove(table)


def redis_pipeline(leaks):
    import redis

    pipe = redis.Redis().pipeline()
    for i in rounds():
        for j in range(10):
            pipe.set(f"{i}.{j}", f"{TEXT[:2000]}{i}.{j}")
        if not leaks:
            pipe.reset()


def kombu_memory_transport(leaks):
    import kombu

    channel = kombu.Connection("memory://").channel()
    queue = kombu.Queue("results", channel=channel)
    queue.declare()
    producer = kombu.Producer(channel)
    for i in rounds():
        for j in range(30):
            producer.publish({"text": f"{TEXT}{i}.{j}"}, routing_key="results")
        if not leaks:
            queue.purge()


def aiohttp_cookies(leaks):
    import aiohttp
    from yarl import URL

    async def main():
        jar = aiohttp.CookieJar() if leaks else aiohttp.DummyCookieJar()
        for i in rounds():
            for j in range(20):
                url = URL(f"http://h{i}-{j}.example.org/")
                jar.update_cookies({"id": f"{TEXT[:500]}{j}"}, url)

    asyncio.run(main())


def marshmallow_registry(leaks):
    import marshmallow

    for i in rounds():
        for j in range(20):
            meta = type("Meta", (), {"register": leaks})
            fields = {"a": marshmallow.fields.Int(), "Meta": meta}
            type(f"Row{i}x{j}", (marshmallow.Schema,), fields)


if __name__ == "__main__":
    run(globals())
