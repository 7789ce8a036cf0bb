"""Registries: what the interpreter and libraries keep for life, and how their entries are counted.

A table. A new registry is an entry of :data:`REGISTRIES`: a name, what it has, where it lies and
what fills it. Places are counted in modules that the program has imported and nowhere else. Weak
registries are listed where an entry costs memory of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Counting(Enum):
    """How the number of entries is read."""

    LENGTH = "length"
    """How long the containers are."""
    CALL = "call"
    """What a function written in C returns."""
    SERVED = "served"
    """How much waits in the queues of threads whose class, or that of the method they run, is from
    these modules: of what has no place, since only objects of the program's refer to it."""
    UNCOUNTED = "uncounted"
    """Not at all: there is always one entry, which may keep all those before it."""


@dataclass(frozen=True)
class CountedRegistry:
    """Something with entries that stay until they are taken back."""

    name: str
    noun: str
    """What its entries are called, in the plural."""
    places: tuple[str, ...]
    """``module:attribute.attribute``, of one thing each; what several have is added up. Of threads
    that serve queues the module alone, with all below it.
    """
    filled_by: tuple[str, ...] = ()
    """Calls that add entries: ``owner.function``, ``.function`` without an owner, ``*.function`` of
    any object.
    """
    advice: str = ""
    """How entries are removed, where more is known than that."""
    counting: Counting = Counting.LENGTH
    is_bounded: bool = False
    """Whether it is emptied by itself when it is full: then it is counted, and no culprit."""
    capacity: int = 0
    """How many entries it has when it is full, where that is known."""
    is_newest_first: bool = False
    """Whether new entries are put at the beginning of a list."""
    but: tuple[str, ...] = ()
    """Places whose entries don't count."""
    keeper: str = ""
    """What keeps the entries, where it is called otherwise than its first place."""
    filled_through: tuple[str, ...] = ()
    """Calls through which entries are added as well as much else: they count where the program has
    none of the others.
    """
    emptied_by: tuple[str, ...] = ()
    """Calls that remove entries which count nevertheless: where the program makes them again and
    again the number tells nothing.
    """
    keeps_shared: bool = False
    """Whether an entry keeps shared memory for another process, which has no private memory."""
    is_weak: bool = False
    """Whether it lists what something else keeps alive."""
    piles_up_as: str = ""
    """What its entries are where many run the same function: ``task`` or ``thread``."""

    @property
    def kept_by(self) -> str:
        """What keeps the entries, as it is written in a sentence."""
        return self.keeper or self.places[0].replace(":", ".")

    @property
    def libraries(self) -> set[str]:
        """The packages that its places lie in."""
        return {place.partition(":")[0].partition(".")[0] for place in self.places}

    def has(self, path: str) -> bool:
        """Return whether a path pattern leads to what lies at one of the places, into it, or to a
        variable that has it.

        Another module of the same package may have it under the same name.
        """
        if self.counting is Counting.SERVED:
            return False
        root, _, names = path.partition("·")
        for place in self.places:
            module, _, way = place.partition(":")
            is_there = names.startswith(way) and names[len(way) :][:1] in _NEXT
            is_there |= bool(names) and way.startswith(f"{names}.")
            if is_there and root.partition(".")[0] == module.partition(".")[0]:
                return True
        return False


_NEXT = frozenset(("", ".", "[", "(", "⟨"))
"""What a step of a path pattern begins with, or its end."""


