"""What is true of each program of the zoo.

A program stands in ``cases/`` and tells by itself how many bytes it keeps (``weighing``); the lines
that feed a leak carry the comment ``# feeds``, or ``# feeds: KEY`` where there are several leaks.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Leak:
    """What the report must say about one leak."""

    names: tuple[str, ...]
    """What its culprit may be called, or the finding's kind."""
    key: str = ""
    """What the program calls it where it has several."""
    also: tuple[str, ...] = ()
    """Other names that may stand next to it: they hold the same or follow from it."""
    line: str = ""
    """A part of the line that feeds it, where the program has no comment that marks it."""
    growth: str = "across"
    kept: dict[str, float] = field(default_factory=dict)
    """Bytes per unit, where the program doesn't tell them."""


@dataclass(frozen=True)
class Truth:
    """What is true of one program: its leaks, the greatest first, and what verdicts are right."""

    leaks: tuple[Leak, ...] = ()
    verdicts: tuple[str, ...] = ("leak",)
    needs: tuple[str, ...] = ()
    """Libraries and commands without which it is left out."""


def leak(*names: str, also: tuple[str, ...] = (), needs: tuple[str, ...] = ()) -> Truth:
    return Truth((Leak(names, also=also),), needs=needs)


def healthy(*needs: str) -> Truth:
    return Truth(verdicts=("clean",), needs=needs)


