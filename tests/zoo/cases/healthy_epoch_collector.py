"""Pretrains a small RoBERTa with the Hugging Face Trainer; errors are listed until an epoch is over."""

import os
import random
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from torch.utils.data import Dataset
from transformers import (
    RobertaConfig,
    RobertaForMaskedLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

EPOCHS, TEXTS, LENGTH, BATCH, VOCABULARY, MASK = 7, 320, 32, 16, 600, 4


class Texts(Dataset):
    """Texts in which a word tells much of the next."""

    def __init__(self, seed, count):
        dice = random.Random(seed)
        self.rows = []
        for _ in range(count):
            word, row = dice.randrange(5, VOCABULARY), []
            for _ in range(LENGTH):
                row.append(word)
                word = 5 + (word * 7 + dice.choice([0, 1, 3])) % (VOCABULARY - 5)
            self.rows.append(row)
        self.dice = dice

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        hidden = [self.dice.random() < 0.15 for _ in row]
        return {
            "input_ids": [MASK if h else word for h, word in zip(hidden, row, strict=True)],
            "labels": [word if h else -100 for h, word in zip(hidden, row, strict=True)],
        }


class Collector(TrainerCallback):
    """Lists the errors of an epoch, and tells at its end which words were hardest."""

    def __init__(self):
        self.rows = []

    def add(self, logits, labels):
        at = labels != -100
        chances = logits[at].detach().softmax(-1)
        self.rows.append((labels[at], chances))

    def on_epoch_end(self, args, state, control, **rest):
        words = torch.cat([words for words, _ in self.rows])
        errors = torch.cat([1 - c.gather(1, w[:, None])[:, 0] for w, c in self.rows])
        total = torch.zeros(VOCABULARY).index_add(0, words, errors)
        mean = total / torch.bincount(words, minlength=VOCABULARY).clamp(min=1)
        print(f"epoch {state.epoch:.0f}: {errors.mean():.3f}, hardest {mean.argmax()}", flush=True)
        self.rows = []


class CollectingTrainer(Trainer):
    collector = None

    def compute_loss(self, model, inputs, return_outputs=False, **rest):
        out = model(**inputs)
        if model.training:
            self.collector.add(out.logits, inputs["labels"])
        return (out.loss, out) if return_outputs else out.loss


def main():
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    transformers.set_seed(0)
    config = RobertaConfig(
        vocab_size=VOCABULARY, hidden_size=80, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=160, max_position_embeddings=LENGTH + 2,
    )  # fmt: skip
    collector = Collector()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, learning_rate=1e-3,
            eval_strategy="epoch", per_device_eval_batch_size=32, prediction_loss_only=True,
            logging_strategy="no", save_strategy="no", report_to=[], use_cpu=True,
            disable_tqdm=True, dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = CollectingTrainer(
            RobertaForMaskedLM(config), arguments, train_dataset=Texts(0, TEXTS),
            eval_dataset=Texts(1, 96), callbacks=[collector],
        )  # fmt: skip
        trainer.collector = collector
        trainer.train()


if __name__ == "__main__":
    main()
