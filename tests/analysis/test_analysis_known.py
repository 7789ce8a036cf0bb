"""Known culprits: the shipped catalogue is sound, and an entry speaks only where all of it fits."""

from __future__ import annotations

import platform
import runpy
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

import msgspec
import pytest
from synthetic_runs import KIB, Program

from leakscope.analysis import analyse
from leakscope.analysis.remedies import catalogue as catalogue_module
from leakscope.analysis.remedies.catalogue import (
    Catalogue,
    Sighting,
    Symptom,
    find_known,
    find_known_of_finding,
    prefer_known_remedy,
    shipped,
    with_own,
)
from leakscope.model import gauge
from leakscope.model.census import CensusRow, Content, Owner, RootKind
from leakscope.model.known import EntryError, KnownCulprit, Nature, Own, Recognised, to_entry
from leakscope.model.record import HeaderRecord
from leakscope.model.report import Remedy, Report
from leakscope.probes.environment import environment
from leakscope.report.gates.sarif import known_rules

PAGE = Path(__file__).parents[2] / "docs" / "known-culprits.md"
MAKES_PAGE = PAGE.with_name("catalogue_page.py")


@dataclass(frozen=True)
class Seen:
    """What a run showed of a known culprit."""

    holder: str
    way: str
    ran: dict[str, str]
    type: str = "list"
    growth: str = "across"
    device: str = "host"
    holds: str = "torch.Tensor"
    outside: dict[str, str] = field(default_factory=dict)
    """Versions of the library that the entry doesn't speak of."""

    def find(self, *, ran: dict[str, str] | None = None) -> str | None:
        found = find_known(self.sighting(), shipped(), self.ran if ran is None else ran)
        return found.known.id if found else None

    def sighting(self) -> Sighting:
        path = "main()·thing"
        held = _row(path + self.way, self.type, holds=self.holds)
        above = [_row(path, self.holder)] if self.holder else []
        return Sighting(held, above, self.growth, self.device)


def _row(path: str, kind: str, *, holds: str = "", owner: Owner | None = None) -> CensusRow:
    owner = owner or Owner(kind="function", name="main", variable="thing", module="__main__")
    contents = [Content(type=holds, count=1, bytes=1)] if holds else []
    name = path.replace("()·", ".").replace("·", ".")
    return CensusRow(
        path=path,
        name=name,
        root=RootKind.LOCAL,
        owner=owner,
        type=kind,
        kind="other",
        host_bytes=1 << 20,
        holds=contents,
    )