_LOGGED = (
    *(f"*.add_{what}" for what in ("scalar", "scalars", "histogram", "image", "figure", "text")),
    *(f"*.log_{what}" for what in ("metric", "metrics", "image", "batch", "artifact")),
    *("wandb.log", "run.log"),
)
REGISTRIES = (
    # The interpreter and its library.
    CountedRegistry(
        "exit-handlers",
        "functions that are to be called when the program ends",
        ("atexit:_ncallbacks",),
        ("atexit.register",),
        "atexit.unregister(function) takes back all calls of a function.",
        # Until 3.13 the place of a function that was taken back stays, and is counted.
        emptied_by=("atexit.unregister", ".unregister"),
        counting=Counting.CALL,
    ),
    CountedRegistry(
        "finalizers",
        "finalizers of objects that are alive",
        ("weakref:finalize._registry",),
        ("weakref.finalize", ".finalize"),
        "A finalizer keeps its function and arguments as long as its object lives: give it to an "
        "object that goes, or call its detach().",
    ),
    CountedRegistry(
        "interned-strings",
        "interned strings",
        ("sys:_getunicodeinternedsize", "sys:getunicodeinternedsize"),
        ("sys.intern", ".intern"),
        "CPython 3.12 never lets go of one: intern names of which there is a fixed number.",
        counting=Counting.CALL,
        keeper="the interpreter",
    ),
    CountedRegistry(
        "collector-callbacks",
        "callbacks of the collector",
        ("gc:callbacks",),
        ("callbacks.append",),
        "Take them back with gc.callbacks.remove(callback).",
    ),
    CountedRegistry(
        "signal-handlers",
        "handlers of a signal, of which each keeps the one before it",
        ("signal:getsignal",),
        ("signal.signal", ".signal"),
        "Set a handler once: one that calls the handler before it keeps that one as well.",
        counting=Counting.UNCOUNTED,
    ),
    CountedRegistry(
        "import-paths",
        "paths on which modules are looked for",
        ("sys:path", "sys:meta_path", "sys:path_hooks", "sys:path_importer_cache"),
        ("path.append", "path.insert", "path.extend", "meta_path.append", "meta_path.insert"),
        "Add a path only where it isn't among them.",
    ),
    CountedRegistry(
        "modules",
        "imported modules",
        ("sys:modules",),
        ("importlib.import_module", ".import_module", "*.exec_module", "*.module_from_spec"),
        "Import code under one name, or take it out of sys.modules when it is done.",
    ),
    CountedRegistry(
        "picklers",
        "classes with picklers of their own",
        ("copyreg:dispatch_table", "copyreg:_extension_registry", "pickle:dispatch_table"),
        ("copyreg.pickle", "copyreg.add_extension"),
        "Make each class once.",
    ),
    CountedRegistry(
        "encodings",
        "encodings",
        ("encodings:_cache",),
        ("codecs.lookup", "codecs.getdecoder", "codecs.getencoder", "codecs.getreader"),
        "Every name of an encoding is kept, also one that there is not: accept names from a list.",
        filled_through=("*.decode", "*.encode", "codecs.open", ".open"),
    ),
    CountedRegistry(
        "overloads",
        "overloads of functions",
        ("typing:_overload_registry",),
        ("typing.overload", ".overload"),
        "typing.clear_overloads() empties it; import code under one name.",
        filled_through=(".exec", "*.exec_module", "*.import_module", ".import_module"),
    ),
    CountedRegistry(
        "source-lines",
        "files of source text",
        ("linecache:cache", "linecache:_interactive_cache"),
        ("linecache.getlines", "linecache.updatecache", "linecache.lazycache"),
        "linecache.clearcache() empties it; code that is made at run time is best given one name.",
    ),
    CountedRegistry(
        "patterns", "compiled patterns", ("re:_cache", "re:_cache2"), is_bounded=True, capacity=512
    ),
    CountedRegistry(
        "warning-filters",
        "filters of warnings",
        ("warnings:filters", "_warnings:filters"),
        ("warnings.filterwarnings", "warnings.simplefilter", ".filterwarnings", ".simplefilter"),
        "Filter once at the top of the program, or within `with warnings.catch_warnings()`.",
        is_newest_first=True,
    ),
    CountedRegistry(
        "warnings-once",
        "warnings that were shown",
        ("warnings:onceregistry", "_warnings:_onceregistry"),
        ("warnings.warn_explicit", ".warn_explicit"),
        "Leave what varies out of the text of a warning.",
        filled_through=("warnings.warn", ".warn"),
    ),
    CountedRegistry(
        "loggers",
        "loggers",
        ("logging:Logger.manager.loggerDict",),
        ("logging.getLogger", ".getLogger"),
        "Use one logger, and a LoggerAdapter for what varies.",
    ),
    CountedRegistry(
        "log-handlers",
        "handlers of logs that are alive",
        ("logging:_handlerList",),
        ("*.addHandler",),
        "Add handlers once, or take each back with removeHandler(handler) and close it.",
        is_weak=True,
    ),
    CountedRegistry(
        "finished-threads",
        "ended threads that something keeps",
        ("threading:_dangling",),
        ("threading.Thread", ".Thread"),
        "Let go of Thread objects when they are joined.",
        but=("threading:_active",),
        is_weak=True,
    ),
    CountedRegistry(
        "executors",
        "threads of executors",
        ("concurrent.futures.thread:_threads_queues",),
        ("*.ThreadPoolExecutor", ".ThreadPoolExecutor"),
        "Make one executor outside the loop, or use it as a context manager.",
        is_weak=True,
        piles_up_as="thread",
    ),
    CountedRegistry(
        "tasks",
        "live tasks",
        ("asyncio.tasks:_all_tasks", "asyncio.tasks:_scheduled_tasks"),
        ("*.create_task", "asyncio.ensure_future"),
        "Await or cancel tasks, and let go of those that are done.",
        is_weak=True,
        piles_up_as="task",
    ),
    CountedRegistry(
        "foreign-types",
        "types of pointers and functions",
        ("_ctypes:_pointer_type_cache", "ctypes:_c_functype_cache", "ctypes:_win_functype_cache"),
        ("ctypes.POINTER", ".POINTER", "ctypes.CFUNCTYPE", ".CFUNCTYPE", "ctypes.pointer"),
        "Define structures and prototypes once, outside of functions.",
    ),
    CountedRegistry(
        "process-finalizers",
        "finalizers of multiprocessing",
        ("multiprocessing.util:_finalizer_registry", "multiprocessing.util:_afterfork_registry"),
        (
            *("*.Manager", ".Manager", "*.Queue", ".Queue", "*.Pool", ".Pool"),
            *("*.Finalize", ".Finalize", "*.register_after_fork", ".register_after_fork"),
        ),
        "Close and join pools, queues and managers, or make them once. A finalizer of no object is "
        "kept until it is called, or taken back by its cancel().",
    ),
    CountedRegistry(
        "process-children",
        "child processes that weren't joined",
        ("multiprocessing.process:_children",),
        ("*.Process", ".Process"),
        "join() them.",
        filled_through=("*.start",),
    ),
    CountedRegistry(
        "sent-handles",
        "handles that wait for their receiver",
        ("multiprocessing.resource_sharer:_resource_sharer._cache",),
        ("*.put", "*.put_nowait", "*.send"),
        "Take out of a queue or pipe what was put in, or put less in.",
        keeps_shared=True,
    ),
    CountedRegistry(
        "patches",
        "patches of mock that weren't stopped",
        ("unittest.mock:_patch._active_patches",),
        ("*.patch", ".patch", "patch.object", "patch.dict", "patch.multiple"),
        "Call mock.patch.stopall() when each round is over.",
    ),
    # torch.
    CountedRegistry(
        "tree-nodes",
        "classes registered as nodes of trees",
        ("torch.utils._pytree:SUPPORTED_NODES", "torch.utils._pytree:SUPPORTED_SERIALIZED_TYPES"),
        ("*.register_pytree_node", ".register_pytree_node", "*.register_dataclass"),
        "Define each class once and register it there.",
    ),
    CountedRegistry(
        "operators",
        "operators and kernels that were registered",
        (
            "torch.library:_defs",
            "torch.library:_impls",
            "torch.library:_keep_alive",
            "torch._library.custom_ops:OPDEF_TO_LIB",
            "torch._library.simple_registry:singleton._data",
        ),
        ("*.custom_op", ".custom_op", "*.define", "*.impl", "*.register_kernel", "*.Library"),
        "Register each operator once when a module is imported; a Library that is let go takes its "
        "operators with it.",
    ),
    CountedRegistry(
        "module-hooks",
        "hooks of all modules",
        (
            "torch.nn.modules.module:_global_forward_hooks",
            "torch.nn.modules.module:_global_forward_pre_hooks",
            "torch.nn.modules.module:_global_backward_hooks",
            "torch.nn.modules.module:_global_backward_pre_hooks",
            "torch.nn.modules.module:_global_parameter_registration_hooks",
            "torch.nn.modules.module:_global_buffer_registration_hooks",
            "torch.nn.modules.module:_global_module_registration_hooks",
        ),
        tuple(
            f"{owner}.register_module_{what}_hook"
            for what in (
                *("forward", "forward_pre", "backward", "full_backward", "full_backward_pre"),
                *("parameter_registration", "buffer_registration", "module_registration"),
            )
            for owner in ("*", "")
        ),
        "Keep the handle that is returned, and call its remove().",
    ),
    CountedRegistry(
        "optimizer-hooks",
        "hooks of all optimizers",
        (
            "torch.optim.optimizer:_global_optimizer_pre_hooks",
            "torch.optim.optimizer:_global_optimizer_post_hooks",
        ),
        (
            "*.register_optimizer_step_pre_hook",
            ".register_optimizer_step_pre_hook",
            "*.register_optimizer_step_post_hook",
            ".register_optimizer_step_post_hook",
        ),
        "Keep the handle that is returned, and call its remove().",
    ),
    CountedRegistry(
        "shared-tensors",
        "handles of tensors shared with processes",
        # It keeps no tensor, and drops handles whose storage is gone when it is full.
        ("torch.multiprocessing.reductions:shared_cache",),
        is_bounded=True,
    ),
    CountedRegistry(
        "process-groups",
        "process groups",
        ("torch.distributed.distributed_c10d:_pg_map",),
        ("*.new_group", ".new_group", "*.new_subgroups", "*.init_device_mesh"),
        "Make each group once, or end it by destroy_process_group(group).",
    ),
    CountedRegistry(
        "traced-sources",
        "source texts of traced graphs",
        ("torch.fx.graph_module:_loader.eval_cache",),
        ("*.symbolic_trace", ".symbolic_trace", "*.GraphModule", ".GraphModule", "*.recompile"),
        "Trace a module once. The text of each graph is kept for tracebacks.",
    ),
    CountedRegistry(
        "script-types",
        "types of scripted modules",
        (
            "torch.jit._recursive:concrete_type_store.type_store",
            "torch.jit._state:_script_classes",
            "torch.jit._state:_name_to_pyclass",
        ),
        ("jit.script", "jit.trace"),
        "Script a module once: each class that is scripted again creates types of its own.",
    ),
    CountedRegistry(
        "compilers",
        "compiler backends that torch.compile was given",
        ("torch._dynamo.eval_frame:cached_backends",),
        ("torch.compile", ".compile"),
        "Compile once, outside the loop: each call of torch.compile keeps its backend until "
        "torch._dynamo.reset().",
    ),
    CountedRegistry(
        "compiled-modules",
        "modules of generated code",
        (
            "torch._inductor.codecache:PyCodeCache.modules",
            "torch._inductor.codecache:PyCodeCache.modules_no_attr",
            "torch._inductor.codecache:CppCodeCache.cache",
            "torch._inductor.codecache:CppPythonBindingsCodeCache.cache",
            "torch._inductor.codecache:CppWrapperCodeCache.cache",
            "torch._inductor.codecache:CudaKernelParamCache.cache",
            "torch._inductor.async_compile:CompiledTritonKernels._cache",
            "torch._dynamo.convert_frame:input_codes.seen",
            "torch._dynamo.convert_frame:output_codes.seen",
        ),
        ("torch.compile", ".compile", "PyCodeCache.load", "PyCodeCache.load_by_key_path"),
        "Compile once; inputs whose shapes vary are compiled once with dynamic=True.",
    ),
    CountedRegistry(
        "compilation-records",
        "records of compilations",
        (
            "torch._dynamo.utils:compilation_time_metrics",
            "torch._dynamo.utils:guard_failures",
            "torch._inductor.codecache:PyCodeCache.linemaps",
            "torch._dynamo.funcname_cache:cache",
        ),
        ("torch.compile", ".compile"),
    ),
    CountedRegistry(
        "shape-results",
        "results of operators for shapes of tensors",
        ("torch._subclasses.fake_tensor:FakeTensorMode.cache",),
        (
            *("*.distribute_tensor", ".distribute_tensor", "DTensor.from_local"),
            *("*.redistribute", "torch.compile", ".compile"),
        ),
        "Distributed tensors and torch.compile keep how operators treat a shape: pad what varies "
        "to a few shapes.",
    ),
    CountedRegistry(
        "kernels",
        "kernels that traced graphs refer to",
        (
            "torch._higher_order_ops.triton_kernel_wrap:KernelSideTable.id_to_kernel",
            "torch._higher_order_ops.triton_kernel_wrap:KernelSideTable.constant_args",
        ),
        ("*.add_kernel", "*.add_constant_args", "*.wrap_triton", ".wrap_triton"),
        "Define each kernel once, and compile what calls it once.",
        filled_through=("torch.compile", ".compile"),
    ),
    # Other libraries.
    CountedRegistry(
        "image-formats",
        "formats of images",
        ("PIL.Image:ID", "PIL.Image:SAVE", "PIL.Image:EXTENSION", "PIL.Image:MIME"),
        ("*.register_open", "*.register_save", "*.register_extension"),
        "Register a format once when its module is imported.",
    ),
    CountedRegistry(
        "arrow-types",
        "extension types of Arrow",
        ("pyarrow.lib:_python_extension_types_registry",),
        ("*.register_extension_type",),
        "Define each type once and register it there: a type that is taken back by "
        "pyarrow.unregister_extension_type(name) stays in this list.",
    ),
    CountedRegistry(
        "frame-options",
        "options and types of data frames",
        ("pandas._config.config:_registered_options", "pandas.core.dtypes.base:_registry.dtypes"),
        ("*.register_extension_dtype", ".register_extension_dtype", "*.register_option"),
        "Define each type once.",
    ),
    CountedRegistry(
        "colormaps",
        "colormaps",
        (
            *("matplotlib:colormaps._cmaps", "matplotlib.cm:_colormaps._cmaps"),
            "matplotlib.units:registry",
        ),
        ("colormaps.register", "*.register_cmap"),
        "Register a colormap once; colormaps.unregister(name) takes it back.",
    ),
    CountedRegistry(
        "expressions",
        "compiled expressions",
        ("numexpr.necompiler:_numexpr_cache", "numexpr.necompiler:_names_cache"),
        is_bounded=True,
        capacity=256,
    ),
    CountedRegistry(
        "configurations",
        "configurations of models that were registered",
        ("transformers.models.auto.configuration_auto:CONFIG_MAPPING._extra_content",),
        ("AutoConfig.register",),
        "Register a configuration once when its module is imported.",
    ),
    CountedRegistry(
        "progress-bars",
        "progress bars that weren't closed",
        ("tqdm.std:tqdm._instances",),
        (".tqdm", "tqdm.tqdm", ".trange"),
        "Close each bar, or use it as a context manager.",
    ),
    CountedRegistry(
        "tracker-records",
        "records that wait to be written by an experiment tracker",
        ("tensorboard.summary.writer", "tensorboardX", "mlflow.utils.async_logging", "wandb.sdk"),
        _LOGGED,
        "Log less often or less at once, or wait for the tracker now and then (flush()): records "
        "come faster than they are written.",
        counting=Counting.SERVED,
        keeper="the queue of the tracker's thread",
    ),
    CountedRegistry(
        "metrics",
        "metrics of a service",
        ("prometheus_client.registry:REGISTRY._collector_to_names",),
        tuple(
            f"{owner}.{metric}"
            for metric in ("Counter", "Gauge", "Histogram", "Summary", "Info", "Enum")
            for owner in ("", "prometheus_client")
        ),
        "Make each metric once, at the top of a module; labels tell things apart.",
    ),
    CountedRegistry(
        "event-listeners",
        "listeners of events of the database",
        ("sqlalchemy.event.registry:_key_to_collection",),
        ("event.listen", "event.listens_for", ".listen", ".listens_for"),
        "Listen once, or take a listener back with event.remove(…).",
    ),
    CountedRegistry(
        "custom-objects",
        "custom objects and global state of models",
        (
            "keras.src.saving.object_registration:GLOBAL_CUSTOM_OBJECTS",
            "keras.src.saving.object_registration:GLOBAL_CUSTOM_NAMES",
        ),
        ("*.register_keras_serializable", ".register_keras_serializable"),
        "Define each class once.",
    ),
)


def registry_of(path: str) -> CountedRegistry | None:
    """Return the registry that a path pattern leads to or into, if it does."""
    return next((registry for registry in REGISTRIES if registry.has(path)), None)
