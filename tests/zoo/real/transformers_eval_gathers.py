"""The Hugging Face trainer gathers the logits of all of an evaluation before it measures them.

After https://github.com/huggingface/transformers/issues/7767, where ``preds_host`` grew until
memory ran out. The lists have other names by now and still hold everything; the documented ways
out are ``preprocess_logits_for_metrics`` and ``batch_eval_metrics``.
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

VOCABULARY, LENGTH = 2048, 48


def texts(count, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, VOCABULARY, (count, LENGTH), generator=generator)
    return [{"input_ids": row, "labels": row} for row in tokens]


def compute_metrics(prediction):
    logits, labels = prediction
    return {"accuracy": float((logits[:, :-1].argmax(-1) == labels[:, 1:]).mean())}


def main():
    torch.set_num_threads(1)
    set_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=48,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    with tempfile.TemporaryDirectory() as output:
        trainer = Trainer(
            model=GPT2LMHeadModel(config),
            args=TrainingArguments(
                output_dir=output,
                num_train_epochs=4,
                per_device_train_batch_size=8,
                per_device_eval_batch_size=8,
                eval_strategy="epoch",
                save_strategy="no",
                logging_steps=10,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=texts(160, seed=1),
            eval_dataset=texts(256, seed=2),
            compute_metrics=compute_metrics,
        )
        trainer.train()
        print("steps", trainer.state.global_step)


if __name__ == "__main__":
    main()