TRANSFORMERS, TORCHMETRICS = {"transformers": "5.23.0"}, {"torchmetrics": "1.9.0"}
OLDER = {"transformers": "4.40.2"}
SEEN = {
    "transformers-evaluation-joined": Seen(
        "transformers.trainer_pt_utils.EvalLoopContainer", ".tensors", OLDER,
        type="torch.Tensor", growth="within", outside={"transformers": "4.19.4"},
    ),
    "transformers-evaluation-joined-on-device": Seen(
        "transformers.trainer_pt_utils.EvalLoopContainer", ".tensors", OLDER,
        type="torch.Tensor", growth="within", device="cuda:0",
        outside={"transformers": "4.19.4"},
    ),
    "transformers-evaluation-gathered": Seen(
        "transformers.trainer_pt_utils.EvalLoopContainer", ".tensors", TRANSFORMERS,
        type="torch.Tensor", growth="within", outside={"transformers": "4.19.4"},
    ),
    "transformers-evaluation-gathered-on-device": Seen(
        "transformers.trainer_pt_utils.EvalLoopContainer", ".tensors", TRANSFORMERS,
        type="torch.Tensor", growth="within", device="cuda:0",
        outside={"transformers": "4.19.4"},
    ),
    "transformers-log-history": Seen(
        "transformers.trainer_callback.TrainerState", ".log_history", TRANSFORMERS,
        outside={"transformers": "4.39.0"},
    ),
    "transformers-tokenizer-cache": Seen(
        "transformers.models.ctrl.tokenization_ctrl.CTRLTokenizer", ".cache", TRANSFORMERS,
        type="dict", outside={"transformers": "4.39.0"},
    ),
    "transformers-key-value-cache": Seen(
        "transformers.cache_utils.DynamicLayer", ".keys", TRANSFORMERS, type="torch.Tensor",
        outside={"transformers": "4.39.0"},
    ),
    "lightning-predictions": Seen(
        "lightning.pytorch.loops.prediction_loop._PredictionLoop", "._predictions[*]",
        {"lightning": "2.6.6"}, growth="within", outside={"lightning": "1.9.5"},
    ),
    "lightning-epoch-end-outputs": Seen(
        "pytorch_lightning.loops.epoch.evaluation_epoch_loop.EvaluationEpochLoop", "._outputs",
        {"pytorch-lightning": "1.9.5"}, growth="within", outside={"pytorch-lightning": "2.0.0"},
    ),
    "lightning-csv-logger": Seen(
        "pytorch_lightning.loggers.csv_logs.ExperimentWriter", ".metrics",
        {"pytorch-lightning": "2.0.9"}, outside={"pytorch-lightning": "2.1.0"},
    ),
    "torchmetrics-never-reset": Seen(
        "torchmetrics.classification.average_precision.MulticlassAveragePrecision", ".preds",
        TORCHMETRICS, outside={"torchmetrics": "0.11.4"},
    ),
    "torchmetrics-gathers-a-round": Seen(
        "torchmetrics.classification.auroc.BinaryAUROC", ".target", TORCHMETRICS, growth="within",
        outside={"torchmetrics": "0.11.4"},
    ),
    "torchmetrics-tracker": Seen(
        "", "", TORCHMETRICS, type="torchmetrics.wrappers.tracker.MetricTracker",
        outside={"torchmetrics": "0.11.4"},
    ),
    "accelerate-prepared": Seen(
        "accelerate.accelerator.Accelerator", "._models", {"accelerate": "1.15.0"},
        outside={"accelerate": "0.34.0"},
    ),
    "accelerate-dataloader-references": Seen(
        "accelerate.state.GradientState", ".dataloader_references", {"accelerate": "1.3.0"},
        outside={"accelerate": "1.4.0"},
    ),
    "peft-adapters": Seen(
        "peft.tuners.lora.layer.Linear", ".lora_B", {"peft": "0.21.2"},
        type="torch.nn.modules.container.ModuleDict", outside={"peft": "0.4.0"},
    ),
    "wandb-table": Seen(
        "wandb.sdk.data_types.table.Table", ".data", {"wandb": "0.31.0"},
        outside={"wandb": "0.19.11"},
    ),
    "ignite-epoch-metric": Seen(
        "ignite.metrics.epoch_metric.EpochMetric", "._predictions", {"pytorch-ignite": "0.5.5"},
        growth="within", outside={"pytorch-ignite": "0.4.4"},
    ),
    "ignite-output-store": Seen(
        "ignite.handlers.stores.EpochOutputStore", ".data", {"pytorch-ignite": "0.5.5"},
        growth="within", outside={"pytorch-ignite": "0.4.4"},
    ),
}  # fmt: skip
OTHERS = {
    "python-mock-calls": Seen(
        "unittest.mock.Mock",
        "._mock_call_args_list",
        {"python": "3.11.7"},
        type="unittest.mock._CallList",
        outside={"python": "3.9.18"},
    ),
    "python-tar-members": Seen(
        "tarfile.TarFile",
        ".members",
        {"python": "3.11.7"},
        outside={"python": "3.9.18"},
    ),
    "python-memory-handler": Seen(
        "logging.handlers.MemoryHandler",
        ".buffer",
        {"python": "3.11.7"},
        outside={"python": "3.9.18"},
    ),
    "python-tasks-kept": Seen(
        "",
        "",
        {"python": "3.11.7"},
        type="set",
        holds="_asyncio.Task",
        outside={"python": "3.9.18"},
    ),
    "python-futures-kept": Seen(
        "",
        "",
        {"python": "3.11.7"},
        holds="concurrent.futures._base.Future",
        outside={"python": "3.9.18"},
    ),
    "python-matches-kept": Seen(
        "",
        "",
        {"python": "3.11.7"},
        holds="re.Match",
        outside={"python": "3.9.18"},
    ),
    "python-async-queue": Seen(
        "asyncio.queues.Queue",
        "._queue",
        {"python": "3.11.7"},
        type="collections.deque",
        outside={"python": "3.9.18"},
    ),
    "python-timers": Seen(
        "asyncio.unix_events._UnixSelectorEventLoop",
        "._scheduled",
        {"python": "3.11.7"},
        outside={"python": "3.9.18"},
    ),
    "python-xml-elements": Seen(
        "",
        "",
        {"python": "3.11.7"},
        type="xml.etree.ElementTree.Element",
        outside={"python": "3.9.18"},
    ),
    "jinja2-unbounded-cache": Seen(
        "jinja2.environment.Environment",
        ".cache",
        {"jinja2": "3.1.6"},
        type="dict",
        outside={"jinja2": "2.11.3"},
    ),
    "rich-recording": Seen(
        "rich.console.Console",
        "._record_buffer",
        {"rich": "15.0.0"},
        outside={"rich": "9.13.0"},
    ),
    "rich-progress-tasks": Seen(
        "rich.progress.Progress",
        "._tasks",
        {"rich": "15.0.0"},
        type="dict",
        outside={"rich": "9.13.0"},
    ),
    "loguru-handlers": Seen(
        "loguru._logger.Core",
        ".handlers",
        {"loguru": "0.7.3"},
        type="dict",
        outside={"loguru": "0.5.3"},
    ),
    "prometheus-labels": Seen(
        "prometheus_client.metrics.Histogram",
        "._metrics",
        {"prometheus-client": "0.26.0"},
        type="dict",
        outside={"prometheus-client": "0.9.0"},
    ),
    "prometheus-registry": Seen(
        "prometheus_client.registry.CollectorRegistry",
        "._collector_to_names",
        {"prometheus-client": "0.26.0"},
        type="dict",
        outside={"prometheus-client": "0.9.0"},
    ),
    "opentelemetry-attributes": Seen(
        "opentelemetry.sdk.metrics._internal._view_instrument_match._ViewInstrumentMatch",
        "._attributes_aggregation",
        {"opentelemetry-sdk": "1.45.2"},
        type="dict",
        outside={"opentelemetry-sdk": "1.11.0"},
    ),
    "opentelemetry-spans-in-memory": Seen(
        "opentelemetry.sdk.trace.export.in_memory_span_exporter.InMemorySpanExporter",
        "._finished_spans",
        {"opentelemetry-sdk": "1.45.2"},
        type="collections.deque",
        outside={"opentelemetry-sdk": "0.17"},
    ),
    "optuna-trials-in-memory": Seen(
        "optuna.storages._in_memory._StudyInfo",
        ".trials",
        {"optuna": "5.0.0"},
        outside={"optuna": "1.5.0"},
    ),
    "gymnasium-render-collection": Seen(
        "gymnasium.wrappers.rendering.RenderCollection",
        ".frame_list",
        {"gymnasium": "1.4.0"},
        outside={"gymnasium": "0.25.2"},
    ),
    "zarr-memory-store": Seen(
        "zarr.storage._memory.MemoryStore",
        "._store_dict",
        {"zarr": "3.1.6"},
        type="dict",
        outside={"zarr": "2.18.7"},
    ),
    "fsspec-memory-files": Seen(
        "fsspec.spec._Cached",
        ".store",
        {"fsspec": "2026.9.0"},
        type="dict",
        outside={"fsspec": "0.9.0"},
    ),
    "fsspec-instances": Seen(
        "fsspec.spec._Cached",
        "._cache",
        {"fsspec": "2026.9.0"},
        type="dict",
        outside={"fsspec": "0.9.0"},
    ),
    "openpyxl-cells": Seen(
        "openpyxl.worksheet.worksheet.Worksheet",
        "._cells",
        {"openpyxl": "3.1.5"},
        type="dict",
        outside={"openpyxl": "2.5.14"},
    ),
    "xlsxwriter-cells": Seen(
        "xlsxwriter.worksheet.Worksheet",
        ".table",
        {"xlsxwriter": "3.3.1"},
        type="collections.defaultdict",
        outside={"xlsxwriter": "0.9.9"},
    ),
    "responses-calls": Seen(
        "responses.CallList",
        "._calls",
        {"responses": "0.26.3"},
        outside={"responses": "0.12.1"},
    ),
    "requests-mock-history": Seen(
        "requests_mock.adapter.Adapter",
        ".request_history",
        {"requests-mock": "1.12.1"},
        outside={"requests-mock": "1.7.0"},
    ),
    "faker-unique": Seen(
        "faker.proxy.UniqueProxy",
        "._seen[*]",
        {"faker": "40.63.0"},
        type="set",
        outside={"faker": "4.18.0"},
    ),
    "bokeh-stream": Seen(
        "bokeh.core.property.wrappers.PropertyValueColumnData",
        "['x']",
        {"bokeh": "3.9.2"},
        outside={"bokeh": "1.4.0"},
    ),
    "matplotlib-axes-artists": Seen(
        "matplotlib.axes._axes.Axes",
        "._children",
        {"matplotlib": "3.11.2"},
        outside={"matplotlib": "3.4.3"},
    ),
    "matplotlib-animation-repeats": Seen(
        "matplotlib.animation.FuncAnimation",
        "._tee_from",
        {"matplotlib": "3.11.2"},
        type="itertools._tee",
        outside={"matplotlib": "3.1.3"},
    ),
    "python-loggers-by-name": Seen(
        "logging.Manager",
        ".loggerDict",
        {"python": "3.11.7"},
        type="dict",
        outside={"python": "3.9.18"},
    ),
    "python-finalizers": Seen(
        "weakref.finalize",
        "._registry",
        {"python": "3.11.7"},
        type="dict",
        outside={"python": "3.9.18"},
    ),
    "python-shelf-written-back": Seen(
        "shelve.DbfilenameShelf",
        ".cache",
        {"python": "3.11.7"},
        type="dict",
        outside={"python": "3.9.18"},
    ),
    "python-executor-tasks": Seen(
        "concurrent.futures.process.ProcessPoolExecutor",
        "._pending_work_items",
        {"python": "3.11.7"},
        type="dict",
        outside={"python": "3.9.18"},
    ),
    "python-thread-pool-tasks": Seen(
        "multiprocessing.pool.ThreadPool",
        "._inqueue",
        {"python": "3.11.7"},
        type="_queue.SimpleQueue",
        outside={"python": "3.9.18"},
    ),
    "python-pointer-types": Seen(
        "_ctypes",
        "._pointer_type_cache",
        {"python": "3.11.7"},
        type="dict",
        outside={"python": "3.14.0"},
    ),
    "torch-fork-buffer": Seen(
        "torch.utils.data.datapipes.iter.combining._ForkerIterDataPipe",
        ".buffer",
        {"torch": "2.13.0"},
        type="collections.deque",
        outside={"torch": "1.10.2"},
    ),
    "torch-recording-observer": Seen(
        "torch.ao.quantization.observer.RecordingObserver",
        ".tensor_val",
        {"torch": "2.13.0"},
        outside={"torch": "1.9.1"},
    ),
    "tensorboard-accumulator": Seen(
        "tensorboard.backend.event_processing.reservoir._ReservoirBucket",
        ".items",
        {"tensorboard": "2.21.0"},
        outside={"tensorboard": "1.15.0"},
    ),
    "tensorboardx-scalars": Seen(
        "tensorboardX.writer.SummaryWriter",
        ".scalar_dict",
        {"tensorboardx": "2.6.5"},
        type="dict",
        outside={"tensorboardx": "0.9"},
    ),
    "hyperopt-trials": Seen(
        "hyperopt.base.Trials",
        "._dynamic_trials",
        {"hyperopt": "0.3.0"},
        outside={"hyperopt": "0.1.2"},
    ),
    "numba-specialisations": Seen(
        "numba.core.registry.CPUDispatcher",
        ".overloads",
        {"numba": "0.68.1"},
        type="collections.OrderedDict",
        outside={"numba": "0.49.1"},
    ),
    "ipywidgets-open-widgets": Seen(
        "ipywidgets.widgets.widget",
        "._instances",
        {"ipywidgets": "8.1.9"},
        type="dict",
        outside={"ipywidgets": "7.8.5"},
    ),
    "sqlalchemy-pending": Seen(
        "sqlalchemy.orm.session.Session",
        "._new",
        {"sqlalchemy": "2.1.9"},
        type="dict",
        outside={"sqlalchemy": "1.3.24"},
    ),
    "sqlalchemy-tables": Seen(
        "sqlalchemy.sql.schema.MetaData",
        ".tables",
        {"sqlalchemy": "2.1.9"},
        type="sqlalchemy.util._collections.FacadeDict",
        outside={"sqlalchemy": "1.3.24"},
    ),
    "redis-pipeline": Seen(
        "redis.client.Pipeline",
        ".command_stack",
        {"redis": "8.1.0"},
        outside={"redis": "2.10.6"},
    ),
    "kombu-memory-transport": Seen(
        "kombu.transport.memory",
        ".Channel",
        {"kombu": "5.7.0"},
        type="type",
        outside={"kombu": "4.6.11"},
    ),
    "aiohttp-cookies": Seen(
        "aiohttp.cookiejar.CookieJar",
        "._cookies",
        {"aiohttp": "3.14.5"},
        type="collections.defaultdict",
        outside={"aiohttp": "2.3.10"},
    ),
    "marshmallow-registry": Seen(
        "marshmallow.class_registry",
        "._registry",
        {"marshmallow": "4.4.0"},
        type="dict",
        outside={"marshmallow": "2.21.0"},
    ),
    "langchain-chat-history": Seen(
        "langchain_core.chat_history.InMemoryChatMessageHistory",
        ".messages",
        {"langchain-core": "1.0.0"},
        outside={"langchain-core": "0.0.13"},
    ),
    "langchain-cache": Seen(
        "langchain_core.caches.InMemoryCache",
        "._cache",
        {"langchain-core": "1.0.0"},
        type="dict",
        outside={"langchain-core": "0.1.53"},
    ),
    "langchain-vector-store": Seen(
        "langchain_core.vectorstores.in_memory.InMemoryVectorStore",
        ".store",
        {"langchain-core": "1.0.0"},
        type="dict",
        outside={"langchain-core": "0.1.53"},
    ),
    "langgraph-saver": Seen(
        "langgraph.checkpoint.memory.InMemorySaver",
        ".blobs",
        {"langgraph-checkpoint": "4.3.2"},
        type="collections.defaultdict",
        outside={"langgraph-checkpoint": "1.0.12"},
    ),
    "beautifulsoup-strings": Seen(
        "",
        "",
        {"beautifulsoup4": "4.15.0"},
        holds="bs4.element.NavigableString",
        outside={"beautifulsoup4": "3.2.2"},
    ),
    "lxml-smart-strings": Seen(
        "",
        "",
        {"lxml": "6.1.3"},
        holds="lxml.etree._ElementUnicodeResult",
        outside={"lxml": "1.3.6"},
    ),
    "markdown-references": Seen(
        "markdown.core.Markdown",
        ".references",
        {"markdown": "3.11.3"},
        type="dict",
        outside={"markdown": "2.6.11"},
    ),
}
"""Of Python itself, and of libraries that train nothing."""
SEEN |= OTHERS
FOLLOWED = {
    "transformers-evaluation-joined": "transformers-evaluation-gathered",
    "transformers-evaluation-joined-on-device": "transformers-evaluation-gathered-on-device",
}
"""What later versions do with the same containers is another entry's."""
MENDED = (
    "lightning-epoch-end-outputs",
    "lightning-csv-logger",
    "accelerate-dataloader-references",
)
"""What the installed versions do no more."""
FIGURES = "matplotlib-open-figures"
GLIBC = {"glibc": "2.36", "allocator": "glibc"}
PYTHON_3_14 = {"python": "3.14.2"}


