"""What is true of the thirteenth set: programs written without a look at how verdicts are made.

Bytes were counted from shapes, or from the objects that a run without leakscope held. No program
marks its line: what feeds a leak is named here. Services keep a pace, so that what they keep in a
minute is known.
"""

from __future__ import annotations

from truth import Leak, Truth, healthy

THIRTEENTH: dict[str, Truth] = {
    "copy_paste_bank": Truth(
        (
            Leak(
                ("CopyPaste.bank", "main.augment.bank", "augment.bank",
                 "CopyPaste.bank[*]", "main.augment.bank[*]", "CopyPaste.bank[1]"),
                line="self.bank[kind].append(cutout)",
                kept={"step": 251100, "epoch": 3767000},
            ),
        )
    ),
    "ctc_error_chain": Truth(
        (
            Leak(
                ("Trainer.last_error", "main.trainer.last_error", "trainer.last_error"),
                line="self.last_error = error",
                kept={"step": 29900},
            ),
        )
    ),
    "pointer_tsp_baseline": Truth(
        (
            Leak(
                ("Baseline.average", "main.critic.average", "critic.average"),
                line="self.average = self.decay * self.average",
                kept={"step": 50050},
            ),
        )
    ),
    "rope_base_anneal": Truth(
        (
            Leak(
                ("rotary_tables",),
                line="tables = rotary_tables(length, base)",
                kept={"step": 74500},
            ),
        )
    ),
    "guided_sampling_hooks": Truth(
        (
            Leak(
                ("main.model.middle._forward_hooks", "Denoiser.middle._forward_hooks",
                 "model.middle._forward_hooks"),
                line="return self.model.middle.register_forward_hook(pull)",
                kept={"validation": 852000, "epoch": 852000, "step": 60880},
            ),
        )
    ),
    "transformer_xl_mems": Truth(
        (
            Leak(
                ("Recurrent.mems", "main.model.mems", "model.mems", "Recurrent.mems[*]"),
                line="self.mems[number] = torch.cat(",
                kept={"step": 184320},
            ),
        )
    ),
    "plasticity_resets": Truth(
        (
            Leak(
                ("AdamW.state", "main.optimizer.state", "optimizer.state",
                 "Plasticity.optimizer.state"),
                line="optimizer.step()",
                kept={"step": 22500},
            ),
        )
    ),
    "reloaded_loaders": Truth(
        (
            Leak(
                ("Loads.loaders", "main.trainer.datamodule.loaders"),
                line="self.loaders.append(loader)",
                kept={"epoch": 712000, "validation": 712000, "step": 14240},
            ),
        ),
        needs=("lightning",),
    ),
    "stage_callbacks": Truth(
        (
            Leak(
                ("CallbackHandler.callbacks", "main.trainer.callback_handler.callbacks",
                 "trainer.callback_handler.callbacks",
                 "CurriculumTrainer.callback_handler.callbacks"),
                line="self.trainer.add_callback(stage)",
                kept={"epoch": 922500, "step": 30750},
            ),
        ),
        needs=("transformers",),
    ),
    "knn_monitor_threads": Truth(
        (
            Leak(
                ("threads", "threading._active", "Monitor", "Monitor.bank", "Monitor.run.self"),
                also=("unexplained",),  # what libraries keep for each thread
                line="monitor = Monitor(",
                kept={"validation": 110000, "epoch": 330000, "step": 27500},
            ),
        )
    ),
    "shutdown_callbacks": Truth(
        (
            Leak(
                ("Gateway.closing._callbacks", "Gateway.closing", "main.gateway.closing",
                 "main.gateway.closing._callbacks", "gateway.closing",
                 "gateway.closing._callbacks"),
                line="self.closing.add_done_callback(",
                kept={"minute": 120200000},
            ),
        )
    ),
    "log_shipper": Truth(
        (
            Leak(
                ("Shipper.streams", "main.shipper.streams", "shipper.streams", "native_held",
                 "unexplained"),
                line="found = self.streams[name] = zlib.compressobj(",
                kept={"minute": 84000000},
            ),
        )
    ),
    "pii_scrubber": Truth(
        (
            Leak(
                ("Scrubber._patterns", "main.scrubber._patterns", "scrubber._patterns"),
                line="self._patterns[key] = ",
                kept={"minute": 35100000},
            ),
        )
    ),
    "mmap_rollouts": Truth(
        (
            Leak(
                ("Arena.blocks", "main.arena.blocks", "arena.blocks", "native_held"),
                line="self.blocks[number] = mmap.mmap(",
                kept={"step": 49152},
            ),
        )
    ),
    "webhook_contexts": Truth(
        (
            Leak(
                ("Client.contexts", "main.client.contexts", "client.contexts", "native_held",
                 "unexplained"),
                line="found = ssl.create_default_context(",
                kept={"minute": 275000000},
            ),
        ),
        needs=("certifi",),
    ),
    "multi_exit_distill": Truth(
        (
            Leak(
                ("FeatureTap.outputs['teacher']", "main.seen.outputs['teacher']",
                 "seen.outputs['teacher']", "FeatureTap.outputs", "main.seen.outputs",
                 "FeatureTap.outputs[*]"),
                key="features",
                line="self.outputs[name].append(output)",
                kept={"step": 295300},
            ),
            Leak(
                ("RunLog.rows", "main.log.rows", "log.rows"),
                key="rows",
                line="self.rows.append(",
                kept={"step": 21500},
            ),
        )
    ),
    "rounded_scales": Truth(
        (
            Leak(
                ("autograd_loop", "native_held"),
                line="weight.grad_fn.register_hook(self.watch(weight))",
                kept={"step": 57500},
            ),
        )
    ),
    "late_sharpness_probe": Truth(
        (
            Leak(
                ("SharpnessAware.restore", "main.aware.restore", "aware.restore"),
                line="self.restore[self.count, name] = ",
                kept={"step": 91000},
            ),
        )
    ),
    "soup_checkpoints": Truth(
        (
            Leak(
                ("Soup.held", "main.soup.held", "soup.held"),
                line="self.held.append((error, stream))",
                kept={"epoch": 302000, "validation": 302000, "step": 33560},
            ),
        )
    ),
    "neuroevolution_archive": Truth(
        (
            Leak(
                ("novelty.archive",),
                line="archive.append(described)",
                kept={"step": 92500},
            ),
        )
    ),
    "annotation_undo": Truth(
        (
            Leak(
                ("History.undo", "main.history.undo", "history.undo"),
                line="self.undo.append(action)",
                kept={"minute": 49300000, "step": 1095000},
            ),
        )
    ),
    "episode_task_types": Truth(
        (
            Leak(
                ("Task.registry",),
                line="Task.registry[cls.__name__] = cls",
                kept={"step": 81500},
            ),
        )
    ),
    "rpc_featurizer": Truth(
        (
            Leak(
                ("children", "Featurizer.known", "serve.featurizer.known", "featurizer.known"),
                line="self.known[text] = ",
                kept={"step": 252000},
            ),
        )
    ),
    "view_refs": Truth(
        (
            Leak(
                ("ViewTracker.refs", "main.tracker.refs", "tracker.refs"),
                line="self.refs.append((weakref.ref(view",
                kept={"step": 32400, "epoch": 1296000},
            ),
        )
    ),
    "healthy_pyramid_cache": healthy(),
    "healthy_hindsight_replay": healthy(),
    "healthy_mean_teacher": healthy(),
    "healthy_filterbank_lru": healthy(),
    "healthy_staged_speech": healthy(),
    "healthy_growing_ledger": healthy(),
    "healthy_token_buckets": healthy(),
    "healthy_scripted_cells": healthy(),
    "healthy_profiled_windows": healthy(),
    "healthy_prefetcher": healthy(),
    "healthy_recycled_buffers": healthy(),
    "healthy_shape_memo": healthy(),
    "healthy_epoch_collector": healthy("transformers"),
    "healthy_last_batches": healthy("lightning"),
    "healthy_weighted_sampler": healthy(),
    "healthy_expiring_jobs": healthy(),
}  # fmt: skip