TRUTHS: dict[str, Truth] = {
    "aliased_history": leak("Trainer.features", "Reporter.records"),
    "async_evaluator": leak("AsyncEvaluator.results"),
    "atexit_saves": leak("atexit", "native_held"),
    "augmentation_cache": leak("Augmented._cache"),
    "average_meter": leak("AverageMeter.sum"),
    "bpe_cache": leak("tokenizer.cache", "Tokenizer.cache"),
    "cached_method": leak("ElasticTransform.displacement"),
    "cartography": leak("Cartographer.by_sample", "Cartographer.by_sample[*]"),
    "closure_recorder": leak("make_logger.maps"),
    "collector_off": leak("collector_off", also=("garbage",)),
    "context_trace": leak("trace"),
    "curriculum_sampler": leak("sampler.easiest", "CurriculumSampler.easiest"),
    "debug_attributes": leak("debug"),
    "default_argument": leak("embed.chunks"),
    "deferred_plots": leak("Board.deferred"),
    "detection_validation_lists": Truth(
        (
            Leak(
                ("DetectionTrainer.all_pred_masks",),
                key="all_pred_masks",
                also=("DetectionTrainer.all_pred_scores",),
            ),
            Leak(("DetectionTrainer.all_pred_bboxes",), key="all_pred_bboxes"),
        )
    ),
    "early_stopping_improvements": leak("EarlyStopping.best_states"),
    "epoch_outputs": leak("main.history", also=("evaluate.heatmaps",), needs=("tqdm",)),
    "event_listeners": leak("Events.listeners", "Events.listeners['step']"),
    "figures_never_closed": leak(
        "open_figures", "matplotlib._pylab_helpers.Gcf.figs", "Gcf.figs", needs=("matplotlib",)
    ),
    "finalizers": leak("weakref.finalize._registry", "finalize._registry"),
    "forward_wrapped": leak("model.forward"),
    "frames_of_predictions": leak("oof", needs=("pandas",)),
    "gan_image_list": leak("img_list"),
    "generator_remembers": leak("hard_negatives.given"),
    "graph_neighbourhoods": leak("GraphIndex._cached"),
    "growing_table": leak("Experiment.predictions", needs=("pandas",)),
    "heap_never_popped": leak("WorstSamples.heap"),
    "itertools_cycle": leak("main.batches"),
    "itertools_tee": leak("Probe.batches", "main.probe_batches", "main.train_batches"),
    "json_lines": leak("AttentionLogger.stream"),
    "kept_futures": leak("SnapshotWriter.futures"),
    "kept_iterators": leak("looks"),
    "landcover_tiles": leak("SegEvaluator.results['val']", "SegEvaluator.results"),
    "late_hard_examples": leak("Miner.hard"),
    "lightning_callback_batches": leak("DrawLater.batches", needs=("lightning",)),
    "linked_tape": leak("WorldModel.tape", "world.tape"),
    "lru_cache_getitem": leak("Spectrograms.augmented"),
    "maml_meta_losses": leak("MetaLearner.stats['losses']"),
    "memory_bank_cat": leak("Contrastive.bank", "model.bank"),
    "memory_handler": leak("handler.buffer", "MemoryHandler.buffer", "handler"),
    "metric_tracker": leak(
        "main.tracker",
        "main.tracker._metrics",
        "main.tracker[*].preds",
        also=("main.tracker[*].target", "main.tracker[*]._computed"),
        needs=("torchmetrics",),
    ),
    "multi_task_losses": Truth(
        tuple(
            Leak((f"main.history['train']['loss_{name}']",), key=name, line='["train"][f"loss_')
            for name in ("cls", "box")
        )
    ),
    "nested_run_state": leak("state.outputs['val']['logits']", "RunState.outputs['val']['logits']"),
    "numpy_append": leak("scores"),
    "optimizer_restarts": leak("Experiment.schedulers"),
    "pil_thumbnails": leak("Photos.opened", needs=("PIL",)),
    "prioritized_replay": leak("PrioritizedReplay.storage"),
    "queue_outruns_consumer": leak("PictureWriter.pending"),
    "recurrent_transitions": leak("Experience.transitions"),
    "registered_activations": leak("Net", "main.net"),
    "report_text": leak("MailReport.text"),
    "run_history": leak("Run._rows", "Run.current._rows"),
    "sample_registry": leak("Sample.registry"),
    "shared_segments": leak("EpisodeStore.episodes"),
    "shuffle_buffer": leak("shuffled.buffer"),
    "skipped_batches": leak("Trainer.errors"),
    "statistics_hooks": leak(
        "main.model.backbone._forward_hooks", "Network.backbone._forward_hooks"
    ),
    "streaming_pool": leak("Stream.__iter__.pool"),
    "text_log": leak("Console._lines"),
    "thread_gathers": leak("gather.rows"),
    "three_at_once": Truth(
        (
            Leak(("replays",), key="replays"),
            Leak(("Environment.frames",), key="frames"),
            Leak(("Agent.trace.embeddings",), key="embeddings"),
        )
    ),
    "too_short": Truth(
        (Leak(("main.outputs",), kept={"step": 32 * 1000 * 4.0}),),
        verdicts=("leak", "inconclusive"),
    ),
    "transform_registry": leak("Registered.instances", "Registered.instances['Noise']"),
    "transformers_collator_cache": leak("PaddingCollator.seen", needs=("transformers",)),
    "two_at_once": Truth(
        (
            Leak(("Distiller.targets",), key="targets"),
            Leak(("Distiller.history['teachers']",), key="teachers"),
        )
    ),
    "volumes_per_validation": leak("SegmentationRun.probabilities"),
    "within_validation": Truth(
        (Leak(("validate.all_preds",), growth="within", kept={"batch": 16 * 64 * 768 * 4.0}),)
    ),
    "worker_caches": leak("Cached.cache"),
    "order_service": leak("Service.confirmations"),
    "engine_thread": leak("Engine.blocks"),
    "fastapi_audit": leak("app.state.audit", needs=("fastapi", "uvicorn", "httpx")),
    "healthy_order_service": healthy(),
    "healthy_engine_thread": healthy(),
    "healthy_fastapi": healthy("fastapi", "uvicorn", "httpx"),
    "healthy_actor_critic": healthy(),
    "healthy_arena_retention": healthy(),
    "healthy_async_metrics": healthy(),
    "healthy_best_of_epoch": healthy(),
    "healthy_big_but_constant": healthy(),
    "healthy_cleared_every_epoch": healthy(),
    "healthy_cache_fills_slowly": healthy(),
    "healthy_copy_on_write": healthy(),
    "healthy_curriculum": healthy(),
    "healthy_dataset_cache": healthy("PIL"),
    "healthy_distillation_cache": healthy(),
    "healthy_ema_and_best": healthy(),
    "healthy_figures_closed": healthy("matplotlib"),
    "healthy_gan": healthy(),
    "healthy_gradual_unfreezing": healthy(),
    "healthy_local_lists": healthy(),
    "healthy_logging": healthy(),
    "healthy_longer_every_epoch": healthy(),
    "healthy_loss_window": healthy(),
    "healthy_lru_frames": healthy(),
    "healthy_memory_mapped": healthy(),
    "healthy_meta_learning": healthy(),
    "healthy_one_epoch": Truth(verdicts=("clean", "inconclusive")),
    "healthy_optimizer_restarts": healthy(),
    "healthy_position_cache": healthy(),
    "healthy_queue_drained": healthy(),
    "healthy_replay_fills_late": healthy(),
    "healthy_ring_bank": healthy(),
    "healthy_sawtooth": healthy(),
    "healthy_shuffle_pool": healthy(),
    "healthy_sliding_window": healthy(),
    "healthy_three_best": healthy(),
    "healthy_tiny_histories": healthy(),
    "healthy_touched_buffer": healthy(),
    "healthy_varying_batches": healthy(),
    "healthy_vocabulary": healthy(),
    "healthy_weak_registry": healthy(),
    "healthy_worker_lru": healthy(),
    "async_actors": Truth(
        (Leak(("learner.store", "TrajectoryStore", "Learner.store"), kept={"step": 36900}),)
    ),
    "denoise_writer": Truth(
        (Leak(("BackgroundWriter.pictures",), kept={"validation": 4424100, "epoch": 4424100}),)
    ),
    "dino_center": Truth(
        (Leak(("Centering.mean", "SelfDistillation.centering.mean"), kept={"step": 69200}),)
    ),
    "attention_rollout": Truth((Leak(("TRACE",), kept={"step": 591700, "epoch": 37869100}),)),
    "bucket_reducer": Truth(
        (
            Leak(
                (
                    "Reducer.layout[*][0]._post_accumulate_grad_hooks",
                    "model.table.weight._post_accumulate_grad_hooks",
                ),
                kept={"step": 40930},
            ),
        )
    ),
    "churn_ignite": Truth(
        (
            Leak(
                ("trainer._event_handlers", "trainer._event_handlers[*]"),
                kept={"step": 20050, "epoch": 1584200.0, "validation": 1584200.0},
            ),
        ),
        needs=("ignite",),
    ),
    "curriculum_tee": Truth(
        (Leak(("Feed.ahead", "Feed.stream", "feed.ahead"), kept={"step": 131640}),)
    ),
    "detect_anchors": Truth(
        (
            Leak(
                ("open_figures", "matplotlib._pylab_helpers.Gcf.figs", "Gcf.figs"),
                key="figures",
                kept={"step": 91200, "epoch": 7296000.0, "validation": 7296000.0},
            ),
            Leak(
                ("assign.overlaps",),
                key="overlaps",
                kept={"step": 65620, "epoch": 5250000.0, "validation": 5250000.0},
            ),
        ),
        needs=("matplotlib",),
    ),
    "distill_search": Truth((Leak(("Study.trials", "study.trials"), kept={"step": 45590}),)),
    "fedavg_async": Truth((Leak(("Server.inbox",), kept={"step": 43900}),)),
    "retry_fit": Truth((Leak(("Fitter.incidents",), kept={"step": 205260, "epoch": 30789000.0}),)),
    "segment_evaluator": healthy(),
    "tagger_torchmetrics": Truth(
        (
            Leak(
                ("Stage.scores.map.target",),
                also=("Stage.scores.map.preds",),
                kept={"step": 30840},
            ),
        ),
        needs=("torchmetrics",),
    ),
    "traced_ranker": Truth(
        (
            Leak(
                ("current_span", "Span.parent", "span.opened", "opened.parent"),
                key="SPANS",
                kept={"step": 64390},
            ),
            Leak(
                ("weakref.finalize._registry", "finalize._registry"),
                key="BUFFERS",
                kept={"step": 13720, "validation": 960480.0},
            ),
        )
    ),
    "healthy_speech_curriculum": healthy(),
    "healthy_masked_lm": healthy("accelerate"),
    "ignite_hard_views": Truth(
        (Leak(("trainer.state.hard", "State.hard"), kept={"step": 295080}),), needs=("ignite",)
    ),
    "trials_with_errors": Truth(
        (
            Leak(
                ("Study.trials", "Trial.reason", "study.trials"),
                kept={"validation": 314170, "epoch": 314170, "step": 6684},
            ),
        )
    ),
    "bounded_by_setitem": Truth(
        (
            Leak(("CachedNegatives.cache",), key="cache", kept={"step": 183000}),
            Leak(
                ("Evaluator.metric.target",),
                key="metric",
                also=("Evaluator.metric.preds",),
                kept={"validation": 1213000},
            ),
        ),
        needs=("torchmetrics",),
    ),
    "weak_keys_held_by_values": Truth((Leak(("_propagations",), kept={"step": 152300}),)),
    "population_search": Truth(
        (
            Leak(
                ("note_confidence._traces",),
                key="traces",
                kept={"step": 16450, "epoch": 6320000.0, "validation": 6320000.0},
            ),
            Leak(
                ("Study.lineage",),
                key="lineage",
                kept={"epoch": 2990000.0, "validation": 2990000.0},
            ),
        )
    ),
    "review_ngrams": Truth((Leak(("Featurizer.vectors", "NgramVectors"), kept={"step": 43100}),)),
    "seg_mixins": Truth(
        (
            Leak(
                ("DiceMixin.masks", "SegTrainer.masks"),
                key="masks",
                kept={"validation": 5898300, "epoch": 5898300},
            ),
            Leak(
                ("SegTrainer.net.bottleneck._forward_hooks", "hooks"),
                key="hooks",
                kept={"validation": 884900, "epoch": 884900},
            ),
        )
    ),
    "tee_of_statistics": Truth((Leak(("stats_stream",), kept={"step": 135340}),)),
    "gradient_debug_log": Truth(
        (
            Leak(
                ("grad_log.handlers[*].buffer", "details.buffer", "MemoryHandler.buffer"),
                kept={"step": 42100},
            ),
        )
    ),
    "skipped_with_tracebacks": Truth(
        (
            Leak(
                ("Skipped.by_kind", "Skipped.by_kind['AssignmentError']"),
                kept={"step": 42600, "epoch": 9000000.0, "validation": 9000000.0},
            ),
        )
    ),
    "vae_gallery": Truth(
        (Leak(("Gallery.pages",), kept={"validation": 4021100, "epoch": 4021100}),)
    ),
    "vit_events": Truth(
        (
            Leak(
                (
                    "EventBus.listeners",
                    "EventBus.listeners['run_end']",
                    "EventBus.listeners['run_end'][*]",
                ),
                kept={"validation": 1327800, "epoch": 1327800},
            ),
        )
    ),
    "audited_penalty": Truth((Leak(("audited.journal", "journal"), kept={"step": 99900}),)),
    "healthy_active_learning": healthy(),
    "healthy_five_best_heap": healthy(),
    "healthy_clip_frames": healthy("PIL"),
    "healthy_longer_texts": healthy(),
    "healthy_averaged_weights": healthy(),
    "healthy_value_replay": healthy(),
    "healthy_bank_of_epochs": healthy(),
    "healthy_ring_fills_late": healthy(),
    "street_detector": Truth(
        (
            Leak(
                ("AnchorGenerator._cache", "detector.anchors._cache"),
                key="anchors",
                kept={"step": 222621},
            ),
            Leak(("Miner.bank", "hard.bank"), key="bank", kept={"step": 99008}),
        )
    ),
    "live_actions": Truth(
        (
            Leak(("clips.window", "train.feeds"), key="window", kept={"step": 56402}),
            Leak(("Transcript.text",), key="text", kept={"step": 19451}),
        )
    ),
    "pde_sweep": Truth((Leak(("native_held",), kept={"step": 41570}),)),
    "fed_rounds": Truth((Leak(("weakref.finalize._registry",), kept={"step": 34025}),)),
    "word_pieces": Truth((Leak(("__warningregistry__",), kept={"step": 23899}),)),
    "link_stream": Truth((Leak(("Standardise.look", "stream.look"), kept={"step": 42801}),)),
    "packed_lm": Truth(
        (
            Leak(("block_mask",), key="masks", kept={"step": 301284}),
            Leak(
                ("ProfilingTrainer.state.log_history", "trainer.state.log_history"),
                key="logs",
                kept={"step": 24838},
            ),
        ),
        needs=("transformers",),
    ),
    "hpo_median_pruner": Truth(
        (
            Leak(
                ("Study.trials", "study.trials", "Trial.reason", "trial.reason"),
                kept={"step": 19507, "validation": 847442, "epoch": 847442},
            ),
        )
    ),
    "multitask_grad_journal": Truth(
        (
            Leak(
                ("main.journal", "main.journal['tasks']", "main.entry", "main.block"),
                kept={"step": 27234},
            ),
        )
    ),
    "mlm_tokens": Truth(
        (
            Leak(("evaluate.gathered",), key="outputs", growth="within", kept={"batch": 9442368}),
            Leak(("Tokenizer.known", "tokenizer.known"), key="token_cache", kept={"step": 32959}),
        )
    ),
    "automl_tile_search": Truth(
        (
            Leak(
                ("Study.trials", "study.trials", "Trial.error", "trial.error"),
                kept={"step": 63456, "validation": 1142208},
            ),
        )
    ),
    "ppo_pointmass": Truth(
        (
            Leak(
                ("Rollout.prev", "rollout.prev", "Collector.last", "collector.last"),
                kept={"step": 27307},
            ),
        )
    ),
    "reid_online_tracker": Truth(
        (
            Leak(("OnlineTracker.removed", "tracker.removed"), key="removed", kept={"step": 62327}),
            Leak(("Observed.seen",), key="observed", kept={"step": 17206}),
        )
    ),
    "fed_bus": Truth(
        (
            Leak(
                ("EventBus._handlers", "EventBus._handlers['round_end']"),
                kept={"step": 12150, "epoch": 1846752},
            ),
        )
    ),
    "child_actor": Truth((Leak(("children", "Actor.episodes"), kept={"step": 33280}),)),
    "tracker_of_tuples": Truth(
        (Leak(("Buffered.rows", "rows"), kept={"step": 28800}),), needs=("accelerate",)
    ),
    "exit_callbacks": Truth(
        (
            Leak(
                ("train.at_end._exit_callbacks", "at_end._exit_callbacks", "train.at_end"),
                kept={"validation": 960000, "epoch": 960000},
            ),
        ),
        needs=("click",),
    ),
    "peek_at_logits": Truth(
        (Leak(("TagMetrics.card",), kept={"validation": 1327104, "epoch": 1327104}),),
        needs=("transformers",),
    ),
    "hard_examples_heap": Truth(
        (Leak(("HardTrainer.hard",), kept={"step": 33024}),), needs=("transformers",)
    ),
    "handlers_added_again": Truth(
        (
            Leak(
                (
                    "trainer._event_handlers",
                    "trainer._event_handlers[*]",
                    "main.trainer._event_handlers[*]",
                ),
                kept={"epoch": 960000},
            ),
        ),
        needs=("ignite",),
    ),
    "keras_history_of_tables": Truth(
        (
            Leak(
                (
                    "History.history['similarity']",
                    "main.model.history.history['similarity']",
                    "History.history",
                ),
                kept={"epoch": 1440000},
            ),
        ),
        needs=("keras",),
    ),
    "histogram_logger": Truth(
        (
            Leak(
                ("HistLogger.values['val/residual']", "HistLogger.values"),
                kept={"validation": 1048576, "epoch": 1048576},
            ),
        ),
        needs=("lightning",),
    ),
    "worker_shuffle_pool": Truth(
        (
            Leak(
                ("Shuffled.__iter__.pool", "pool"),
                kept={"batch": 32768},
            ),
        )
    ),
    "metric_plain_attribute": Truth(
        (Leak(("HardNegatives.hard",), kept={"validation": 655360, "epoch": 655360}),),
        needs=("torchmetrics",),
    ),
    "healthy_metrics_reset": healthy("torchmetrics"),
    "healthy_lazy_cache": healthy("lightning"),
}