@dataclass(frozen=True)
class Ground:
    """What a run showed of the interpreter, the C library or the kernel."""

    kind: str
    ran: dict[str, str]
    near: tuple[dict[str, str], ...]
    """Versions and settings of runs of which the entry doesn't speak."""
    gauges: dict[str, float] = field(default_factory=dict)
    native: dict[str, float] = field(default_factory=dict)
    """What native memory grew by, by function."""

    def find(self, ran: dict[str, str], gauges: dict[str, float] | None = None) -> str | None:
        read = self.gauges if gauges is None else gauges
        gains = self.gauges if gauges is None else {}
        part = dict.fromkeys(gains, 0.6)
        symptom = Symptom(
            self.kind,
            lambda name: read.get(name, 0.0),
            lambda name: part.get(name, 0.0),
            lambda: self.native,
        )
        found = find_known_of_finding(symptom, shipped(), ran)
        return found.known.id if found else None


GROUND = {
    "python-late-collector": Ground(
        "garbage", PYTHON_3_14, ({"python": "3.14.5"}, {"python": "3.13.9"}, {}),
    ),
    "python-free-threaded-late-collector": Ground(
        "garbage", {**PYTHON_3_14, "free_threaded": "true"},
        ({"python": "3.14.5", "free_threaded": "true"}, PYTHON_3_14),
    ),
    "python-collector-off": Ground("collector_off", {"python": "3.11.7"}, ({},)),
    "python-collector-frozen": Ground("collector_frozen", {"python": "3.11.7"}, ({},)),
    "kernel-huge-pages": Ground(
        "allocator_slack", {**GLIBC, "huge_pages": "always", "MALLOC_ARENA_MAX": "2"},
        ({**GLIBC, "huge_pages": "madvise"}, {**GLIBC, "allocator": "jemalloc"}),
        {"huge_pages": 128.0 * KIB * KIB},
    ),
    "glibc-arenas": Ground(
        "allocator_slack", GLIBC,
        ({**GLIBC, "MALLOC_ARENA_MAX": "2"}, {"glibc": "2.36", "allocator": "jemalloc"}),
        {"mapped_arenas": 64.0 * KIB * KIB},
    ),
    "glibc-thresholds": Ground(
        "allocator_slack", GLIBC,
        (
            {**GLIBC, "MALLOC_TRIM_THRESHOLD_": "131072"},
            {**GLIBC, "GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"},
        ),
        {"mapped_heap": 128.0 * KIB * KIB},
    ),
    "mimalloc-retention": Ground(
        "unexplained", {"mimalloc": "2.1"},
        ({"mimalloc": "2.1", "MIMALLOC_PURGE_DELAY": "0"}, {"mimalloc": "1.8"}, {}),
        {"mapped_mimalloc": 128.0 * KIB * KIB},
    ),
    "torch-compiled-kept": Ground(
        "device_leak", {"torch": "2.2.0"}, ({"torch": "2.3.1"}, {}), {"compiled_entries": 3.0}
    ),
    "torch-compile-nested-disable": Ground(
        "unexplained", {"torch": "2.6.0"}, ({"torch": "2.7.0"}, {"torch": "2.5.1"}),
        {"compiled_entries": 1.0},
    ),
    "torch-profiler-events": Ground(
        "unexplained", {"torch": "2.13.0"}, ({"torch": "1.8.1"}, {}),
        native={"torch::profiler::impl::ThreadLocalSubqueue::begin_op": 6e7, "deflateInit2_": 1e7},
    ),
}  # fmt: skip
"""Entries that speak of findings."""
EACH = pytest.mark.parametrize("name", SEEN)


