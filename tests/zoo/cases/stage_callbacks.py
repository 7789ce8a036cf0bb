"""Fine-tunes a small DistilBERT on reviews of growing difficulty with the Hugging Face Trainer."""

import os
import random
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

EPOCHS, REVIEWS, LENGTH, BATCH, VOCABULARY = 12, 480, 32, 16, 800


class Reviews(Dataset):
    """Reviews whose words speak for or against; some words turn round the meaning of the next."""

    def __init__(self, seed):
        dice = random.Random(seed)
        self.rows, self.hardness = [], torch.zeros(REVIEWS)
        for index in range(REVIEWS):
            words = [dice.randrange(10, VOCABULARY) for _ in range(LENGTH)]
            turns = dice.randrange(0, 8)
            for place in dice.sample(range(LENGTH - 1), turns):
                words[place] = 5
            tone = sum((1 if word % 2 else -1) * (-1 if before == 5 else 1)
                       for before, word in zip(words, words[1:], strict=False))  # fmt: skip
            self.rows.append((words, int(tone > 0)))
            self.hardness[index] = turns + 1.0 / (1 + abs(tone))

    def __len__(self):
        return REVIEWS

    def __getitem__(self, index):
        words, label = self.rows[index]
        return {"input_ids": words, "labels": label, "index": index}


class Stage(TrainerCallback):
    """Watches how pairs of reviews compare during a stage: the harder should have more loss."""

    def __init__(self, hardness, share):
        self.limit = hardness.quantile(share)
        self.margin = hardness[:, None] - hardness[None, :]
        self.steps = 0

    def on_step_end(self, args, state, control, **rest):
        self.steps += 1


class Curriculum(TrainerCallback):
    """Begins a stage with every epoch."""

    def __init__(self, hardness, epochs):
        self.hardness, self.epochs = hardness, epochs
        self.trainer = None

    def on_epoch_begin(self, args, state, control, **rest):
        share = min(1.0, 0.4 + (state.epoch or 0) / self.epochs)
        stage = Stage(self.hardness, share)
        self.trainer.add_callback(stage)
        self.trainer.stage = stage


class CurriculumTrainer(Trainer):
    stage = None

    def compute_loss(self, model, inputs, return_outputs=False, **rest):
        index, labels = inputs.pop("index"), inputs.pop("labels")
        logits = model(**inputs).logits
        losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        easy = ((self.stage.margin[index] > 0).float().mean(1) <= 0.5).float()
        weights = 1.0 + 0.5 * easy * (self.stage.steps < 20)
        loss = (losses * weights).mean()
        return (loss, {"logits": logits}) if return_outputs else loss

    def log(self, logs, *rest):
        if "loss" in logs:
            print(f"step {self.state.global_step}: {logs['loss']:.3f}", flush=True)
        super().log(logs, *rest)


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    transformers.set_seed(0)
    config = DistilBertConfig(
        vocab_size=VOCABULARY, dim=96, n_layers=2, n_heads=4, hidden_dim=192,
        max_position_embeddings=LENGTH,
    )  # fmt: skip
    reviews = Reviews(0)
    curriculum = Curriculum(reviews.hardness, EPOCHS)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, learning_rate=1e-3,
            logging_steps=60, save_strategy="no", report_to=[], remove_unused_columns=False,
            use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = CurriculumTrainer(
            DistilBertForSequenceClassification(config), arguments, train_dataset=reviews,
            callbacks=[curriculum],
        )  # fmt: skip
        curriculum.trainer = trainer
        trainer.train()


if __name__ == "__main__":
    main()
