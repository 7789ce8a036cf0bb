"""Metrics that return whole curves, kept in the history of a trainer that no variable refers to.

As ``transformers_log_history``, but the trainer is made and started in one statement: all of it is
held by the library's running ``Trainer.train()`` alone.
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
        done = Trainer(
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
        ).train()
        print("steps", done.global_step)
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        numbers = [[round(1 / (i + j + 2), 4) for j in range(64)] for i in range(640)]
        kept = {"history": "EPOCHS * weigh(numbers)"}
        tell({**globals(), "numbers": numbers}, kept, {"validation": EPOCHS, "epoch": EPOCHS})


if __name__ == "__main__":
    main()
