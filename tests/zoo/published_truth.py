"""Leaks of libraries by their own history: a release that leaks, one that repaired it, the truth.

Each program of ``published/`` runs with either release. What is true of it was written down from
the repair and the library's source, and that it grows, or stays flat, was seen in resident memory,
before leakscope or a peer was run on it. They came in sets, which ``set_number`` tells.
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
    growth: str = "across"
    """``within`` where something empties it before the program ends."""
    set_number: int = 2
    """1 of the six that came with the zoo's ninth set, 2 of the fourteen after them, 3 of the
    eighteen that followed, 4 of the twelve around training, 5 of the twelve after these, 6 of the
    four that came then, 7 of the nine after them, 8 of the last twelve."""

    @property
    def truth(self) -> Truth:
        """What is true of the leaking release."""
        leak = Leak(self.names, also=self.also, kept=dict(self.kept), growth=self.growth)
        return Truth((leak,))


def same(template: str, leaking: str, repaired: str, *more: str) -> tuple[tuple[str, ...], ...]:
    """Return two lists of packages that differ in one version."""
    return (template.format(leaking), *more), (template.format(repaired), *more)


NATIVE = ("native_held", "native", "leaked_references")
BLOCKS = ("native_held", "native")
"""Where memory is lost that is no Python object's."""
UNNAMED = ("unexplained",)
"""That memory grows which no name holds: true of what native code keeps, and not yet the leak."""

SKLEARN = (
    "scikit-learn==1.9.1", "joblib==1.6.0", "narwhals==2.29.0", "threadpoolctl==3.8.0",
)  # fmt: skip

HTTPX = ("httpx==0.25.2", "httpcore==1.0.2")
LANGSMITH = (
    "requests-toolbelt==1.0.0", "uuid-utils==0.12.0", "zstandard==0.25.0", "orjson==3.11.4",
    "xxhash==3.6.0",
)  # fmt: skip
HOLOVIZ = (
    "panel==1.8.10", "bokeh==3.8.2", "param==2.2.1", "pyviz-comms==3.0.6", "colorcet==3.1.0",
    "xyzservices==2025.4.0", "bleach==6.2.0", "webencodings==0.5.1", "tornado==6.5.2",
    "narwhals==2.10.2", "linkify-it-py==2.0.3", "uc-micro-py==1.0.3",
)  # fmt: skip
OPENAI = (
    "httpx==0.28.1", "httpcore==1.0.9", "h11==0.16.0", "anyio==4.16.0", "sniffio==1.3.1",
    "distro==1.9.0", "jiter==0.19.0", "pydantic==2.12.5", "pydantic-core==2.41.5",
    "typing-inspection==0.4.5",
)  # fmt: skip
SQLALCHEMY = (
    "sqlalchemy==2.0.36", "deprecated==1.2.18", "wrapt==1.17.2", "setuptools==75.8.0",
    "zipp==3.21.0", "packaging==24.2",
)  # fmt: skip

WORLD = (
    "pymunk==6.9.0", "pygame==2.6.1", "gymnasium==0.29.1", "farama-notifications==0.0.4",
    "numpy==1.26.4",
)  # fmt: skip

MUJOCO = ("glfw==2.11.0", "pyopengl==3.1.10", "etils==1.15.0", "absl-py==2.5.1")
POKE = (
    "gymnasium==0.29.1", "farama-notifications==0.0.6", "websockets==12.0", "orjson==3.13.0",
    "requests==2.34.2", "tabulate==0.10.0", "urllib3==2.8.0", "charset-normalizer==3.5.3",
    "certifi==2026.10.19.post1", "cloudpickle==3.1.3",
)  # fmt: skip
ASTROPY = ("numpy==2.2.6", "pyerfa==2.0.1.5", "astropy-iers-data==0.2026.11.2.0.34.55")
NICEGUI = (
    "fastapi==0.165.0", "httpx==0.28.1", "httpcore==1.0.9", "certifi==2026.10.19.post1",
    "docutils==0.22.4",
    "aiofiles==25.1.0", "bidict==0.24.1", "httptools==0.9.0", "ifaddr==0.2.0",
    "itsdangerous==2.2.0", "markdown2==2.5.5", "orjson==3.13.0", "pscript==0.8.1",
    "python-engineio==4.15.1", "python-socketio==5.18.1", "simple-websocket==1.1.0",
    "tinycss2==1.5.1", "vbuild==0.8.2", "webencodings==0.6.1", "wsproto==1.3.2",
)  # fmt: skip

