"""What is true of the twelfth set: programs written without a look at how verdicts are made.

Bytes were counted from shapes, or from the objects that a run without leakscope held. No program
marks its line: what feeds a leak is named here. Services and jobs without steps keep a pace, so
that what they keep in a minute is known.
"""

from __future__ import annotations

from truth import Leak, Truth, healthy

TWELFTH: dict[str, Truth] = {
    "speed_perturb": Truth(
        (
            Leak(
                ("Resampler._kernels",),
                line="self._kernels[ratio] = found",
                kept={"step": 60000, "epoch": 3600000},
            ),
        )
    ),
    "buffered_logger": Truth(
        (
            Leak(
                ("DashboardLogger.pending", "main.trainer.logger.pending",
                 "trainer.logger.pending", "Denoiser.logger.pending",
                 "Trainer.logger.pending", "Trainer._loggers[*].pending"),
                line='self.pending.append({"step": step, "key": key',
                kept={"validation": 232000, "epoch": 232000, "step": 232000 / 15},
            ),
        ),
        needs=("lightning",),
    ),
    "embed_service": Truth(
        (
            Leak(
                ("embed",),
                line="tokens = embed(query)",
                kept={"minute": 86400000},
            ),
        ),
        needs=("fastapi", "httpx"),
    ),
    "sqlite_threads": Truth(
        (
            Leak(
                ("Database.connections", "main.database.connections", "database.connections",
                 "native_held"),
                line="self.connections.append(found)",
                kept={"minute": 20 * 60 * 655000},
            ),
        )
    ),
    "websocket_hub": Truth(
        (
            Leak(
                ("Hub.subscriptions", "main.hub.subscriptions", "hub.subscriptions",
                 "serve.hub.subscriptions"),
                line="self.subscriptions[one.name] = one",
                kept={"minute": 14100000},
            ),
        )
    ),
    "ocr_scratch": Truth(
        (
            Leak(
                ("_scratch.pieces", "scratch._scratch.pieces", "read.mine.pieces",
                 "ocr_scratch._scratch.pieces"),
                line="mine.pieces.append(",
                kept={"minute": 142000000},
            ),
        )
    ),
    "pool_scoring": Truth(
        (
            Leak(
                ("children", "Aligner.profiles", "_state['aligner'].profiles",
                 "_state[*].profiles"),
                line="self.profiles[key] = ",
                kept={"minute": 264000000, "task": 4 * 64200},  # a chunk
            ),
        )
    ),
    "solver_transcript": Truth(
        (
            Leak(
                ("Trace.lines", "Solver.trace.lines", "main.solver.trace.lines",
                 "solver.trace.lines"),
                line="self.lines.append(",
                kept={"minute": 50000000},
            ),
        )
    ),
    "gated_experts": Truth(
        (
            Leak(
                ("HardGate.kept",),
                line="HardGate.kept[ctx.call] = mask",
                kept={"validation": 522000, "epoch": 522000, "step": 522000 / 40},
            ),
        )
    ),
    "stage_hooks": Truth(
        (
            Leak(
                ("optimizer._optimizer_step_post_hooks", "Adam._optimizer_step_post_hooks",
                 "main.optimizer._optimizer_step_post_hooks",
                 "Optimizer._optimizer_step_post_hooks"),
                line="optimizer.register_step_post_hook(update)",
                kept={"step": 7430, "epoch": 446000},
            ),
        )
    ),
    "fake_pool": Truth(
        (
            Leak(
                ("ImagePool.images", "main.pool.images", "pool.images"),
                line="self.images.append(image)",
                kept={"step": 1590000},
            ),
        )
    ),
    "checkpoint_uploads": Truth(
        (
            Leak(
                ("Uploader.failed", "main.uploader.failed", "uploader.failed"),
                line="self.failed[key] = (buffer, str(error))",
                kept={"step": 36700, "epoch": 36700 * 75},
            ),
        )
    ),
    "fed_personal_heads": Truth(
        (
            Leak(
                ("Server.personal", "main.server.personal", "server.personal"),
                line="self.personal[client_id] = head",
                kept={"step": 5720},
            ),
        )
    ),
    "forest_search": Truth(
        (
            Leak(
                ("Search.results", "main.search.results", "search.results"),
                line="self.results.append(",
                kept={"minute": 46000000},
            ),
        ),
        needs=("sklearn",),
    ),
    "route_queries": Truth(
        (
            Leak(
                tuple(
                    f"{base}.{part}"
                    for base in ("Router.graph", "main.graph", "main.router.graph", "graph",
                                 "router.graph", "Closures.graph", "Graph", "main.closures.graph")
                    for part in ("_node", "nodes")
                ),
                also=("Router.graph._adj", "main.graph._adj", "main.router.graph._adj",
                      "graph._adj", "Graph._adj", "Closures.graph._adj"),
                line="self.graph.add_node(node",
                kept={"minute": 9700000},
            ),
        ),
        needs=("networkx",),
    ),
    "trading_bus": Truth(
        (
            Leak(
                tuple(
                    f"{base}handlers{part}"
                    for base in ("Bus.", "main.bus.", "bus.", "Session.bus.")
                    for part in ("['fill']", "[*]", "")
                ),
                line=".append(filtered if filters else handler)",
                kept={"minute": 62000000},
            ),
        )
    ),
    "plugin_reload": Truth(
        (
            Leak(
                ("sys.modules", "registry"),  # more and more imported modules
                line="sys.modules[name] = module",
                kept={"minute": 40000000},
            ),
        ),
        needs=("pandas",),
    ),
    "codec_keepalive": Truth(
        (
            Leak(
                ("Codec._keepalive", "main.codec._keepalive", "codec._keepalive"),
                line="self._keepalive.append(thing)",
                kept={"minute": 196000000},
            ),
        )
    ),
    "mcts_cycles": Truth(
        (
            Leak(
                ("collector_off", "garbage"),
                line="gc.disable()",
                kept={"minute": 10600000},
            ),
        )
    ),
    "radix_prefix": Truth(
        (
            Leak(
                ("RadixCache.root", "main.cache.root", "cache.root",
                 "RadixCache.root.children", "main.cache.root.children", "cache.root.children",
                 "RadixCache.root.children[*].children",
                 # The dict of each block, which is where blocks come to lie.
                 "Block.children",
                 "main.cache.root.children[*].children"),
                line="node.children[child.tokens] = child",
                kept={"batch": 13680},  # a batch is a token
            ),
        ),
        needs=("transformers",),
    ),
    "healthy_spectrogram_lru": healthy(),
    "healthy_touched_late": healthy(),
    "healthy_growing_context": healthy("transformers"),
    "healthy_renewed_workers": healthy("PIL"),
    "healthy_mapped_shards": healthy(),
    "healthy_top_checkpoints": healthy("lightning", "torchmetrics"),
    "healthy_late_collections": healthy(),
    "healthy_flushed_rows": healthy(),
    "healthy_traced_buckets": healthy(),
    "healthy_expiring_carts": healthy("fastapi", "httpx", "cachetools"),
    "healthy_rolling_frame": healthy("pandas", "sklearn"),
    "healthy_negatives_queue": healthy(),
    "healthy_successive_halving": healthy(),
    "healthy_slot_pool": healthy(),
    "healthy_thread_blocks": healthy("PIL"),
    "healthy_control_variates": healthy(),
}  # fmt: skip
