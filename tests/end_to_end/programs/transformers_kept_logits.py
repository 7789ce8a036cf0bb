"""Fine-tunes a small GPT-2; a callback keeps the logits of every evaluation."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

VOCABULARY, LENGTH = 512, 32


class Sentences(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class KeepLogits(TrainerCallback):
    """Prints how sure the model is after each evaluation."""

    def __init__(self):
        self.kept = []

    def preprocess(self, logits, labels):
        self.kept.append(logits.detach().cpu())
        return logits.argmax(dim=-1)

    def on_evaluate(self, args, state, control, **kwargs):
        print("sureness", float(torch.softmax(self.kept[-1], -1).max(-1).values.mean()))


def compute_metrics(prediction):
    tokens, labels = prediction
    return {"accuracy": float((tokens[:, :-1] == labels[:, 1:]).mean())}


def main():
    torch.set_num_threads(1)
    set_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=64,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    keep = KeepLogits()
    with tempfile.TemporaryDirectory() as output:
        trainer = Trainer(
            model=GPT2LMHeadModel(config),
            args=TrainingArguments(
                output_dir=output,
                num_train_epochs=4,
                per_device_train_batch_size=8,
                eval_strategy="steps",
                eval_steps=20,
                logging_steps=20,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=Sentences(320, seed=1),
            eval_dataset=Sentences(96, seed=2),
            compute_metrics=compute_metrics,
            preprocess_logits_for_metrics=keep.preprocess,
            callbacks=[keep],
        )
        trainer.train()
        print("steps", trainer.state.global_step)


if __name__ == "__main__":
    main()