PAIRS: dict[str, Pair] = {
    "zeroconf_cache": Pair(
        "zeroconf",
        *same("zeroconf=={}", "0.24.4", "0.24.5", "ifaddr"),
        names=("DNSCache.cache", "main.cache.cache"),
        piles=("list", "str"),
        kept=(("minute", 78970000),),
        set_number=1,
    ),
    "pydantic_generic_pages": Pair(
        "pydantic",
        *same("pydantic=={}", "1.9.0", "1.9.1"),
        names=("pydantic.generics._generic_types_cache", "_generic_types_cache"),
        also=("pydantic.generics._assigned_parameters", "_assigned_parameters"),
        piles=("ModelMetaclass", "ModelField"),
        set_number=1,
    ),
    "marshmallow_dataclass_frames": Pair(
        "marshmallow_dataclass",
        *same(
            "marshmallow_dataclass=={}", "8.5.5", "8.6.1", "marshmallow==3.15.0", "typing_inspect"
        ),
        names=("marshmallow_dataclass._internal_class_schema", "_internal_class_schema"),
        piles=("frame", "SchemaMeta"),
        kept=(("step", 25209),),
        set_number=1,
    ),
    "sentry_propagator": Pair(
        "sentry-sdk",
        *same("sentry-sdk=={}", "2.42.1", "2.61.0"),
        names=("sentry_sdk.scope.global_event_processors", "global_event_processors"),
        piles=("function", "cell"),
        set_number=1,
    ),
    "socketio_rejected": Pair(
        "python-socketio",
        *same("python-socketio=={}", "1.8.1", "1.8.2", "python-engineio==1.7.0", "six"),
        names=("Server.environ", "main.server.environ"),
        piles=("dict", "str", "BytesIO"),
        kept=(("minute", 24230814),),
        set_number=1,
    ),
    "asgiref_locals": Pair(
        "asgiref",
        *same("asgiref=={}", "3.1.0", "3.2.10"),
        names=("Local._storage", "current._storage", "current"),
        piles=("dict", "bytes", "Task"),
        kept=(("minute", 113108160),),
        set_number=1,
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
    "fsspec_archive": Pair(
        "fsspec",
        *same("fsspec=={}", "2022.3.0", "2022.5.0"),
        names=("ZipFileSystem._cache", "fsspec.implementations.zip.ZipFileSystem._cache"),
        piles=("ZipFileSystem", "ZipFile", "ZipInfo", "dict", "LocalFileOpener", "BufferedReader"),
        set_number=3,
    ),
    "h5py_attrs": Pair(
        "h5py",
        *same("h5py=={}", "3.15.1", "3.16.0"),
        names=NATIVE,
        also=UNNAMED,
        piles=("int",),
        is_native=True,
        set_number=3,
    ),
    "numba_rng": Pair(
        "numba",
        ("numba==0.60.0", "llvmlite==0.43.0", "numpy==1.26.4"),
        ("numba==0.61.0", "llvmlite==0.44.0", "numpy==1.26.4"),
        names=NATIVE,
        # A list of 9 of the 628 bytes that each call leaves.
        also=(*UNNAMED, "knocked_out_payoff._types_active_call",
              "CPUDispatcher._types_active_call"),
        piles=("tuple", "c_void_p"),
        is_native=True,
        set_number=3,
    ),
    "opencv_convert": Pair(
        "opencv-python-headless",
        *same("opencv-python-headless=={}", "4.12.0.88", "4.13.0.92", "numpy==2.2.6"),
        names=NATIVE,
        also=UNNAMED,
        piles=("float", "ndarray"),
        is_native=True,
        set_number=3,
    ),
    "ort_strings": Pair(
        "onnxruntime",
        *same("onnxruntime=={}", "1.20.1", "1.21.0", "coloredlogs==15.0.1", "flatbuffers==25.12.19",
              "humanfriendly==10.0", "numpy==1.26.4", "onnx==1.17.0", "protobuf==7.36.2"),
        names=NATIVE,
        also=UNNAMED,
        piles=("str",),
        is_native=True,
        set_number=3,
    ),
    "pandas_readcsv": Pair(
        "pandas",
        *same("pandas=={}", "2.2.0", "2.2.1", "numpy==1.26.4", "pytz==2026.6"),
        # The lost blocks are tiny: what grows is the free memory between them.
        names=(*NATIVE, "allocator_slack"),
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=3,
    ),
    "pandas_viewrefs": Pair(
        "pandas",
        *same("pandas=={}", "2.1.0", "2.1.1", "numpy==1.26.4", "pytz==2026.6"),
        names=(
            "BlockValuesRefs.referenced_blocks",
            "pandas._libs.internals.BlockValuesRefs.referenced_blocks",
            *(
                f"{owner}._mgr.blocks[{index}].refs.referenced_blocks"
                for owner in ("bars", "main.bars", "test.bars", "main.test.bars", "Backtest.bars")
                for index in "0*"
            ),
        ),
        piles=("ReferenceType", "weakref"),
        set_number=3,
    ),
    "pyarrow_struct": Pair(
        "pyarrow",
        *same("pyarrow=={}", "15.0.2", "16.0.0", "numpy==1.26.4"),
        names=NATIVE,
        also=UNNAMED,
        piles=("list", "tuple", "str"),
        is_native=True,
        set_number=3,
    ),
    "sklearn_svr": Pair(
        "scikit-learn",
        *same("scikit-learn=={}", "1.9.0", "1.9.1", "cloudpickle==3.1.3", "joblib==1.6.0",
              "narwhals==2.29.0", "threadpoolctl==3.8.0"),
        names=NATIVE,
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=3,
    ),
    "celery_results": Pair(
        "celery",
        (
            "celery==5.5.3", "kombu==5.5.4", "amqp==5.4.2", "billiard==4.2.1", "vine==5.1.0",
            "redis==5.2.1", "async-timeout==5.0.1", "click-didyoumean==0.3.1",
            "click-plugins==1.1.1.2", "click-repl==0.4.1",
        ),
        (
            "celery==5.6.0", "kombu==5.6.0", "amqp==5.4.2", "billiard==4.2.1", "vine==5.1.0",
            "redis==5.2.1", "async-timeout==5.0.1", "click-didyoumean==0.3.1",
            "click-plugins==1.1.1.2", "click-repl==0.4.1", "exceptiongroup==1.3.2",
            "tzlocal==5.4.5",
        ),
        names=(
            "pending_results_t.concrete", "pending_results.concrete",
            *(
                f"{owner}._pending_results{part}"
                for owner in ("RedisBackend", "celery.backends.redis.RedisBackend", "backend",
                              "app.backend", "app._local.backend", "ResultConsumer",
                              "RedisBackend.result_consumer", "app.backend.result_consumer")
                for part in (".concrete", "[0]", "[*]")
            ),
        ),
        piles=("AsyncResult", "promise", "partial", "Inquiry", "dict", "str", "float"),
        set_number=3,
    ),
    "gevent_greenlets": Pair(
        "greenlet",
        *same("greenlet=={}", "2.0.0", "2.0.1", "gevent==22.10.2", "zope.event==6.2",
              "zope.interface==8.7"),
        names=NATIVE,
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=3,
    ),
    "hiredis_maps": Pair(
        "hiredis",
        *same("hiredis=={}", "3.1.0", "3.2.0"),
        names=NATIVE,
        also=UNNAMED,
        piles=("tuple", "str"),
        is_native=True,
        set_number=3,
    ),
    "kafka_headers": Pair(
        "confluent-kafka",
        *same("confluent-kafka=={}", "2.13.0", "2.13.2"),
        names=NATIVE,
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=3,
    ),
    "psycopg_json": Pair(
        "psycopg",
        ("psycopg==3.2.9", "psycopg-binary==3.2.9"),
        ("psycopg==3.2.10", "psycopg-binary==3.2.10"),
        names=(
            "psycopg.types.json._make_dumper", "psycopg.types.json._make_loader",
            "json._make_dumper", "json._make_loader", "_make_dumper", "_make_loader",
        ),
        piles=("ABCMeta", "type", "function", "CustomJsonDumper", "CustomJsonLoader"),
        set_number=3,
    ),
    "pyproj_authority": Pair(
        "pyproj",
        *same("pyproj=={}", "3.4.0", "3.4.1"),
        names=NATIVE,
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=3,
    ),
    "rapidjson_arrays": Pair(
        "python-rapidjson",
        *same("python-rapidjson=={}", "1.5", "1.6"),
        names=NATIVE,
        also=UNNAMED,
        piles=("array",),
        is_native=True,
        set_number=3,
    ),
    "redis_reader": Pair(
        "redis",
        *same("redis=={}", "4.5.4", "4.5.5", "hiredis==2.2.2", "async-timeout==5.0.1"),
        # A circle through an object that the collector can't see through.
        names=(*NATIVE, "garbage"),
        also=UNNAMED,
        piles=("HiredisParser", "Reader", "StreamReader", "_SelectorSocketTransport",
               "TransportSocket", "socket", "method"),
        is_native=True,
        set_number=3,
    ),
    "structlog_files": Pair(
        "structlog",
        *same("structlog=={}", "25.5.0", "26.1.0"),
        names=("structlog._output.WRITE_LOCKS", "_output.WRITE_LOCKS", "WRITE_LOCKS"),
        piles=("BytesIO", "lock"),
        set_number=3,
    ),
    "beartype_closures": Pair(
        "beartype",
        *same("beartype=={}", "0.22.9", "0.23.0"),
        # A dict in a cell of the memoized function.
        names=(
            "beartype._util.bear.utilbearblack.is_object_blacklisted",
            "utilbearblack.is_object_blacklisted", "is_object_blacklisted",
            "is_object_blacklisted.args_flat_to_return_value", "args_flat_to_return_value",
            "beartype._util.bear.utilbearblack.is_object_blacklisted⟨args_flat_to_return_value⟩",
        ),
        piles=("function", "cell", "tuple", "Tensor"),
        kept=(("step", 83200),),
        set_number=4,
    ),
    "captum_refused": Pair(
        "captum",
        *same("captum=={}", "0.2.0", "0.3.0"),
        names=(
            *(
                f"{owner}.encoder._forward_hooks"
                for owner in ("model", "main.model", "Demand", "explainer.forward_func",
                              "main.explainer.forward_func", "LayerActivation.forward_func")
            ),
            "explainer.layer._forward_hooks", "main.explainer.layer._forward_hooks",
            "LayerActivation.layer._forward_hooks", "Sequential._forward_hooks",
        ),
        piles=("function", "cell", "dict", "tuple", "Tensor", "lock"),
        kept=(("request", 12288),),
        set_number=4,
    ),
    "forecasting_datasets": Pair(
        "pytorch-forecasting",
        *same("pytorch-forecasting=={}", "1.4.0", "1.5.0", *SKLEARN),
        names=tuple(
            f"{owner}{name}"
            for owner in ("TimeSeriesDataSet.", "_timeseries.TimeSeriesDataSet.",
                          "pytorch_forecasting.data.timeseries._timeseries.TimeSeriesDataSet.", "")
            for name in ("lagged_variables", "lagged_targets", "min_lag", "max_lag",
                         "_group_ids_mapping", "_group_ids", "target_names")
        ),
        piles=("TimeSeriesDataSet", "Tensor", "dict", "DataFrame", "NaNLabelEncoder",
               "EncoderNormalizer", "StandardScaler"),
        kept=(("request", 1152000),),
        set_number=4,
    ),
    "forecasting_outputs": Pair(
        "pytorch-forecasting",
        *same("pytorch-forecasting=={}", "1.4.0", "1.5.0", *SKLEARN),
        names=(
            "model.training_step_outputs", "main.model.training_step_outputs",
            "RecurrentNetwork.training_step_outputs", "BaseModel.training_step_outputs",
            "trainer.lightning_module.training_step_outputs",
        ),
        piles=("Tensor", "dict"),
        set_number=4,
    ),
    "gradcam_images": Pair(
        "grad-cam",
        *same("grad-cam=={}", "1.3.1", "1.3.6", "opencv-python-headless==5.0.0.93",
              "ttach==0.0.3"),
        # Each explainer's hooks are methods of an object whose two lists grow with each image.
        names=(
            *(
                f"{owner}.{hooks}"
                for owner in ("model[9]", "main.model[9]", "Sequential[9]", "ReLU",
                              "explain.model[9]", "explain.layer")
                for hooks in ("_forward_hooks", "_backward_hooks")
            ),
            "ActivationsAndGradients.activations", "ActivationsAndGradients.gradients",
        ),
        piles=("Tensor", "ActivationsAndGradients", "method", "list"),
        kept=(("image", 1179648),),
        set_number=4,
    ),
    "memlab_reports": Pair(
        "pytorch_memlab",
        *same("pytorch_memlab=={}", "0.2.1", "0.2.3", "calmsize==0.1.3"),
        names=("reporter.tensor_name", "main.reporter.tensor_name", "MemReporter.tensor_name"),
        piles=("Tensor", "str"),
        kept=(("step", 25088),),
        set_number=4,
    ),
    "mlflow_loads": Pair(
        "mlflow",
        *same("mlflow-skinny=={}", "3.14.0", "3.15.0"),
        # Each provider is held by its worker thread, and by its handler at exit.
        names=("threads", "threading._active", "_active", "atexit", "BatchSpanProcessor",
               "BatchProcessor", "BatchProcessor.worker.self"),
        also=UNNAMED,  # what is native for each thread
        piles=("Thread", "BatchProcessor", "BatchSpanProcessor", "TracerProvider", "Event",
               "MlflowV3SpanProcessor", "MlflowV3SpanExporter",
               "Condition", "deque", "lock", "dict"),
        set_number=4,
    ),
    "neurobench_baseline": Pair(
        "neurobench",
        *same("neurobench=={}", "1.0.2", "1.0.3", "snntorch==0.9.1", "nir==1.0.8",
              "nirtorch==2.6"),
        names=(
            "ActivationHook.activation_inputs", "ActivationHook.activation_outputs",
            "LayerHook.inputs",
            *(
                f"{owner}.model.{hooks}"
                for owner in ("benchmark", "main.benchmark", "Benchmark")
                for hooks in ("activation_hooks", "activation_hooks[0].activation_inputs",
                              "activation_hooks[0].activation_outputs",
                              "activation_hooks[1].activation_inputs",
                              "activation_hooks[1].activation_outputs",
                              "activation_hooks[*].activation_inputs",
                              "activation_hooks[*].activation_outputs",
                              "connection_hooks", "connection_hooks[0].inputs",
                              "connection_hooks[1].inputs", "connection_hooks[2].inputs",
                              "connection_hooks[*].inputs")
            ),
        ),
        piles=("Tensor", "tuple"),
        kept=(("step", 28672),),
        growth="within",
        set_number=4,
    ),
    "opacus_validation": Pair(
        "opacus",
        *same("opacus=={}", "0.10.0", "0.10.1"),
        names=(
            "Linear.activations",
            *(
                f"{owner}[{index}].activations"
                for owner in ("model", "main.model", "Sequential")
                for index in (0, 2, 4, "*")
            ),
        ),
        piles=("Tensor",),
        kept=(("epoch", 786432),),
        set_number=4,
    ),
    "ppe_reports": Pair(
        "pytorch-pfn-extras",
        *same("pytorch-pfn-extras=={}", "0.2.1", "0.3.0"),
        # Sums of the values and of their squares, tensors whose graphs grow.
        names=(
            "Summary._x", "Summary._x2", "DictSummary._summaries", "LogReport._summary",
            "Reporter.observation",
            *(
                f"{owner}._extensions['LogReport'].extension._summary{part}"
                for owner in ("manager", "main.manager", "train.manager", "ExtensionsManager")
                for part in ("", "._summaries", "._summaries['train/entropy']._x",
                             "._summaries['train/entropy']._x2", "._summaries['train/loss']._x",
                             "._summaries['train/loss']._x2", "._summaries[*]._x",
                             "._summaries[*]._x2")
            ),
        ),
        piles=("Tensor", "AddBackward0", "CloneBackward0", "MulBackward0", "SoftmaxBackward0",
               "LogSoftmaxBackward0"),
        set_number=4,
    ),
    "spikingjelly_trials": Pair(
        "spikingjelly",
        *same("spikingjelly=={}", "0.0.0.0.14", "2.0.0", "loguru==0.7.3"),
        # A circle through nodes of autograd, which the collector can't see through.
        names=("autograd_loop", "gradient_cycle", *NATIVE, "garbage"),
        also=UNNAMED,
        piles=("Parameter", "Tensor"),
        is_native=True,
        set_number=4,
    ),
    "torchbearer_metrics": Pair(
        "torchbearer",
        *same("torchbearer=={}", "0.3.0", "0.3.2"),
        # A tensor to which each loss is added, so that its graph grows.
        names=(
            "Mean._sum",
            *(
                f"{owner}.metric_list[{first}].children[{index}].metric._sum"
                for owner in ("MetricList", "trial.state[*]", "main.trial.state[*]")
                for first in (0, "*")
                for index in (0, 1, "*")
            ),
        ),
        piles=("Tensor", "AddBackward0", "AddmmBackward0", "GeluBackward0"),
        set_number=4,
    ),
    "scipy_frechet": Pair(
        "scipy",
        *same("scipy=={}", "1.16.1", "1.16.2"),
        # A block of 96 x 96 doubles for each distance, every second step.
        names=NATIVE,
        also=UNNAMED,
        piles=(),
        kept=(("step", 36864),),
        is_native=True,
        set_number=5,
    ),
    "ujson_identifiers": Pair(
        "ujson",
        *same("ujson=={}", "5.11.0", "5.12.0"),
        # A block of Python's own small ones for each number, with its digits.
        names=NATIVE,
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=5,
    ),
    "selectolax_fragments": Pair(
        "selectolax",
        *same("selectolax=={}", "0.4.4", "0.4.6"),
        names=NATIVE,
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=5,
    ),
    "cbor2_articles": Pair(
        "cbor2",
        *same("cbor2=={}", "5.8.0", "5.9.0"),
        names=NATIVE,
        also=UNNAMED,
        piles=("str",),
        is_native=True,
        set_number=5,
    ),
    "eventlet_names": Pair(
        "eventlet",
        *same("eventlet=={}", "0.33.3", "0.34.1", "dnspython==2.6.1", "greenlet==3.1.1",
              "six==1.17.0"),
        # The traceback of one exception grows, by the frames of each caller and their locals.
        names=tuple(
            f"{owner}{name}{part}"
            for owner in ("eventlet.support.greendns.", "greendns.", "")
            for name in ("EAI_NONAME_ERROR", "EAI_NODATA_ERROR")
            for part in ("", ".__traceback__")
        ),
        piles=("traceback", "frame", "Request", "bytes", "str"),
        set_number=5,
    ),
    "aiocache_locks": Pair(
        "aiocache",
        *same("aiocache=={}", "0.12.2", "0.12.3"),
        names=(
            "SimpleMemoryCache._handlers", "SimpleMemoryBackend._handlers",
            "aiocache.backends.memory.SimpleMemoryCache._handlers",
            "quotes.cache._handlers", "main.quotes.cache._handlers", "Quotes.cache._handlers",
        ),
        piles=("TimerHandle", "str", "tuple", "method", "Context"),
        set_number=5,
    ),
    "sse_watchers": Pair(
        "sse-starlette",
        *same("sse-starlette=={}", "3.1.1", "3.1.2"),
        # Tasks that sleep; each holds a copy of the context of its request.
        names=(
            "tasks", "pending_tasks", "asyncio_tasks", "asyncio.all_tasks",
            "asyncio.tasks._all_tasks", "_all_tasks", "sse_starlette.sse._shutdown_watcher",
            "sse._shutdown_watcher", "_shutdown_watcher", "loop._scheduled",
            "_UnixSelectorEventLoop._scheduled", "BaseEventLoop._scheduled",
        ),
        also=("viewer", "sse_starlette.sse._shutdown_state", "_shutdown_state"),
        piles=("Task", "coroutine", "Context", "Viewer", "dict", "str", "_ShutdownState", "Future",
               "TimerHandle"),
        set_number=5,
    ),
    "openai_deadlines": Pair(
        "openai",
        *same("openai=={}", "1.3.7", "1.3.8", *HTTPX),
        # ``lru_cache(maxsize=None)`` on a method.
        names=tuple(
            f"{owner}platform_headers"
            for owner in ("BaseClient.", "openai._base_client.BaseClient.",
                          "_base_client.BaseClient.", "SyncAPIClient.", "OpenAI.",
                          "search.client.", "main.search.client.", "")
        ),
        piles=("OpenAI", "dict", "method", "Embeddings", "Chat", "Completions", "Timeout", "URL",
               "OpenAIWithRawResponse", "function", "cell"),
        set_number=5,
    ),
    "oteldb_tenants": Pair(
        "opentelemetry-instrumentation-sqlalchemy",
        (
            "opentelemetry-instrumentation-sqlalchemy==0.39b0",
            "opentelemetry-instrumentation==0.39b0", "opentelemetry-api==1.18.0",
            "opentelemetry-semantic-conventions==0.39b0", "opentelemetry-sdk==1.18.0",
            "importlib-metadata==6.0.1", *SQLALCHEMY,
        ),
        (
            "opentelemetry-instrumentation-sqlalchemy==0.50b0",
            "opentelemetry-instrumentation==0.50b0", "opentelemetry-api==1.29.0",
            "opentelemetry-semantic-conventions==0.50b0", "opentelemetry-sdk==1.29.0",
            "importlib-metadata==8.5.0", *SQLALCHEMY,
        ),
        names=tuple(
            f"{owner}EngineTracer._remove_event_listener_params"
            for owner in ("", "engine.", "opentelemetry.instrumentation.sqlalchemy.engine.")
        ),
        # What SQLAlchemy keeps of listeners while their engines live.
        also=tuple(
            f"{owner}{name}"
            for owner in ("sqlalchemy.event.registry.", "registry.", "")
            for name in ("_key_to_collection", "_collection_to_key")
        ),
        piles=("Engine", "tuple", "EngineTracer", "method", "dict", "StaticPool",
               "SQLiteDialect_pysqlite", "Connection"),
        set_number=5,
    ),
    "langsmith_scores": Pair(
        "langsmith",
        *same("langsmith=={}", "0.7.9", "0.7.10", *LANGSMITH),
        # ``lru_cache`` of a thousand entries, of which the program makes 960.
        names=(
            "langsmith.run_helpers._cached_attachment_args",
            "run_helpers._cached_attachment_args", "_cached_attachment_args",
        ),
        piles=("function", "cell", "Tensor", "Signature", "tuple"),
        set_number=5,
    ),
    "holoviews_panels": Pair(
        "holoviews",
        *same("holoviews=={}", "1.22.1", "1.23.1", *HOLOVIZ),
        names=(
            "Stream._subscribers", "holoviews.streams.Stream._subscribers",
            *(
                f"{owner}._subscribers"
                for owner in ("Progress", "progress", "main.progress", "page.progress",
                              "main.page.progress", "Page.progress")
            ),
        ),
        piles=("Panel", "method", "ndarray", "tuple", "dict"),
        kept=(("step", 42667),),
        set_number=5,
    ),
    "scipy_periodograms": Pair(
        "scipy",
        *same("scipy=={}", "1.16.1", "1.16.2"),
        # ``cache`` on a method; another beside it holds the last 256 of the same.
        names=tuple(
            f"{owner}_pre_padding"
            for owner in ("ShortTimeFFT.", "scipy.signal._short_time_fft.ShortTimeFFT.",
                          "_short_time_fft.ShortTimeFFT.", "")
        ),
        also=tuple(
            f"{owner}_post_padding"
            for owner in ("ShortTimeFFT.", "scipy.signal._short_time_fft.ShortTimeFFT.",
                          "_short_time_fft.ShortTimeFFT.", "")
        ),
        piles=("ShortTimeFFT", "ndarray"),
        set_number=5,
    ),
    "openai_schemas": Pair(
        "openai",
        *same("openai=={}", "2.20.0", "2.21.0", *OPENAI),
        # ``lru_cache(maxsize=None)(TypeAdapter)``.
        names=tuple(f"{owner}_CachedTypeAdapter" for owner in ("openai._models.", "_models.", "")),
        also=("pydantic._internal._generics._GENERIC_TYPES_CACHE", "_GENERIC_TYPES_CACHE"),
        piles=("ModelMetaclass", "SchemaValidator", "SchemaSerializer", "TypeAdapter", "FieldInfo"),
        set_number=6,
    ),
    "igraph_contacts": Pair(
        "igraph",
        *same("igraph=={}", "0.10.5", "0.10.6", "texttable==1.7.2"),
        names=NATIVE,
        also=UNNAMED,
        piles=("Graph",),
        is_native=True,
        set_number=6,
    ),
    "tokenizers_sequences": Pair(
        "tokenizers",
        *same("tokenizers=={}", "0.20.1", "0.21.0"),
        # A cache of 10,000 words in Rust, of which the program has half, however long they are.
        names=NATIVE,
        also=UNNAMED,
        piles=("Encoding",),
        is_native=True,
        set_number=6,
    ),
    "langsmith_timers": Pair(
        "langsmith",
        *same("langsmith=={}", "0.7.29", "0.7.30", *LANGSMITH),
        names=tuple(
            f"{owner}{name}"
            for owner in ("asyncio.base_events.BaseEventLoop.run_until_complete.self.",
                          "asyncio.base_events.BaseEventLoop.run_forever.self.", "loop.", "")
            for name in ("_scheduled", "_scheduled[*]", "_scheduled[*]._context")
        ),
        also=("_PARENT_RUN_TREE", "langsmith._internal._context._PARENT_RUN_TREE"),
        piles=("RunTree", "TimerHandle", "Context", "hamt_bitmap_node", "str", "list"),
        set_number=6,
    ),
    "bytetrack_gate": Pair(
        "supervision",
        *same("supervision=={}", "0.20.0", "0.21.0", "opencv-python-headless==4.12.0.88",
              "defusedxml==0.7.1"),
        # Each track that ByteTrack gives up goes onto a list; each has a mean and a covariance.
        names=tuple(
            f"{owner}removed_tracks"
            for owner in ("ByteTrack.", "tracker.", "Gate.tracker.", "gate.tracker.",
                          "main.gate.tracker.", "self.tracker.",
                          "supervision.tracker.byte_tracker.core.ByteTrack.")
        ),
        piles=("STrack", "ndarray", "dict"),
        set_number=7,
    ),
    "msgpack_sensors": Pair(
        "msgpack",
        *same("msgpack=={}", "1.2.2", "1.2.3"),
        # The value of the refused key: a list of 40 floats, 1,336 bytes, in 2 of 5 messages.
        names=NATIVE,
        also=UNNAMED,
        piles=("list", "float"),
        is_native=True,
        set_number=7,
    ),
    "awkward_showers": Pair(
        "awkward",
        *same("awkward=={}", "1.10.2", "1.10.3", "numpy==1.26.4"),
        # Strings by PyUnicode_DecodeUTF8, of which one reference is lost.
        names=NATIVE,
        also=UNNAMED,
        piles=("str",),
        is_native=True,
        set_number=7,
    ),
    "asynclru_tokens": Pair(
        "async-lru",
        *same("async-lru=={}", "2.0.4", "2.0.5"),
        # ``alru_cache(maxsize=None)``: an OrderedDict of the wrapper, ``__cache``.
        names=tuple(
            f"{owner}{part}"
            for owner in ("Gatekeeper.holder", "holder", "keeper.holder", "main.keeper.holder",
                          "_LRUCacheWrapper", "async_lru._LRUCacheWrapper")
            for part in ("", ".__cache", "._LRUCacheWrapper__cache", ".cache", "._cache")
        ),
        piles=("_CacheItem", "Future", "Task", "RejectedError", "traceback", "frame", "_CacheKey",
               "_HashedSeq", "str", "dict", "list", "tuple"),
        set_number=7,
    ),
    "whenever_clock": Pair(
        "whenever",
        *same("whenever=={}", "0.6.5", "0.6.6", "time-machine==2.16.0"),
        # An int of 32 bytes for each call of ``Instant.now``.
        names=NATIVE,
        also=UNNAMED,
        piles=("int",),
        is_native=True,
        set_number=7,
    ),
    "waterworld_training": Pair(
        "pettingzoo",
        *same("pettingzoo=={}", "1.24.3", "1.25.0", *WORLD),
        # 136 handlers and the space of each episode.
        names=tuple(
            f"{owner}handlers"
            for owner in ("WaterworldBase.", "env.", "raw_env.env.", "raw_env.", "world.env.",
                          "main.world.env.", "aec_env.env.", "world.aec_env.env.",
                          # The same list by its path; added after the run, which spelt it so.
                          "main.world.aec_env.env.env.env.",
                          "pettingzoo.sisl.waterworld.waterworld_base.WaterworldBase.")
        ),
        also=tuple(
            f"{owner}{name}"
            for owner in ("Space.", "space.", "WaterworldBase.space.")
            for name in ("_handlers", "_shapes", "_bodies")
        ),
        piles=("CollisionHandler", "CollisionHandlerData", "function", "Space", "dict", "Circle",
               "Body", "Pursuers", "Evaders", "Poisons", "CData"),
        set_number=7,
    ),
    "croniter_planner": Pair(
        "croniter",
        *same("croniter=={}", "6.0.0", "6.1.0", "pytz==2026.6"),
        names=("croniter.croniter.TIMESTAMP_TO_DT_CACHE", "croniter.TIMESTAMP_TO_DT_CACHE",
               "TIMESTAMP_TO_DT_CACHE"),
        piles=("datetime", "tuple", "float", "str"),
        set_number=7,
    ),
    "croniter_schedules": Pair(
        "croniter",
        *same("croniter=={}", "6.1.0", "6.2.0", "pytz==2026.6"),
        names=("croniter.croniter.EXPRESSIONS", "croniter.EXPRESSIONS", "EXPRESSIONS"),
        piles=("str", "list", "tuple"),
        set_number=7,
    ),
    "bdpy_layers": Pair(
        "bdpy",
        *same("bdpy=={}", "0.22.1", "0.23"),
        # Each layer keeps the handle of each extractor as a hook, and each handle goes on to
        # collect: the growth is quadratic.
        names=(
            "FeatureExtractorHandleDetach.outputs", "FeatureExtractor._extractor.outputs",
            "bdpy.dl.torch.torch.FeatureExtractorHandleDetach.outputs",
            "Conv2d._forward_hooks", "Module._forward_hooks",
            "forward_hooks",
            *(
                f"{owner}.features[{index}]._forward_hooks{part}"
                for owner in ("encoder", "main.encoder", "reconstruct.encoder", "Encoder",
                              "distance.extractor._encoder", "extractor._encoder")
                for index in ("0", "2", "*")
                for part in ("", "[*]", "[*].outputs")
            ),
        ),
        also=("Encoder", "encoder", "main.encoder"),
        piles=("Tensor", "FeatureExtractorHandleDetach", "list"),
        set_number=7,
    ),
    "torchlens_audit": Pair(
        "torchlens",
        *same("torchlens=={}", "2.28.0", "2.29.1", "graphviz==0.21"),
        # A WeakKeyDictionary whose values hold their own key, the trace, and by it tensors.
        names=tuple(
            f"{owner}_TRACE_MODULE_CALL_ACCESSOR_CACHE{part}"
            for owner in ("torchlens.data_classes.trace.", "trace.", "")
            for part in ("", ".data")
        ),
        piles=("Trace", "Op", "Layer", "ModuleCall", "Module", "Tensor", "dict", "list",
               "TraceModuleCallAccessor"),
        set_number=8,
    ),
    "xgboost_orders": Pair(
        "xgboost",
        *same("xgboost-cpu=={}", "3.1.3", "3.2.0", "pandas==2.3.3", "pytz==2026.6"),
        # Two tuples for each frame, of 159,660 bytes.
        names=(
            "TransformedDf.temporary_buffers",
            "xgboost._data_utils.TransformedDf.temporary_buffers",
            "PandasTransformed.temporary_buffers",
            "xgboost.data.PandasTransformed.temporary_buffers",
        ),
        piles=("tuple", "ndarray", "str", "bytes"),
        set_number=8,
    ),
    "lightgbm_files": Pair(
        "lightgbm",
        *same("lightgbm=={}", "4.3.0", "4.4.0"),
        # Buffers of pyarrow's pool: 4,000 x 16 doubles for each file.
        names=NATIVE,
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=8,
    ),
    "mujoco_planner": Pair(
        "mujoco",
        *same("mujoco=={}", "3.1.6", "3.2.0", *MUJOCO),
        # Buffer and arena of each copy. That the arrays of the copy, some 400 blocks of Python's
        # own, are lost with them was seen after the run: then came the name leaked_references.
        names=(*BLOCKS, "leaked_references"),
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=8,
    ),
    "usearch_tenants": Pair(
        "usearch",
        *same("usearch=={}", "0.22.2", "0.22.3"),
        # Mapped arenas of indexes that are gone, some 350 KB for each tenant.
        names=BLOCKS,
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=8,
    ),
    "poke_rewards": Pair(
        "poke-env",
        *same("poke-env=={}", "0.8.1", "0.8.3", *POKE),
        names=tuple(
            f"{owner}._reward_buffer"
            for owner in ("EnvPlayer", "Replays", "env", "main.env", "OpenAIGymEnv")
        ),
        piles=("Battle", "Pokemon", "Observation", "Move", "dict", "list", "set", "str"),
        # 120 KB for each battle, after which there are six steps.
        kept=(("step", 20000),),
        set_number=8,
    ),
    "rtree_zones": Pair(
        "rtree",
        *same("rtree=={}", "1.0.1", "1.1.0"),
        # The numbers that a search found: 8 bytes each, some 820 for each vehicle.
        names=BLOCKS,
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=8,
    ),
    "scip_loads": Pair(
        "pyscipopt",
        *same("pyscipopt=={}", "6.1.0", "6.2.0"),
        # A reference to each model, which holds its variables and some 3.9 MB of SCIP's.
        names=NATIVE,
        also=UNNAMED,
        piles=("Model", "Variable", "Constraint", "Progress", "dict", "list"),
        is_native=True,
        set_number=8,
    ),
    "astropy_nights": Pair(
        "astropy",
        *same("astropy=={}", "7.0.0", "7.0.1", *ASTROPY),
        # A circle through ``ndarray.base``, which the collector can't see through.
        names=(*NATIVE, "garbage"),
        also=UNNAMED,
        piles=("FITS_rec", "WeakSet", "Column", "ColDefs", "WeakValueDictionary", "chararray",
               "_ColumnFormat", "set", "dict", "list"),
        is_native=True,
        set_number=8,
    ),
    "nicegui_charts": Pair(
        "nicegui",
        *same("nicegui=={}", "3.14.0", "3.15.0", *NICEGUI),
        # 250 methods of one list for each update, 20.6 KB.
        names=(
            "ObservableDict._change_handlers", "ObservableCollection._change_handlers",
            *(
                f"{owner}.options[{quote}{key}{quote}][*]._change_handlers"
                for owner in ("dashboard", "main.dashboard", "Dashboard")
                for key in ("pool", "series")
                for quote in ("'", '"')
            ),
        ),
        piles=("method", "ObservableList", "list", "dict"),
        set_number=8,
    ),
    "osqp_tracking": Pair(
        "osqp",
        *same("osqp=={}", "1.0.5", "1.1.0"),
        # The answer of each step, 128 bytes.
        names=(*BLOCKS, "allocator"),
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=8,
    ),
    "av_stamps": Pair(
        "av",
        *same("av=={}", "17.0.1", "17.1.0"),
        # A key of some 17 bytes for each frame.
        names=(*BLOCKS, "allocator"),
        also=UNNAMED,
        piles=(),
        is_native=True,
        set_number=8,
    ),
}  # fmt: skip
"""The programs, by the names of their files."""
