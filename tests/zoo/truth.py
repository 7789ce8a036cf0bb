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
    """Other names that may stand beside it: they hold the same or follow from it."""
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
    """Libraries without which it is left out."""


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
        "async_evaluator", "bpe_cache", "cached_method", "context_trace", "curriculum_sampler",
        "deferred_plots", "early_stopping_improvements", "epoch_outputs", "finalizers",
        "frames_of_predictions", "gan_image_list", "graph_neighbourhoods", "healthy_actor_critic",
        "healthy_async_metrics", "healthy_best_of_epoch", "healthy_distillation_cache",
        "healthy_gan", "healthy_meta_learning", "healthy_optimizer_restarts",
        "healthy_sliding_window", "healthy_touched_buffer", "healthy_vocabulary",
        "healthy_weak_registry", "healthy_worker_lru", "json_lines", "landcover_tiles",
        "maml_meta_losses", "multi_task_losses", "optimizer_restarts", "prioritized_replay",
        "recurrent_transitions", "report_text", "run_history", "skipped_batches",
        "statistics_hooks", "transform_registry",
    }
)  # fmt: skip
"""Programs that were written without a look at how verdicts are made, and scored before anything
was mended for them."""
