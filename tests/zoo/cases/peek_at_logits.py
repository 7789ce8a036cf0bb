"""Fine-tune a tiny BERT for sequence tagging; keeps a few example predictions of each
evaluation for the model card.
"""

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForTokenClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

VOCAB, LABELS, LENGTH = 200, 9, 48


class Tagged(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(5, VOCAB, (n, LENGTH), generator=g)
        self.labels = (self.ids * 7 + 3) % LABELS

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {
            "input_ids": self.ids[i],
            "labels": self.labels[i],
            "attention_mask": torch.ones(LENGTH, dtype=torch.long),
        }


class TagMetrics:
    """compute_metrics with a memory for the model card."""

    def __init__(self, show=4):
        self.show = show
        self.card = []

    def __call__(self, evaluation):
        logits, labels = evaluation
        guessed = logits.argmax(-1)
        accuracy = float((guessed == labels).mean())
        # a few sentences of each evaluation, to be printed in the model card
        self.card.append({"accuracy": accuracy, "logits": logits[: self.show]})  # feeds
        return {"accuracy": accuracy}


class Printer(TrainerCallback):
    def __init__(self):
        self.last = None

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.last = metrics
        print(f"step {state.global_step} acc {metrics['eval_accuracy']:.3f}", flush=True)


def main():
    set_seed(3)
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        num_labels=LABELS,
    )
    model = BertForTokenClassification(config)
    metrics = TagMetrics()
    arguments = TrainingArguments(
        output_dir="/tmp/blind/b/out/hf_eval_peek",
        max_steps=800,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=64,
        eval_strategy="steps",
        eval_steps=40,
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        learning_rate=1e-3,
        disable_tqdm=True,
        dataloader_num_workers=0,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Tagged(2000, 0),
        eval_dataset=Tagged(768, 1),
        compute_metrics=metrics,
        callbacks=[Printer()],
    )
    trainer.train()
    best = max(metrics.card, key=lambda c: c["accuracy"])
    print("best", best["accuracy"], np.shape(best["logits"]))


if __name__ == "__main__":
    main()
