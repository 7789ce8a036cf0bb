"""Leaks of libraries by their own history: a release that leaks, one that repaired it, the truth.

Each program of ``published/`` runs with either release. What is true of it was written down from
the repair and the library's source, and that it grows, or stays flat, was seen in resident memory,
before leakscope or a peer was run on it. Six came with the ninth set; the others are marked
``since``.
"""

from __future__ import annotations

from dataclasses import dataclass

from truth import Leak, Truth


@dataclass(frozen=True)
class Pair:
    """A leak of a library, with its repair."""

    library: str
    leaking: tuple[str, ...]
    """What is installed, without dependencies, into a folder that ``PYTHONPATH`` names."""
    repaired: tuple[str, ...]
    names: tuple[str, ...]
    """What a report may call the leak: the container that grows, or the kind of its finding."""
    piles: tuple[str, ...]
    """Types of the objects that pile up, by the names that tools print, without their modules."""
    also: tuple[str, ...] = ()
    """Other names that may stand next to it: they hold the same or follow from it."""
    kept: tuple[tuple[str, float], ...] = ()
    """Bytes per unit, where they were counted."""
    is_native: bool = False
    """Whether native code forgot references or blocks, so that no container grows."""
    since: bool = True
    """Whether it came after the ninth set."""

    @property
    def truth(self) -> Truth:
        """What is true of the leaking release."""
        return Truth((Leak(self.names, also=self.also, kept=dict(self.kept)),))


def same(template: str, leaking: str, repaired: str, *more: str) -> tuple[tuple[str, ...], ...]:
    """Return two lists of packages that differ in one version."""
    return (template.format(leaking), *more), (template.format(repaired), *more)


NATIVE = ("native_held", "native", "leaked_references")
UNNAMED = ("unexplained",)
"""That memory grows which no name holds: true of what native code keeps, and not yet the leak."""

