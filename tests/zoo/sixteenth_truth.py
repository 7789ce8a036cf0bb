"""What is true of the sixteenth set: programs written without a look at how verdicts are made.

Bytes were counted from shapes, or measured of the objects that are kept. Where a program counts
neither steps nor epochs, what is kept is known for each of its jobs: what that is in a minute
depends on its pace.
"""

from __future__ import annotations

from truth import Leak, Truth, healthy

SIXTEENTH: dict[str, Truth] = {
    "attention_probe": Truth(
        tuple(
            Leak(
                ("ProbedAttention.maps", f"main.model.blocks[{block}].attention.maps",
                 f"model.blocks[{block}].attention.maps",
                 f"CharModel.blocks[{block}].attention.maps"),
                kept={"step": 131700},
            )
            for block in range(2)
        )
    ),
    "background_tasks": Truth(
        (
            Leak(
                ("Application.background", "main.app.background", "app.background"),
                kept={"request": 25700},
            ),
        )
    ),
    "bad_batch_errors": Truth(
        (
            Leak(
                ("RobustTrainer.skipped", "main.trainer.skipped", "trainer.skipped",
                 "RobustTrainer.skipped[*][1]"),
                kept={"step": 148500},
            ),
        )
    ),
    "cartpole_recorder": Truth(
        (
            Leak(
                ("ClipRecorder.clips", "main.recorder.clips", "recorder.clips"),
                kept={"step": 49700, "episode": 49700},
            ),
        )
    ),
    "clip_workers": Truth(
        (
            Leak(
                ("ClipStream.decoded", "main.stream.decoded", "stream.decoded"),
                also=("children",),
                kept={"batch": 443700, "step": 443700},
            ),
        )
    ),
    "contrastive_keys": Truth(
        (
            Leak(
                ("KeyQueue.keys", "main.queue.keys", "pretrain.queue.keys", "queue.keys"),
                kept={"step": 32900, "epoch": 1052000},
            ),
        )
    ),
    "daily_groups": Truth(
        (
            Leak(
                ("SalesBook.by_day", "main.book.by_day", "book.by_day"),
                kept={"day": 202700},
            ),
        ),
        needs=("pandas",),
    ),
    "distill_masks": Truth(
        (
            Leak(
                ("Distiller.teacher.trunk._forward_hooks", "teacher.trunk._forward_hooks",
                 "main.teacher.trunk._forward_hooks", "Teacher.trunk._forward_hooks",
                 "main.distiller.teacher.trunk._forward_hooks",
                 "distiller.teacher.trunk._forward_hooks"),
                kept={"step": 66300, "epoch": 3978000},
            ),
        )
    ),
    "dqn_frames": Truth(
        (
            Leak(
                ("Agent.traces", "main.agent.traces", "agent.traces"),
                kept={"step": 3750, "episode": 56200},
            ),
        )
    ),
    "gradient_monitor": Truth(
        (
            Leak(
                ("GradientMonitor.norms", "main.monitor.norms", "monitor.norms"),
                also=("unexplained", "native"),  # what its tensors take in native code
                kept={"step": 10200},
            ),
        )
    ),
    "hyper_study": Truth(
        (
            Leak(
                ("Study.trials", "study.trials", "Trial.artefacts", "trial.artefacts"),
                kept={"validation": 1212000, "trial": 1212000, "step": 20200},
            ),
        )
    ),
    "influence_scores": Truth(
        (
            Leak(
                ("InfluenceEstimator.pullbacks", "main.estimator.pullbacks",
                 "estimator.pullbacks"),
                kept={"chunk": 139300},
            ),
        )
    ),
    "job_loggers": Truth(
        (
            Leak(
                ("logging.Logger.manager.loggerDict", "logging.root.manager.loggerDict",
                 "Logger.manager.loggerDict", "loggers", "log-handlers", "logging._handlers",
                 "logging._handlerList"),
                kept={"job": 37330},
            ),
        )
    ),
    "lazy_users": Truth(
        (
            Leak(
                ("main.embedding.rows", "main.embedding.rows._keys", "embedding.rows",
                 "embedding.rows._keys", "LazyEmbedding.rows", "LazyEmbedding.rows._keys",
                 "main.optimizer.param_groups", "optimizer.param_groups", "SGD.param_groups"),
                kept={"step": 112600},
            ),
        )
    ),
    "lbfgs_curve": Truth((Leak(("main.iterates", "iterates"), kept={"step": 89000}),)),
    "log_slices": Truth(
        (
            Leak(
                ("ErrorIndex.lines", "main.index.lines", "index.lines"),
                kept={"chunk": 262500},
            ),
        )
    ),
    "mcts_player": Truth(
        (
            Leak(
                ("MctsPlayer.root", "main.player.root", "player.root", "Node.parent"),
                kept={"turn": 134000},
            ),
        )
    ),
    "metric_labels": Truth(
        (
            Leak(
                ("Histogram.children", "LATENCY.children"),
                kept={"request": 1650},
            ),
        )
    ),
    "multitask_running": Truth(
        (
            Leak(
                ("MultiTaskTrainer.running['smooth']", "main.trainer.running['smooth']",
                 "trainer.running['smooth']", "MultiTaskTrainer.running",
                 "main.trainer.running", "trainer.running"),
                kept={"step": 547000},
            ),
        )
    ),
    "note_editor": Truth(
        (
            Leak(
                ("Document.undo_stack", "main.document.undo_stack", "document.undo_stack"),
                kept={"action": 35900},
            ),
        )
    ),
    "outbox_retry": Truth(
        (
            Leak(
                ("Outbox.attempts", "main.outbox.attempts", "outbox.attempts"),
                kept={"flush": 101000},
            ),
        )
    ),
    "price_bus": Truth(
        (
            Leak(
                ("EventBus.listeners", "EventBus.listeners[*]", "Desk.bus.listeners",
                 "Desk.bus.listeners[*]", "main.desk.bus.listeners",
                 "main.desk.bus.listeners[*]", "desk.bus.listeners"),
                kept={"view": 42780},
            ),
        )
    ),
    "relay_two": Truth(
        (
            Leak(
                ("Room.transcript", "Relay.rooms[*].transcript", "Relay.rooms",
                 "main.relay.rooms[*].transcript", "relay.rooms[*].transcript"),
                key="transcript",
                kept={"message": 1570},
            ),
            Leak(
                ("Relay.seen", "main.relay.seen", "relay.seen"),
                key="seen",
                kept={"message": 130},
            ),
        )
    ),
    "reparam_scale": Truth(
        (
            Leak(
                ("main.model.hidden.parametrizations.weight",
                 "model.hidden.parametrizations.weight", "Net.hidden.parametrizations.weight",
                 "main.model.hidden.parametrizations", "model.hidden.parametrizations",
                 "ParametrizationList"),
                kept={"step": 30250},
            ),
        )
    ),
    "report_filters": Truth(
        (Leak(("run_query",), kept={"request": 49000}),), needs=("fastapi", "httpx")
    ),
    "resource_watch": Truth(
        (
            Leak(
                ("ResourceTracker.watches", "main.tracker.watches", "tracker.watches"),
                kept={"document": 20130},
            ),
        )
    ),
    "result_cursors": Truth(
        (
            Leak(
                ("CursorStore.cursors", "main.store.cursors", "store.cursors"),
                kept={"query": 61500},
            ),
        )
    ),
    "review_normaliser": Truth(
        (
            Leak(
                ("Normaliser.clean", "ReviewStream.normaliser.clean", "normaliser.clean"),
                kept={"step": 119000},
            ),
        )
    ),
    "scene_patches": Truth(
        (
            Leak(
                ("PatchCollector.patches", "main.collector.patches", "collector.patches"),
                kept={"scene": 524300},
            ),
        )
    ),
    "schema_dispatch": Truth(
        (
            Leak(
                ("to_row.registry", "to_row", "to_row.dispatch", "to_row.register"),
                kept={"file": 45900},
            ),
        )
    ),
    "segment_epochs": Truth(
        (
            Leak(
                ("Evaluator.worst", "main.evaluator.worst", "evaluator.worst"),
                kept={"step": 5430, "epoch": 228000, "validation": 228000},
            ),
        )
    ),
    "shapes_augment": Truth(
        (
            Leak(
                ("RotatedShapes.cache", "main.data.cache", "data.cache"),
                kept={"step": 312000},
            ),
        ),
        needs=("PIL",),
    ),
    "stream_inflate": Truth(
        (
            Leak(
                ("StreamTable.decoders", "main.table.decoders", "table.decoders", "native_held"),
                kept={"connection": 40500},
            ),
        )
    ),
    "stream_keyword": Truth(
        (
            Leak(
                ("StreamScorer.state", "StreamScorer.state[0]", "StreamScorer.state[1]",
                 "main.scorer.state", "main.scorer.state[0]", "main.scorer.state[1]",
                 "scorer.state"),
                kept={"forward pass": 584700},
            ),
        )
    ),
    "suspect_links": Truth(
        (
            Leak(
                ("ShingleIndex.postings", "main.index.postings", "index.postings"),
                kept={"document": 70850},
            ),
        )
    ),
    "tagger_two": Truth(
        (
            Leak(
                ("WeightLogger.pending", "main.logger.pending", "logger.pending"),
                key="weights",
                kept={"step": 79500},
            ),
            Leak(
                ("PassRunner.programs", "main.runner.programs", "runner.programs"),
                key="programs",
            ),
        )
    ),
    "thumbnail_futures": Truth(
        (
            Leak(
                ("ThumbnailService.futures", "main.service.futures", "service.futures"),
                kept={"request": 29300},
            ),
        ),
        needs=("PIL",),
    ),
    "token_expiry": Truth(
        (
            Leak(
                ("TokenCache.entries", "Service.tokens.entries", "main.service.tokens.entries",
                 "service.tokens.entries"),
                kept={"tick": 40440},
            ),
        )
    ),
    "word_pipeline": Truth(
        (
            Leak(
                ("stems",),
                also=("children",),
                kept={"task": 118800},
            ),
        )
    ),
    "ws_gateway": Truth(
        (
            Leak(
                ("Gateway.sessions", "main.gateway.sessions", "gateway.sessions"),
                kept={"connection": 12220},
            ),
        )
    ),
    "healthy_alignment_memo": healthy(),
    "healthy_backlog_burst": healthy(),
    "healthy_batch_context": healthy(),
    "healthy_board_history": healthy(),
    "healthy_buffer_pool": healthy(),
    "healthy_census_vocabulary": healthy(),
    "healthy_curriculum_length": healthy(),
    "healthy_ema_rotation": healthy(),
    "healthy_epoch_auc": healthy(),
    "healthy_fft_mosaic": healthy(),
    "healthy_finder_then_train": healthy(),
    "healthy_gan_image_pool": healthy(),
    "healthy_geocode_lru": healthy("cachetools"),
    "healthy_growing_batches": healthy(),
    "healthy_index_rebuild": healthy(),
    "healthy_late_buckets": healthy(),
    "healthy_pretrain_cached": healthy(),
    "healthy_random_recordings": healthy(),
    "healthy_replaced_renderers": healthy(),
    "healthy_retrieval_eval": healthy(),
    "healthy_sac_replay": healthy(),
    "healthy_session_ttl": healthy(),
    "healthy_telemetry_writer": healthy(),
    "healthy_two_caches": healthy(),
}  # fmt: skip