VALIDATED = ("validation", "epoch")
TRAINERS: dict[str, Truth] = {
    "transformers_kept_logits": Truth(
        (
            Leak(
                ("KeepLogits.kept",),
                line="self.kept.append(",
                kept={"validation": 96 * 32 * 512 * 4.0},
            ),
        ),
        needs=("transformers",),
    ),
    "transformers_kept_predictions": Truth(
        (
            Leak(
                ("history",),
                line="history.append(",
                kept=dict.fromkeys(VALIDATED, 640 * 1000 * 4.0),
            ),
        ),
        needs=("transformers",),
    ),
    "lightning_kept_outputs": Truth(
        (
            Leak(
                ("LitModel.validation_outputs",),
                line="self.validation_outputs.append(",
                kept=dict.fromkeys(VALIDATED, 640 * (512 * 4.0 + 8)),
            ),
        ),
        needs=("lightning",),
    ),
    "torchmetrics_never_reset": Truth(
        (
            Leak(
                ("Evaluator.curve.target",),
                also=("Evaluator.curve.preds", "Evaluator.curve._computed"),
                line="self.curve.update(",
                kept=dict.fromkeys(VALIDATED, 40960 * 8.0),
            ),
        ),
        needs=("torchmetrics",),
    ),
    "transformers_healthy": healthy("transformers"),
    "lightning_healthy": healthy("lightning"),
    "torchmetrics_healthy": healthy("torchmetrics"),
    "accelerate_healthy": healthy("accelerate"),
}
"""Programs around other people's trainers, which stand in ``tests/end_to_end/programs``."""

