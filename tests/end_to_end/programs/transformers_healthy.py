"""Fine-tunes a small GPT-2 with the Hugging Face trainer and evaluates twice an epoch."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

VOCABULARY, LENGTH = 512, 32


class Sentences(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def compute_metrics(prediction):
    logits, labels = prediction
    return {"accuracy": float((logits[:, :-1].argmax(-1) == labels[:, 1:]).mean())}


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
    with tempfile.TemporaryDirectory() as output:
        trainer = Trainer(
            model=GPT2LMHeadModel(config),
            args=TrainingArguments(
                output_dir=output,
                num_train_epochs=6,
                per_device_train_batch_size=8,
                gradient_accumulation_steps=2,
                eval_strategy="steps",
                eval_steps=10,
                logging_steps=10,
                save_strategy="epoch",
                save_total_limit=1,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=Sentences(320, seed=1),
            eval_dataset=Sentences(96, seed=2),
            compute_metrics=compute_metrics,
        )
        trainer.train()
        print("steps", trainer.state.global_step, "loss", trainer.evaluate()["eval_loss"])


if __name__ == "__main__":
    main()
