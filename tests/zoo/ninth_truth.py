"""What is true of the ninth set: programs written without a look at how verdicts are made.

Bytes were counted from shapes, and held against the C heap of runs of two lengths without
leakscope.
"""

from __future__ import annotations

from truth import Leak, Truth, healthy

NINTH: dict[str, Truth] = {
    "time_embedding_cache": Truth(
        (
            Leak(
                ("LevelEmbedding._rows", "Denoiser.level._rows", "model.level._rows",
                 "main.model.level._rows"),
                also=("allocator_slack",),  # rows between freed blocks keep the C heap large
                kept={"step": 139735},
            ),
        )
    ),
    "mask_keyed_bias": Truth(
        (
            Leak(
                ("PaddingBias.by_mask", "Encoder.bias.by_mask", "model.bias.by_mask",
                 "main.model.bias.by_mask"),
                kept={"step": 149400, "epoch": 4481997},
            ),
        )
    ),
    "reweighting_hooks": Truth(
        (
            Leak(
                (
                    "model.head.weight._backward_hooks",
                    "main.model.head.weight._backward_hooks",
                    "Classifier.head.weight._backward_hooks",
                ),
                kept={"step": 148246},
            ),
        )
    ),
    "lagrange_multiplier": Truth(
        (Leak(("Constraint.multiplier", "main.constraint.multiplier"), kept={"step": 98157}),)
    ),
    "failed_task_contexts": Truth(
        (Leak(("Analyser.errors", "serve.analyser.errors"), kept={"minute": 44063880}),)
    ),
    "dispatch_per_schema": Truth(
        (
            Leak(
                ("encode.registry", "encode.register", "encode", "singledispatch.registry",
                 "singledispatch.dispatch.registry", "encode.dispatch.registry"),
                kept={"step": 17927},
            ),
        )
    ),
    "tree_encoder_memo": Truth((Leak(("encode.known",), kept={"step": 139626}),)),
    "nested_collates": Truth(
        (
            Leak(
                ("main.loader.collate_fn", "loader.collate_fn", "DataLoader.collate_fn",
                 "with_prototypes.collate", "main.loader.collate_fn.keywords"),
                kept={"epoch": 262761, "step": 16422},
            ),
        )
    ),
    "worker_token_memo": Truth(
        (
            Leak(
                ("NoisyTexts.tokens", "dataset.tokens"),
                kept={"step": 148200, "batch": 148200, "epoch": 4742000, "pass": 4742000},
            ),
        )
    ),
    "pool_initialised_cache": Truth((Leak(("children", "SPECTRA"), kept={"step": 132400}),)),
    "saver_threads": Truth(
        (Leak(("Checkpoints.saves", "main.checkpoints.saves"), kept={"step": 101575}),)
    ),
    "waveform_clips": Truth(
        (Leak(("HardMoments.clips", "main.hard.clips"), kept={"step": 192342}),)
    ),
    "interval_bootstrap": Truth(
        (
            Leak(
                ("Intervals.report['draws']", "Intervals.report"),
                kept={"epoch": 601188, "validation": 601188},
            ),
        ),
        needs=("lightning",),
    ),
    "late_swa_states": Truth(
        (
            Leak(
                ("Averager.states", "main.averager.states"),
                kept={"epoch": 1095272, "step": 1095272 / 32},
            ),
        )
    ),
    "step_timers_in_churn": Truth(
        (Leak(("Timers.spans", "main.timers.spans"), kept={"step": 7000}),)
    ),
    "continual_heads": Truth(
        (
            Leak(
                (
                    "learner.optimizer.state", "Learner.optimizer.state",
                    "main.learner.optimizer.state", "learner.optimizer.param_groups",
                    "Learner.optimizer.param_groups", "main.learner.optimizer.param_groups",
                    "optimizer.state", "optimizer.param_groups",
                ),
                kept={"step": 79463},
            ),
        )
    ),
    "entity_tokens_added": Truth(
        (Leak(("native_held", "native", "tokenizer", "main.tokenizer"), kept={"step": 36757}),),
        needs=("tokenizers",),
    ),
    "subscribers_and_loggers": Truth(
        (
            Leak(
                ("Broker.queues", "serve.broker.queues", "Broker.queues[*]",
                 "Broker.queues[*]._queue"),
                key="queues",
                kept={"minute": 57810000},
            ),
            Leak(
                ("logging.Manager.loggerDict", "logging.root.manager.loggerDict",
                 "Manager.loggerDict", "Logger.manager.loggerDict",
                 "client.log.manager.loggerDict"),
                key="loggers",
                kept={"minute": 7260000},
            ),
        )
    ),
    "healthy_tile_lru_fills_late": healthy(),
    "healthy_offpolicy_deque": healthy(),
    "healthy_ema_and_four_best": healthy(),
    "healthy_batch_size_ramp": healthy(),
    "healthy_sequence_warmup": healthy(),
    "healthy_compiled_lengths": healthy(),
    "healthy_feature_table": healthy("pandas"),
    "healthy_memmap_scan": healthy(),
    "healthy_uneven_documents": healthy(),
    "healthy_ttl_sessions": healthy(),
}  # fmt: skip
