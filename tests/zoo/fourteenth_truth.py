"""What is true of the fourteenth set: programs written without a look at how verdicts are made.

Bytes were counted from shapes, or as resident memory where libraries keep them. No program marks
its line: what feeds a leak is named here. Services keep a pace, so that what they keep in a minute
is known.
"""

from __future__ import annotations

from truth import Leak, Truth, healthy

FOURTEENTH: dict[str, Truth] = {
    "speech_vtlp": Truth(
        (
            Leak(
                ("LogMel.filterbank",),
                line="mel = self.filterbank(alpha)",
                kept={"step": 41120, "epoch": 2261600},
            ),
        )
    ),
    "continual_probe": Truth(
        (
            Leak(
                ("net.blocks[2]._forward_hooks", "main.net.blocks[2]._forward_hooks",
                 "FeatureTap.features", "tap.features"),
                line="layer.register_forward_hook(self._grab)",
                kept={"epoch": 1228800, "validation": 1228800, "step": 19505},
            ),
        )
    ),
    "nas_morph": Truth(
        (
            Leak(
                ("search.optimizer.state", "Adam.state", "optimizer.state",
                 "search.optimizer.param_groups", "optimizer.param_groups"),
                line="optimizer.add_param_group(",
                kept={"epoch": 771777, "step": 13782},
            ),
        )
    ),
    "diffusion_ema": Truth(
        (
            Leak(
                ("DiffusionTrainer.smooth_val", "main.trainer.smooth_val", "trainer.smooth_val"),
                line="self.smooth_val = loss if self.smooth_val is None",
                kept={"validation": 2256960, "epoch": 2256960, "step": 30093},
            ),
        )
    ),
    "hpo_pruning": Truth(
        (Leak(("Study.trials", "study.trials", "Trial.error"), line="trial.error = exc"),)
    ),
    "distill_views": Truth(
        (
            Leak(
                ("DistillationViews.view_cache", "dataset.view_cache"),
                also=("children",),
                line="self.view_cache[key] = (crop, soft, label)",
                kept={"epoch": 1715200, "pass": 857600, "step": 214400},
            ),
        )
    ),
    "federated_lora": Truth(
        (
            Leak(
                tuple(
                    f"main.model.{way}.transformer.h[{block}].{layer}.lora_{part}"
                    for way in ("base_model_prepare_inputs_for_generation", "base_model.model")
                    for block in (0, 1)
                    for layer in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
                    for part in "AB"
                ),
                also=("main.model", "FederatedServer.model", "LoraModel.peft_config"),
                line="self.model.add_adapter(adapter, self.lora_config)",
            ),
        ),
        needs=("peft", "transformers"),
    ),
    "lit_layer_stats": Truth(
        (
            Leak(
                ("main.model.net[0]._forward_hooks", "main.model.net[2]._forward_hooks",
                 "main.model.net[4]._forward_hooks", "main.model.net[6]._forward_hooks"),
                line="module.register_forward_hook(tracker)",
            ),
        ),
        needs=("lightning",),
    ),
    "arrow_active_sampling": Truth(
        (
            Leak(
                ("ReplayIndex.by_shard", "replay.by_shard"),
                line="self.by_shard[shard_id] = table.slice(",
                kept={"step": 16750},
            ),
        ),
        needs=("pyarrow",),
    ),
    "keras_console_report": Truth(
        (
            Leak(
                ("main.console._record_buffer", "Console._record_buffer",
                 "RichWeightReport.console"),
                line="self.console.print(table)",
                kept={"step": 11258, "epoch": 450331},
            ),
        ),
        needs=("keras", "rich"),
    ),
    "tb_embedding_plots": Truth(
        (
            Leak(
                ("matplotlib._pylab_helpers.Gcf.figs", "open_figures"),
                line="fig, (left, right) = plt.subplots(1, 2",
            ),
        ),
        needs=("tensorboard", "matplotlib"),
    ),
    "chat_rollouts": Truth(
        (
            Leak(
                ("ChatEngine.sessions", "engine.sessions"),
                line="self.sessions[session_id] = DynamicCache()",
                kept={"step": 830293},
            ),
        ),
        needs=("transformers",),
    ),
    "token_stream_server": Truth(
        (
            Leak(
                ("Engine.kv_slots", "engine.kv_slots", "main.engine.kv_slots"),
                line="self.kv_slots[seq.seq_id] = present",
                kept={"minute": 67250000},
            ),
        )
    ),
    "shard_archiver": Truth(
        (
            Leak(
                ("Archiver._streams", "archiver._streams", "unexplained"),
                line="self._streams[key] = stream",
                kept={"minute": 161000000},
            ),
        )
    ),
    "defect_api": Truth(
        (
            Leak(
                ("FaultLog.groups", "app.state.faults.groups"),
                line='group = self.groups[fingerprint] = {"count": 0',
                kept={"minute": 82900000, "request": 82944},
            ),
        ),
        needs=("starlette", "uvicorn"),
    ),
    "rollout_league": Truth(
        (
            Leak(
                ("Roster._members", "roster._members", "rollout_worker.roster._members"),
                also=("children",),
                line="self._members[version] = policy.eval()",
                kept={"inference": 122904, "step": 122904},
            ),
        )
    ),
    "tile_jobs": Truth(
        (
            Leak(
                ("TileJob._watch.self", "threads", "threading._active", "TileJob.pixels"),
                line="watchdog = threading.Thread(target=self._watch",
                kept={"minute": 131000000},
            ),
        )
    ),
    "eval_service": Truth(
        (
            Leak(
                ("unexplained", "ResponseStore._db", "Evaluator.store._db"),
                line='self._db.execute("INSERT OR REPLACE INTO responses',
                kept={"minute": 57500000},
            ),
        )
    ),
    "healthy_metric_xbm": healthy(),
    "healthy_dqn_grid": healthy(),
    "healthy_gnn_sampling": healthy(),
    "healthy_federated_rounds": healthy(),
    "healthy_retrieval_metrics": healthy("torchmetrics"),
    "healthy_text_stream_replay": healthy(),
    "healthy_thumbnail_pipeline": healthy("h5py"),
    "healthy_feature_store_sgd": healthy(),
    "healthy_prefix_engine": healthy(),
    "healthy_dqn_threads": healthy(),
    "healthy_contact_sheets": healthy(),
    "healthy_kernel_search": healthy(),
}  # fmt: skip