PAIRS: dict[str, Pair] = {
    "zeroconf_cache": Pair(
        "zeroconf",
        *same("zeroconf=={}", "0.24.4", "0.24.5", "ifaddr"),
        names=("DNSCache.cache", "main.cache.cache"),
        piles=("list", "str"),
        kept=(("minute", 78970000),),
        since=False,
    ),
    "pydantic_generic_pages": Pair(
        "pydantic",
        *same("pydantic=={}", "1.9.0", "1.9.1"),
        names=("pydantic.generics._generic_types_cache", "_generic_types_cache"),
        also=("pydantic.generics._assigned_parameters", "_assigned_parameters"),
        piles=("ModelMetaclass", "ModelField"),
        since=False,
    ),
    "marshmallow_dataclass_frames": Pair(
        "marshmallow_dataclass",
        *same(
            "marshmallow_dataclass=={}", "8.5.5", "8.6.1", "marshmallow==3.15.0", "typing_inspect"
        ),
        names=("marshmallow_dataclass._internal_class_schema", "_internal_class_schema"),
        piles=("frame", "SchemaMeta"),
        kept=(("step", 25209),),
        since=False,
    ),
    "sentry_propagator": Pair(
        "sentry-sdk",
        *same("sentry-sdk=={}", "2.42.1", "2.61.0"),
        names=("sentry_sdk.scope.global_event_processors", "global_event_processors"),
        piles=("function", "cell"),
        since=False,
    ),
    "socketio_rejected": Pair(
        "python-socketio",
        *same("python-socketio=={}", "1.8.1", "1.8.2", "python-engineio==1.7.0", "six"),
        names=("Server.environ", "main.server.environ"),
        piles=("dict", "str", "BytesIO"),
        kept=(("minute", 24230814),),
        since=False,
    ),
    "asgiref_locals": Pair(
        "asgiref",
        *same("asgiref=={}", "3.1.0", "3.2.10"),
        names=("Local._storage", "current._storage", "current"),
        piles=("dict", "bytes", "Task"),
        kept=(("minute", 113108160),),
        since=False,
    ),
    "aiohttp_cookie_paths": Pair(
        "aiohttp",
        *same("aiohttp=={}", "3.12.2", "3.12.4"),
        names=(
            "CookieJar._cookies", "session._cookie_jar._cookies",
            "ClientSession._cookie_jar._cookies", "main.session._cookie_jar._cookies",
        ),
        piles=("SimpleCookie",),
    ),
    "aiohttp_refused_methods": Pair(
        "aiohttp",
        *same("aiohttp=={}", "3.10.10", "3.10.11"),
        names=("aiohttp.web_app._build_middlewares", "web_app._build_middlewares",
               "_build_middlewares"),
        piles=("MatchInfoError", "HTTPMethodNotAllowed", "SystemRoute", "partial"),
    ),
    "opentelemetry_readers": Pair(
        "opentelemetry-sdk",
        (
            "opentelemetry-sdk==1.27.0", "opentelemetry-api==1.27.0",
            "opentelemetry-semantic-conventions==0.48b0", "deprecated", "wrapt",
        ),
        (
            "opentelemetry-sdk==1.28.0", "opentelemetry-api==1.28.0",
            "opentelemetry-semantic-conventions==0.49b0", "deprecated", "wrapt",
        ),
        names=("MeterProvider._all_metric_readers",
               "opentelemetry.sdk.metrics._internal.MeterProvider._all_metric_readers",
               "register_at_fork", "os.register_at_fork", "native_held"),
        piles=("PeriodicExportingMetricReader", "MeterProvider", "_ViewInstrumentMatch",
               "_ExplicitBucketHistogramAggregation"),
    ),
    "param_pipelines": Pair(
        "param",
        *same("param=={}", "2.4.0", "2.4.2"),
        names=tuple(
            f"{owner}._param__private.watchers{key}"
            for owner in ("settings", "main.settings", "Settings")
            for key in ("", "['scale']", "['scale']['value']", "['offset']", "['offset']['value']",
                        "[*]", "[*]['value']")
        ),
        piles=("rx", "Watcher", "ndarray"),
    ),
    "trio_limiter": Pair(
        "trio",
        *same("trio=={}", "0.5.0", "0.6.0", "async-generator", "outcome", "sniffio",
              "sortedcontainers", "attrs", "idna"),
        names=("CapacityLimiter._pending_borrowers", "limiter._pending_borrowers",
               "serve.limiter._pending_borrowers", "call.limiter._pending_borrowers"),
        piles=("Task", "Context", "dict", "bytes"),
    ),
    "sentry_spans": Pair(
        "sentry-sdk",
        *same("sentry-sdk=={}", "0.10.1", "0.10.2"),
        names=("Span._finished_spans", "span._finished_spans", "Scope._span._finished_spans",
               "main.hub.scope._span._finished_spans", "hub._stack[*][*]._span._finished_spans",
               "main.hub._stack[*][1]._span._finished_spans"),
        piles=("Span",),
    ),
    "torchmetrics_gradients": Pair(
        "torchmetrics",
        *same("torchmetrics=={}", "0.7.2", "0.7.3", "pyDeprecate==0.3.2", "setuptools==75.8.0"),
        names=("error.sum_squared_error", "main.error.sum_squared_error",
               "MeanSquaredError.sum_squared_error"),
        piles=("Tensor", "AddBackward0", "AddmmBackward0", "GeluBackward0"),
    ),
    "orjson_halves": Pair(
        "orjson",
        *same("orjson=={}", "3.9.5", "3.9.6"),
        names=NATIVE,
        also=UNNAMED,
        piles=("ndarray", "PyCapsule"),
        is_native=True,
    ),
    "numpy_reductions": Pair(
        "numpy",
        *same("numpy=={}", "2.3.1", "2.3.2"),
        names=NATIVE,
        also=UNNAMED,
        piles=("ndarray",),
        is_native=True,
    ),
    "bson_rejected": Pair(
        "pymongo",
        *same("pymongo=={}", "4.15.2", "4.15.3"),
        names=NATIVE,
        also=UNNAMED,
        piles=("str", "dict", "InvalidDocument"),
        is_native=True,
    ),
    "msgspec_raw": Pair(
        "msgspec",
        *same("msgspec=={}", "0.18.6", "0.19.0"),
        names=NATIVE,
        also=UNNAMED,
        piles=("bytes",),
        is_native=True,
    ),
    "multidict_headers": Pair(
        "multidict",
        *same("multidict=={}", "6.3.1", "6.4.2"),
        names=NATIVE,
        also=UNNAMED,
        piles=("list", "tuple", "str"),
        is_native=True,
    ),
    "pydantic_iterables": Pair(
        "pydantic-core",
        ("pydantic==2.7.0", "pydantic-core==2.18.1"),
        ("pydantic==2.7.1", "pydantic-core==2.18.2"),
        names=(*NATIVE, "garbage"),
        also=UNNAMED,
        piles=("Reader", "Upload", "ValidatorIterator", "list", "float"),
        is_native=True,
    ),
    "pillow_arrow": Pair(
        "pillow",
        *same("pillow=={}", "11.2.1", "11.3.0"),
        names=NATIVE,
        also=UNNAMED,
        piles=(),
        is_native=True,
    ),
}  # fmt: skip
"""The programs, by the names of their files."""