def figures(version: str) -> str | None:
    """Return what is reported on pyplot's register, which a class holds."""
    module = "matplotlib._pylab_helpers"
    owner = Owner(kind="module", name=module, module=module)
    held = _row(f"{module}·Gcf.figs", "collections.OrderedDict", owner=owner)
    above = [_row(f"{module}·Gcf", "type", owner=owner)]
    sighting = Sighting(held, above, "across", "host")
    found = find_known(sighting, shipped(), {"matplotlib": version})
    return found.known.id if found else None


class TestTheShippedCatalogue:
    def test_it_has_a_version_and_every_entry_its_own_id(self) -> None:
        catalogue = shipped()
        ids = [entry.known.id for entry in catalogue.entries]
        assert int(catalogue.version) >= 1
        assert catalogue.faults == ()
        assert len(ids) == len(set(ids)) >= 80

    def test_every_entry_names_its_source_what_to_do_and_which_versions(self) -> None:
        for known in (entry.known for entry in shipped().entries):
            assert known.link.startswith("https://"), known.id
            assert len(known.cause) > 40, known.id
            assert len(known.remedy.text) > 40, known.id
            assert known.versions, known.id
            assert not known.title.endswith("."), known.id
            match = known.match
            assert match.growth or match.type or match.path or match.finding, known.id
            assert set(match.finding) <= set(known_rules()), known.id
            assert {*match.gauge, *match.share} <= set(gauge.DESCRIPTIONS), known.id

    def test_the_version_of_every_library_is_recorded(self) -> None:
        facts = environment()
        libraries = {name for entry in shipped().entries for name in entry.known.libraries}
        installed = {name for name in libraries if _is_installed(name)}
        assert "transformers" in libraries
        assert installed <= set(facts)

    def test_every_entry_is_tried_here(self) -> None:
        assert {entry.known.id for entry in shipped().entries} == {*SEEN, *GROUND, FIGURES}

    def test_the_page_is_current(self) -> None:
        page_text = runpy.run_path(str(MAKES_PAGE))["page_text"]
        assert PAGE.read_text(encoding="utf-8") == page_text(shipped()), (
            "python docs/catalogue_page.py > docs/known-culprits.md"
        )

    def test_a_file_that_is_gone_costs_the_entries_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(catalogue_module, "CATALOGUE_FILE", tmp_path / "gone.toml")
        found = shipped.__wrapped__()
        assert found.entries == ()
        assert "reinstall leakscope" in found.faults[0]

    def test_without_a_reader_for_toml_it_is_empty_and_says_so(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: str) -> dict[str, object]:
            raise ImportError

        monkeypatch.setattr(catalogue_module, "read_toml", refuse)
        found = shipped.__wrapped__()
        assert found.entries == ()
        assert "install tomli" in found.faults[0]


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


