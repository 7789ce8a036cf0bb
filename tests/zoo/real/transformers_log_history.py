"""Metrics that return whole curves, which the trainer's history keeps from every evaluation.

After https://github.com/Lightning-AI/pytorch-lightning/issues/14270 in the place where the Hugging
Face trainer has it: ``TrainerState.log_history`` keeps what ``compute_metrics`` returned.
"""

import os
import tempfile

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

EPOCHS = 8


def sentences(count, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(5, 2000, (count, 16), generator=generator)
    return [{"input_ids": row, "labels": int(row[0] % 64)} for row in tokens]


def compute_metrics(prediction):
    logits, labels = prediction
    shifted = logits - logits.max(-1, keepdims=True)
    odds = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    picked = odds[np.arange(len(labels)), labels]
    return {"sureness": float(picked.mean()), "curves": odds.round(4).tolist()}


def main():
    torch.set_num_threads(1)
    set_seed(0)
    config = BertConfig(
        vocab_size=2000,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=16,
        num_labels=64,
    )
    with tempfile.TemporaryDirectory() as output:
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=TrainingArguments(
                output_dir=output,
                num_train_epochs=EPOCHS,
                per_device_train_batch_size=16,
                per_device_eval_batch_size=64,
                eval_strategy="epoch",
                save_strategy="no",
                logging_steps=10,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=sentences(480, seed=1),
            eval_dataset=sentences(640, seed=2),
            compute_metrics=compute_metrics,
        )
        trainer.train()
        print("steps", trainer.state.global_step, "entries", len(trainer.state.log_history))
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"validation": EPOCHS, "epoch": EPOCHS}
        tell(locals(), {"history": "trainer.state.log_history"}, done)


if __name__ == "__main__":
    main()
