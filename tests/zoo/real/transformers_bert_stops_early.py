"""The Hugging Face trainer fine-tunes a BERT: checkpoints, the best model, early stopping."""

import tempfile

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)


def sentences(count, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(5, 2000, (count, 64), generator=generator)
    return [{"input_ids": row, "labels": int(row[0] > 1000)} for row in tokens]


def compute_metrics(prediction):
    logits, labels = prediction
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


def main():
    torch.set_num_threads(1)
    set_seed(0)
    config = BertConfig(
        vocab_size=2000,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
        max_position_embeddings=64,
    )
    with tempfile.TemporaryDirectory() as output:
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=TrainingArguments(
                output_dir=output,
                num_train_epochs=6,
                per_device_train_batch_size=16,
                eval_strategy="epoch",
                save_strategy="epoch",
                save_total_limit=2,
                load_best_model_at_end=True,
                metric_for_best_model="accuracy",
                logging_steps=5,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=sentences(480, seed=1),
            eval_dataset=sentences(160, seed=2),
            compute_metrics=compute_metrics,
            callbacks=[EarlyStoppingCallback(early_stopping_patience=8)],
        )
        trainer.train()
        print("steps", trainer.state.global_step, trainer.evaluate()["eval_accuracy"])


if __name__ == "__main__":
    main()
