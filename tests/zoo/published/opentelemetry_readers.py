"""A job runner with a meter provider for each job: opentelemetry-sdk 1.27.0 keeps their readers.

Repaired in 1.28.0 ("Fix memory leak in exporter and reader",
https://github.com/open-telemetry/opentelemetry-python/pull/4224).
"""

import random

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource

JOBS, ROWS = 1500, 150


class CountingExporter(MetricExporter):
    """Counts what it is given, in the place of a collector."""

    exported = 0

    def export(self, metrics_data, timeout_millis=10000, **kwargs):
        CountingExporter.exported += len(metrics_data.resource_metrics)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=10000):
        return True

    def shutdown(self, timeout_millis=30000, **kwargs):
        pass


def run_job(rng, number):
    """Import the rows of one job, and send what was measured."""
    reader = PeriodicExportingMetricReader(CountingExporter(), 600000)  # feeds
    provider = MeterProvider([reader], Resource({"job": str(number)}))
    meter = provider.get_meter("importer")
    rows = meter.create_counter("rows")
    seconds = meter.create_histogram("seconds")
    for row in range(ROWS):
        labels = {"table": f"table{row % 30}"}
        rows.add(1, labels)
        seconds.record(rng.random(), labels)
    provider.shutdown()


def main():
    rng = random.Random(0)
    for number in range(1, JOBS + 1):
        run_job(rng, number)
        if number % 300 == 0:
            print(f"{number} jobs, {CountingExporter.exported} exports", flush=True)


if __name__ == "__main__":
    main()