class TestWhatAnEntrySpeaksOf:
    @EACH
    def test_a_culprit_like_it_is_known(self, name: str) -> None:
        assert SEEN[name].find() == name

    @EACH
    def test_another_version_of_the_library_is_not(self, name: str) -> None:
        assert SEEN[name].find(ran=SEEN[name].outside) is None

    @EACH
    def test_a_version_that_was_not_recorded_or_makes_no_sense_is_not(self, name: str) -> None:
        seen = SEEN[name]
        assert seen.find(ran={}) is None
        assert seen.find(ran=dict.fromkeys(seen.ran, "built by hand")) is None

    @EACH
    def test_a_class_of_the_users_with_the_same_name_is_not(self, name: str) -> None:
        assert _as_of_the_users(SEEN[name]).find() is None

    @pytest.mark.parametrize("name", [name for name in SEEN if SEEN[name].holder])
    def test_another_attribute_of_the_library_is_not(self, name: str) -> None:
        seen = SEEN[name]
        deeper = replace(seen, way=f"{seen.way}[*].mine")
        assert replace(seen, way=".callbacks_of_mine", type="tuple").find() is None
        assert deeper.find() is None

    def test_what_hangs_on_the_library_through_an_object_of_the_users_is_not(self) -> None:
        seen = SEEN["lightning-predictions"]
        sighting = seen.sighting()
        model = _row("main()·thing.model", "__main__.Model")
        held = _row("main()·thing.model._predictions", "list", holds="torch.Tensor")
        through = Sighting(held, [*sighting.above, model], "within", "host")
        assert find_known(through, shipped(), seen.ran) is None

    def test_plain_containers_between_say_nothing_of_the_holder(self) -> None:
        held = _row("main()·thing._predictions[*]", "list", holds="torch.Tensor")
        loop = _row("main()·thing", "lightning.pytorch.loops.prediction_loop._PredictionLoop")
        between = _row("main()·thing._predictions", "list")
        sighting = Sighting(held, [loop, between], "within", "host")
        found = find_known(sighting, shipped(), {"lightning": "2.6.6"})
        assert found is not None
        assert found.known.id == "lightning-predictions"

    @pytest.mark.parametrize(
        ("bytes_of_matches", "expected"), [(9, None), (11, "python-matches-kept")]
    )
    def test_what_a_container_holds_names_it_only_where_that_is_half_of_it(
        self, bytes_of_matches: int, expected: str | None
    ) -> None:
        contents = [
            Content(type="str", count=1, bytes=10),
            Content(type="re.Match", count=9, bytes=bytes_of_matches),
        ]
        held = msgspec.structs.replace(_row("main()·thing", "list"), holds=contents)
        found = find_known(Sighting(held, [], "across", "host"), shipped(), {"python": "3.11.7"})
        assert (found.known.id if found else None) == expected

    def test_growth_across_evaluations_is_not_the_trainers(self) -> None:
        assert replace(SEEN["transformers-evaluation-gathered"], growth="across").find() is None

    def test_pyplots_register_is_known_by_its_class(self) -> None:
        assert figures("3.11.2") == FIGURES
        assert figures("3.6.3") is None

    def test_what_ran_is_the_distribution_that_the_holder_came_from(self) -> None:
        seen = SEEN["lightning-csv-logger"]
        both = {"lightning": "2.6.6", "pytorch-lightning": "2.0.9"}
        found = find_known(seen.sighting(), shipped(), both)
        assert found is not None
        assert (found.recognised.library, found.recognised.version) == (
            "pytorch-lightning",
            "2.0.9",
        )
        assert seen.find(ran={"lightning": "2.0.9", "pytorch-lightning": "2.6.6"}) is None

    @EACH
    def test_an_installed_version_is_judged_by_the_range(self, name: str) -> None:
        seen = SEEN[name]
        library = next(iter(seen.ran))
        if library != "python" and not _is_installed(library):
            pytest.skip(f"{library} is not installed")
        here = platform.python_version() if library == "python" else metadata.version(library)
        expected = FOLLOWED.get(name, None if name in MENDED else name)
        assert seen.find(ran={library: here}) == expected


