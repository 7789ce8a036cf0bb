"""What is true of the tenth set: programs written without a look at how verdicts are made.

Bytes were counted from shapes, and held against the C heap and the resident memory of runs of two
lengths without leakscope. No program marks its line: what feeds a leak is named here.
"""

from __future__ import annotations

from truth import Leak, Truth, healthy

TENTH: dict[str, Truth] = {
    "streaming_recogniser": Truth(
        (
            Leak(
                ("Recogniser.hidden", "recogniser.hidden", "main.recogniser.hidden",
                 "deep_graph"),  # whose title has the name
                line="self.hidden = self.cell(",
                kept={"step": 338000},
            ),
        )
    ),
    "inflight_requests": Truth(
        (
            Leak(
                ("InFlight.requests", "app.state.inflight.requests", "inflight.requests",
                 "build.app.state.inflight.requests"),
                line='self.requests[number] = {"clip": clip',
                kept={"minute": 69340000},
            ),
        ),
        needs=("fastapi", "uvicorn", "httpx"),
    ),
    "adapter_trials": Truth(
        tuple(
            Leak(
                (f"Search.model.base_model.model.mix.{name}",
                 f"Search.model.base_model.model.mix.{name}._modules",
                 f"main.search.model.base_model.model.mix.{name}",
                 f"main.search.model.base_model.model.mix.{name}._modules",
                 f"Base.mix.{name}", f"Base.mix.{name}._modules",
                 f"LoraLayer.{name}", f"Linear.{name}"),
                key=name,
                also=("Search.model", "main.search.model", "Base.mix"),
                line="self.model.add_adapter(name, config)",
                kept={"step": size},
            )
            for name, size in (("lora_B", 17300), ("lora_A", 9100))
        ),
        needs=("peft",),
    ),
    "offloaded_activations": Truth(
        (
            Leak(
                ("Offload.stash",),
                line="Offload.stash[ctx.ticket] = x.half()",
                kept={"validation": 1572864, "epoch": 1572864, "step": 65536},
            ),
        )
    ),
    "tree_planner": Truth(
        (
            Leak(
                ("Search.root", "main.search.root", "search.root", "Node.parent",
                 "Search.root.parent", "main.search.root.parent"),
                also=("Node.children", "Search.root.parent.children"),
                line=".children[move]",
                kept={"step": 118500},
            ),
        )
    ),
    "partitioned_logs": Truth(
        (
            Leak(
                ("PartitionedLog.shards", "dataset.shards"),
                line="self.shards[key] = {name: file[name]",
                kept={"epoch": 802816, "pass": 401408, "step": 25088, "batch": 25088},
            ),
        )
    ),
    "rotation_grids": Truth(
        (
            Leak(
                ("sampling_grid",),
                line="grid(warp",
                kept={"step": 147500, "epoch": 4720000},
            ),
        )
    ),
    "frozen_generations": Truth(
        (
            Leak(
                ("garbage", "collector_frozen", "collector_off"),
                also=("allocator_slack",),  # nodes between freed blocks keep 2 MB a step
                line="gc.freeze()",
                kept={"step": 159000},
            ),
        )
    ),
    "native_frames": Truth(
        (
            Leak(
                ("native_held", "unexplained"),  # its title names the module of the C call
                line="address = libc.malloc(FRAME)",
                kept={"step": 57600},
            ),
        )
    ),
    "traced_candidates": Truth(
        (
            Leak(
                ("_loader.eval_cache", "_EvalCacheLoader.eval_cache",
                 "torch.fx.graph_module._loader.eval_cache", "graph_module._loader.eval_cache",
                 "registry"),  # more and more source texts of traced graphs
                also=("linecache.cache",),
                line="fx.",
                kept={"step": 115500},
            ),
        )
    ),
    "telemetry_packets": Truth(
        (
            Leak(
                ("PacketParser.buffer", "main.parser.buffer", "parser.buffer"),
                line="self.buffer += piece",
                kept={"step": 61453},
            ),
        )
    ),
    "arrow_predictions": Truth(
        (
            Leak(
                ("AuditTrail.batches", "main.trail.batches", "trail.batches"),
                line="self.batches.append(",
                kept={"validation": 1201000, "epoch": 1201000, "step": 1201000 / 24},
            ),
        ),
        needs=("pyarrow",),
    ),
    "sample_gradients": Truth(
        (
            Leak(
                ("InfluenceTable", "main.table", "table"),
                line="self[key] = Influence(norm,",
                kept={"step": 146400 / 8},
            ),
        )
    ),
    "ddim_frames": Truth(
        (
            Leak(
                ("DdimSampler.frames",),
                line="self.frames.append(torch.stack([x, clean]))",
                kept={"epoch": 504000, "validation": 504000, "step": 50400},
            ),
        )
    ),
    "momentum_keys": Truth(
        (
            Leak(
                ("MomentumContrast.queue", "KeyQueue", "main.learner.queue", "learner.queue"),
                line="self.append(keys)",
                kept={"step": 66100},
            ),
        )
    ),
    "scratch_maps": Truth(
        (
            Leak(
                ("ScratchPool.busy", "main.pool.busy", "pool.busy"),
                line="self.busy.append(scratch)",
                kept={"step": 88474},
            ),
        )
    ),
    "feature_store": Truth(
        (
            Leak(
                ("native_held", "FeatureStore.db", "main.store.db", "store.db",
                 "unexplained"),  # its title names the library
                line="self.db.executemany(",
                kept={"step": 74100},
            ),
        )
    ),
    "gradient_penalty": Truth(
        (
            Leak(
                ("Stem.scale.grad", "Classifier.stem.scale.grad", "stem.scale.grad",
                 "model.stem.scale.grad", "FlatMinimum.model.stem.scale.grad",
                 "trainer.model.stem.scale.grad", "main.trainer.model.stem.scale.grad",
                 "Stem.scale", "Classifier.stem.scale", "FlatMinimum.model.stem.scale",
                 "main.trainer.model.stem.scale"),
                line=".backward(",
                kept={"step": 64900},
            ),
        )
    ),
    "unacknowledged": Truth(
        (
            Leak(
                ("Gateway.waiting", "serve.gateway.waiting", "gateway.waiting"),
                line="self.waiting[ticket] = answer",
                kept={"minute": 43500000},
            ),
        )
    ),
    "keyed_replay": Truth(
        (
            Leak(
                ("EpisodicReplay.episodes", "main.replay.episodes", "replay.episodes"),
                line="self.episodes[key] = episode",
                kept={"step": 12550},
            ),
        )
    ),
    "healthy_byte_budget": healthy(),
    "healthy_nstep_ring": healthy(),
    "healthy_growing_epochs": healthy(),
    "healthy_picture_pool": healthy(),
    "healthy_resolution_stages": healthy(),
    "healthy_token_pipeline": healthy(),
    "healthy_error_tables": healthy("pandas"),
    "healthy_rollback_ring": healthy(),
    "healthy_molecule_sizes": healthy(),
    "healthy_thread_buffers": healthy(),
}  # fmt: skip
