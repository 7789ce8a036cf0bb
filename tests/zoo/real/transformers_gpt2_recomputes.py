"""The Hugging Face trainer with gradient checkpointing, accumulation, evaluation inside epochs."""

import tempfile

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    set_seed,
)


class Text(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        self.tokens = torch.randint(
            1, 512, (count, 64), generator=torch.Generator().manual_seed(seed)
        )

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main():
    torch.set_num_threads(1)
    set_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=512,
            n_positions=64,
            n_embd=96,
            n_layer=3,
            n_head=3,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    with tempfile.TemporaryDirectory() as output:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=output,
                num_train_epochs=5,
                per_device_train_batch_size=4,
                gradient_accumulation_steps=4,
                gradient_checkpointing=True,
                eval_strategy="steps",
                eval_steps=6,
                prediction_loss_only=True,
                save_steps=12,
                save_total_limit=1,
                logging_steps=1,
                lr_scheduler_type="cosine",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=Text(192, seed=1),
            eval_dataset=Text(64, seed=2),
        )
        trainer.train()
        print("steps", trainer.state.global_step, len(trainer.state.log_history))


if __name__ == "__main__":
    main()