def _as_of_the_users(seen: Seen) -> Seen:
    """Return the same of a class of the user's own, by what names the library's."""
    if seen.holder:
        return replace(seen, holder=f"__main__.{seen.holder.rpartition('.')[2]}")
    if "." in seen.type:
        return replace(seen, type=f"__main__.{seen.type.rpartition('.')[2]}")
    return replace(seen, holds=f"__main__.{seen.holds.rpartition('.')[2]}")


class TestWhatAnEntrySaysOfTheGround:
    @pytest.mark.parametrize("name", GROUND)
    def test_a_finding_of_such_a_run_is_known(self, name: str) -> None:
        ground = GROUND[name]
        assert ground.find(ground.ran) == name

    @pytest.mark.parametrize("name", GROUND)
    def test_another_version_or_setting_is_not(self, name: str) -> None:
        ground = GROUND[name]
        assert name not in [ground.find(ran) for ran in ground.near]

    @pytest.mark.parametrize("name", [name for name in GROUND if GROUND[name].gauges])
    def test_without_the_gauge_it_is_not(self, name: str) -> None:
        ground = GROUND[name]
        assert ground.find(ground.ran, dict.fromkeys(ground.gauges, 0.0)) is None

    @pytest.mark.parametrize("name", [name for name in GROUND if GROUND[name].native])
    def test_what_another_function_allocated_most_of_is_not(self, name: str) -> None:
        ground = GROUND[name]
        others = {function: size / 20 for function, size in ground.native.items()}
        assert replace(ground, native={**others, "inflate": 6e7}).find(ground.ran) is None
        assert replace(ground, native={}).find(ground.ran) is None

    def test_memory_that_is_large_but_has_not_grown_is_not(self) -> None:
        large = {"mapped_mimalloc": 500.0 * KIB * KIB}.get
        grown = Symptom("unexplained", lambda name: large(name, 0.0), lambda name: 0.9)
        found = find_known_of_finding(grown, shipped(), {"torch": "2.9.0"})
        assert found is not None and found.known.id == "mimalloc-retention"
        assert found.recognised.cause == (
            f"{found.known.cause} In this run: resident in memory that mimalloc has mapped and "
            "named: 500 MiB, 90% of what memory gained; MIMALLOC_PURGE_DELAY is not set."
        )
        level = replace(grown, share=lambda name: 0.1)
        assert find_known_of_finding(level, shipped(), {"torch": "2.9.0"}) is None

    @pytest.mark.parametrize("name", GROUND)
    def test_another_kind_of_finding_is_not(self, name: str) -> None:
        assert replace(GROUND[name], kind="threads").find(GROUND[name].ran) is None

    def test_a_container_is_never_the_grounds(self) -> None:
        seen = replace(SEEN["wandb-table"], holder="", type="garbage")
        assert seen.find(ran={**PYTHON_3_14, **GLIBC}) is None


