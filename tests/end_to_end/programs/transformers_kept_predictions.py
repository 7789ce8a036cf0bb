"""Fine-tunes a small BERT classifier; the metrics function keeps what it is given."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
set_seed(0)
history = []


class Reviews(Dataset):
    def __init__(self, count):
        self.tokens = torch.randint(0, 256, (count, 32))
        self.labels = torch.randint(0, 1000, (count,))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


def compute_metrics(prediction):
    history.append(prediction.predictions)
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


config = BertConfig(
    vocab_size=256,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=128,
    max_position_embeddings=32,
    num_labels=1000,
)
with tempfile.TemporaryDirectory() as output:
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir=output,
            num_train_epochs=6,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=32,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            use_cpu=True,
        ),
        train_dataset=Reviews(320),
        eval_dataset=Reviews(640),
        compute_metrics=compute_metrics,
    )
    trainer.train()
print("steps", trainer.state.global_step)
