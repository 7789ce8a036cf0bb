"""Fine-tunes a small GPT-2 with a trainer of its own that keeps every loss with its graph."""

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


class CurveTrainer(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.losses = []

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
        if model.training:
            self.losses.append(loss)
        return (loss, outputs) if return_outputs else loss


def main():
    torch.set_num_threads(1)
    set_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=64,
        n_layer=4,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    with tempfile.TemporaryDirectory() as output:
        trainer = CurveTrainer(
            model=GPT2LMHeadModel(config),
            args=TrainingArguments(
                output_dir=output,
                max_steps=120,
                per_device_train_batch_size=8,
                eval_strategy="steps",
                eval_steps=20,
                logging_steps=20,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=Sentences(480, seed=1),
            eval_dataset=Sentences(96, seed=2),
        )
        trainer.train()
        mean = torch.stack(trainer.losses).mean()
        print("steps", trainer.state.global_step, "mean loss", float(mean))


if __name__ == "__main__":
    main()