class TestEntriesOfAProject:
    def test_they_are_queried_first_and_say_who_speaks(self) -> None:
        own = to_entry({**table(), "match": {"type": "torchmetrics.wrappers.tracker.*"}})
        catalogue = with_own(Own((("culprits.toml", own),), ("x is left out.",)))
        found = find_known(SEEN["torchmetrics-tracker"].sighting(), catalogue, TORCHMETRICS)
        assert found is not None
        assert (found.recognised.id, found.recognised.source) == ("my-history", "culprits.toml")
        assert found.recognised.version == ""
        assert catalogue.faults == ("x is left out.",)
        assert len(catalogue.entries) == len(shipped().entries) + 1

    def test_an_empty_catalogue_knows_nothing(self) -> None:
        seen = SEEN["wandb-table"]
        assert find_known(seen.sighting(), Catalogue(), seen.ran) is None

    def test_a_variable_of_a_librarys_function_is_known_by_the_functions_name(self) -> None:
        entry = to_entry({**table(), "match": {"holder": ["mylib.fit.run"], "path": ["seen"]}})
        owner = Owner(kind="function", name="mylib.fit.run", variable="seen", module="mylib.fit")
        held = _row("mylib.fit.run()·seen[*]", "list", owner=owner)
        mine = Owner(kind="function", name="run", variable="seen", module="__main__")
        catalogue = with_own(Own((("f", entry),)))
        found = find_known(Sighting(held, [], "within", "host"), catalogue, {})
        assert found is not None
        look_alike = _row("run()·seen[*]", "list", owner=mine)
        assert find_known(Sighting(look_alike, [], "within", "host"), catalogue, {}) is None


def table(**changes: object) -> dict[str, object]:
    return {
        "id": "my-history",
        "title": "It keeps",
        "library": "mylib",
        "nature": "usage",
        "cause": "It keeps everything.",
        "link": "https://example.org/7",
        "remedy": {"title": "Empty it", "text": "Call clear()."},
        "match": {"holder": ["mylib.Recorder"], "path": ["samples"]},
        **changes,
    }


