"""A trainer that is made and started in one statement: no variable of the program refers to it."""

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
    return {"sureness": float(picked.mean())}


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


if __name__ == "__main__":
    main()