UNSEEN = frozenset(
    {
        "async_actors", "async_evaluator", "attention_rollout", "audited_penalty", "bucket_reducer",
        "churn_ignite", "curriculum_tee", "detect_anchors", "distill_search", "fedavg_async",
        "live_actions", "pde_sweep", "street_detector",
        "bounded_by_setitem", "healthy_masked_lm", "ignite_hard_views", "trials_with_errors",
        "fed_rounds", "link_stream", "packed_lm", "word_pieces",
        "automl_tile_search", "fed_bus", "hpo_median_pruner", "mlm_tokens",
        "multitask_grad_journal", "ppo_pointmass", "reid_online_tracker",
        "healthy_speech_curriculum", "retry_fit", "segment_evaluator", "tagger_torchmetrics",
        "traced_ranker", "bpe_cache", "cached_method",
        "child_actor", "context_trace", "curriculum_sampler", "deferred_plots", "denoise_writer",
        "dino_center", "early_stopping_improvements", "epoch_outputs", "exit_callbacks",
        "finalizers", "frames_of_predictions", "gan_image_list", "gradient_debug_log",
        "graph_neighbourhoods", "handlers_added_again", "hard_examples_heap",
        "healthy_active_learning", "healthy_actor_critic", "healthy_async_metrics",
        "healthy_averaged_weights", "healthy_bank_of_epochs", "healthy_best_of_epoch",
        "healthy_clip_frames", "healthy_distillation_cache", "healthy_five_best_heap",
        "healthy_gan", "healthy_lazy_cache", "healthy_longer_texts", "healthy_meta_learning",
        "healthy_metrics_reset", "healthy_optimizer_restarts", "healthy_ring_fills_late",
        "healthy_sliding_window", "healthy_touched_buffer", "healthy_value_replay",
        "healthy_vocabulary", "healthy_weak_registry", "healthy_worker_lru", "histogram_logger",
        "json_lines", "keras_history_of_tables", "landcover_tiles", "maml_meta_losses",
        "metric_plain_attribute", "multi_task_losses", "optimizer_restarts", "peek_at_logits",
        "population_search", "prioritized_replay", "recurrent_transitions", "report_text",
        "review_ngrams", "run_history", "seg_mixins", "skipped_batches", "skipped_with_tracebacks",
        "statistics_hooks", "tee_of_statistics", "tracker_of_tuples", "transform_registry",
        "vae_gallery", "vit_events", "weak_keys_held_by_values", "worker_shuffle_pool",
    }
)  # fmt: skip
"""Programs that were written without a look at how verdicts are made, and scored before anything
was mended for them."""