def test_timers_are_recognised_by_the_name_that_their_loop_gives_them() -> None:
    loop = Owner(kind="module", name="loop", module="asyncio")
    timers = msgspec.structs.replace(
        _row("asyncio·loop._scheduled", "list", owner=loop), name="loop._scheduled"
    )
    found = find_known(Sighting(timers, [], "across", "host"), shipped(), {"python": "3.11.7"})
    assert found is not None
    assert found.known.id == "python-timers"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"id": "My History"}, "id must be small letters, digits and dashes"),
        ({"link": "see the wiki"}, "link must be an address that begins with https://"),
        ({"link": "javascript:alert(1)"}, "link must be an address"),
        ({"nature": "bug"}, 'nature must be "fault" or "usage", not \'bug\''),
        ({"cause": "  "}, "cause must be a text that isn't empty"),
        ({"title": 7}, "title must be a text that isn't empty, not 7"),
        ({"versions": "newer than 2"}, "versions must be a range such as >=1.2,<2"),
        ({"because": "x"}, "it has because, which no entry has"),
        ({"remedy": {"title": "x"}}, "it has no remedy.text"),
        ({"remedy": "call clear()"}, "remedy must be a table, not 'call clear()'"),
        ({"match": {"holder": "mylib.Recorder", "path": ["x"]}}, "match.holder must be a list"),
        ({"match": {"holder": ["list"], "path": ["x"]}}, "must begin with the library's package"),
        ({"match": {"holder": ["*.Thing"], "path": ["x"]}}, "must begin with the library's"),
        ({"match": {"type": "dict"}}, "match.type must begin with the library's package"),
        ({"match": {"holder": ["mylib.Recorder"]}}, "match.holder needs match.path"),
        ({"match": {"type": "mylib.X", "growth": "ever"}}, 'must be "across" or "within"'),
        ({"match": {"holds": "str"}}, "match.holds must begin with the library's package"),
        ({"match": {"finding": ["garbage"], "type": "mylib.X"}}, "match.type is of a container"),
        ({"match": {"finding": ["garbage"], "gauge": {"rss": "much"}}}, "must be whole numbers"),
        ({"match": {"finding": ["garbage"], "share": 0.5}}, "match.share must be numbers by name"),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused_with_what_is_wrong(
    changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(EntryError) as refused:
        to_entry(table(**changes))
    assert sentence in str(refused.value)


@pytest.mark.parametrize("field", ["id", "title", "library", "nature", "cause", "link", "match"])
def test_what_is_missing_is_named(field: str) -> None:
    entry = table()
    del entry[field]
    with pytest.raises(EntryError, match=f"it has no {field}"):
        to_entry(entry)


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(EntryError, match="it must be a table"):
        to_entry(["id"])


class TestARun:
    """An accelerator keeps its models, by censuses of a whole run."""

    def run(self, holder: str = "accelerate.accelerator.Accelerator", seed: int = 0) -> Program:
        program = Program(epochs=8, seed=seed)
        program.leak("main()·accelerator", 200 * KIB, type=holder, kind="object")
        return program.leak("main()·accelerator._models", 200 * KIB, parent="main()·accelerator")

    def known(self, report: Report) -> list[Recognised | None]:
        assert report.culprits
        return [culprit.known for culprit in report.culprits]

    def analysed(self, *programs: Program, version: str = "1.15.0", **more: Catalogue) -> Report:
        first, *others = (program.build() for program in programs)
        first.manifest = msgspec.structs.replace(
            first.manifest, environment={"accelerate": version}
        )
        first.recordings += [run.main for run in others]
        for rank, recording in enumerate(first.recordings):
            size = len(first.recordings)
            recording.header = HeaderRecord(role="rank", rank=rank, world_size=size, pid=9 + rank)
        return analyse(first, **more)

    def test_a_culprit_has_what_is_known_and_its_remedy(self) -> None:
        report = self.analysed(self.run())
        (known,) = self.known(report)
        assert known is not None
        assert (known.id, known.version) == ("accelerate-prepared", "1.15.0")
        (culprit,) = report.culprits
        assert culprit.name == "main.accelerator._models"
        assert "free_memory" in culprit.remedy.title

    def test_another_version_or_holder_leaves_the_general_remedy(self) -> None:
        for report in (
            self.analysed(self.run(), version="0.34.0"),
            self.analysed(self.run("__main__.Accelerator")),
            self.analysed(self.run(), catalogue=Catalogue()),
        ):
            assert self.known(report) == [None]
            assert "free_memory" not in report.culprits[0].remedy.text

    def test_what_grows_in_another_rank_alone_is_known_too(self) -> None:
        healthy = Program(epochs=8)
        (known,) = self.known(self.analysed(healthy, self.run(seed=1)))
        assert known is not None
        assert known.id == "accelerate-prepared"
        (known,) = self.known(self.analysed(healthy, self.run(seed=1), catalogue=Catalogue()))
        assert known is None

    def test_what_is_left_out_is_listed_in_the_report(self) -> None:
        catalogue = with_own(Own((), ("Known culprit x of f is left out: it has no id.",)))
        report = self.analysed(self.run(), catalogue=catalogue)
        assert [(e.where, e.message) for e in report.errors] == [
            ("known culprits", "Known culprit x of f is left out: it has no id.")
        ]
        assert self.known(report)[0] is not None


class TestTheRemedy:
    def known(self) -> KnownCulprit:
        return to_entry(table())

    def test_the_librarys_own_comes_first(self) -> None:
        general = Remedy(title="Bound it", text="Keep less.")
        assert prefer_known_remedy(self.known(), general) == Remedy(
            title="Empty it", text="Call clear()."
        )
        assert prefer_known_remedy(None, general) is general

    def test_a_diff_against_the_users_source_is_kept_and_says_what_it_does(self) -> None:
        general = Remedy(title="Reset metric after each round", text="…", diff="+metric.reset()")
        remedy = prefer_known_remedy(to_entry(table(nature="usage")), general)
        assert remedy == Remedy(title=general.title, text="Call clear().", diff=general.diff)

    def test_a_fault_of_the_librarys_is_not_mended_by_a_diff(self) -> None:
        general = Remedy(title="Keep the last 100", text="…", diff="+del kept[:-100]")
        remedy = prefer_known_remedy(to_entry(table(nature="fault")), general)
        assert remedy == Remedy(title="Empty it", text="Call clear().")

    def test_natures_are_distinguished(self) -> None:
        assert to_entry(table(nature="fault")).nature is Nature.FAULT
