"""The Hugging Face trainer with low-rank adapters of peft on a small frozen GPT-2."""

import tempfile

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


def texts(count, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 512, (count, 32), generator=generator)
    return [{"input_ids": row, "labels": row} for row in tokens]


def main():
    torch.set_num_threads(1)
    set_seed(0)
    config = GPT2Config(
        vocab_size=512,
        n_positions=32,
        n_embd=96,
        n_layer=3,
        n_head=3,
        bos_token_id=0,
        eos_token_id=0,
    )
    adapters = LoraConfig(r=8, target_modules=["c_attn", "c_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(GPT2LMHeadModel(config), adapters)
    with tempfile.TemporaryDirectory() as output:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=output,
                num_train_epochs=6,
                per_device_train_batch_size=16,
                eval_strategy="epoch",
                save_strategy="epoch",
                save_total_limit=1,
                logging_steps=5,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=texts(320, seed=1),
            eval_dataset=texts(96, seed=2),
        )
        trainer.train()
        print("steps", trainer.state.global_step)


if __name__ == "__main__":
    main()
