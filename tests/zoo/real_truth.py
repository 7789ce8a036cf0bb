"""What is true of the programs in ``real/``: code of others, as their packages have it.

Healthy ones run trainers, demos and tools of libraries as their documentation shows. The leaking
ones have a leak that was reported of that library, where the installed version still has it; what
an installed version has no more is noted in the program that tried it.
"""

from __future__ import annotations

from truth import VALIDATED, Leak, Truth, healthy, leak

REAL: dict[str, Truth] = {
    "accelerate_folds": leak(
        "main.accelerator._models",
        also=("main.accelerator._optimizers", "main.accelerator._dataloaders"),
        needs=("accelerate",),
    ),
    "lightning_metric_never_reset": leak(
        "main.model.train_precision.preds",
        "Classifier.train_precision.preds",
        also=("main.model.train_precision.target", "Classifier.train_precision.target"),
        needs=("lightning", "torchmetrics"),
    ),
    "lightning_predictions": Truth(
        (
            Leak(
                (
                    "main.trainer.predict_loop._predictions[*]",
                    "main.trainer.predict_loop._predictions",
                ),
                line="trainer.predict(",
                growth="within",
                kept={"batch": 4 * 3 * 128 * 128 * 4.0},
            ),
        ),
        needs=("lightning",),
    ),
    "peft_adapter_per_task": Truth(
        (
            Leak(
                ("main.base.bert.encoder.layer[0].intermediate.dense.lora_B",),
                kept=dict.fromkeys(VALIDATED, 2 * 1024 * 256 * 4.0),  # with their gradients
            ),
            Leak(
                ("main.base.bert.encoder.layer[0].intermediate.dense.lora_A",),
                kept=dict.fromkeys(VALIDATED, 2 * 512 * 256 * 4.0),
            ),
        ),
        needs=("peft", "transformers"),
    ),
    "torch_profiler_never_ends": leak("allocator_slack", "unexplained"),
    "torch_shared_files": leak("main.seen"),
    "torchmetrics_plots_kept": leak("main.figures", needs=("torchmetrics", "matplotlib")),
    "transformers_cached_method": leak(
        "transformers.models.xcodec.modeling_xcodec.XcodecPreTrainedModel._get_conv1d_layers",
        "XcodecPreTrainedModel._get_conv1d_layers",
        also=("unexplained",),
        needs=("transformers",),
    ),
    "transformers_eval_gathers": Truth(
        (
            Leak(
                (
                    "transformers.trainer.Trainer.evaluation_loop.all_preds",
                    "transformers.trainer.Trainer.evaluation_loop.all_preds.tensors",
                ),
                line="trainer.train()",
                growth="within",
                kept={"batch": 8 * 48 * 2048 * 4.0},
            ),
        ),
        needs=("transformers",),
    ),
    "transformers_hooks_added": Truth(
        (
            Leak(
                tuple(f"main.model.bert.encoder.layer[{i}]._forward_hooks" for i in range(2)),
                also=tuple(f"main.model.bert.encoder.layer[{i}]._forward_hooks" for i in range(2)),
                kept=dict.fromkeys(VALIDATED, 32 * 16 * 192 * 4.0),
            ),
        ),
        needs=("transformers",),
    ),
    "transformers_log_history": Truth(
        (Leak(("main.trainer.state.log_history",), line="trainer.train()"),),
        needs=("transformers",),
    ),
    "transformers_no_variable": Truth(
        (Leak(("transformers.trainer.Trainer.train.self.state.log_history",), line=").train()"),),
        needs=("transformers",),
    ),
    "wandb_table": leak("main.table.data", needs=("wandb",)),
    "accelerate_own_tests": healthy("accelerate"),
    "ignite_engines": healthy("ignite"),
    "lightning_averages_weights": healthy("lightning", "tensorboard"),
    "lightning_boring_demo": healthy("lightning"),
    "lightning_fabric": healthy("lightning", "torchmetrics"),
    "lightning_lstm_demo": healthy("lightning"),
    "lightning_transformer_demo": healthy("lightning"),
    "metric_learning": healthy("pytorch_metric_learning"),
    "peft_adapters": healthy("peft", "transformers"),
    "tensorboard_writer": healthy("tensorboard"),
    "torch_averages_weights": healthy(),
    "torch_compiled": healthy(),
    "torch_distributed": healthy(),
    "torch_functional": healthy(),
    "torch_many_shapes": healthy(),
    "torch_profiler_scheduled": healthy(),
    "torch_recomputes_in_bfloat16": healthy(),
    "torch_second_order": healthy(),
    "torch_workers": healthy(),
    "torchmetrics_keeps_graphs": healthy("torchmetrics"),
    "torchmetrics_reset": healthy("torchmetrics"),
    "transformers_bert_stops_early": healthy("transformers"),
    "transformers_gpt2_recomputes": healthy("transformers"),
    "transformers_metrics_by_batch": healthy("transformers"),
    "transformers_started_at_once": healthy("transformers"),
    "transformers_t5_generates": healthy("transformers"),
    "transformers_vit_averages": healthy("transformers"),
    "transformers_whisper_loop": healthy("transformers"),
    "wandb_offline": healthy("wandb"),
}
