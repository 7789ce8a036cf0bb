"""The sequence-to-sequence trainer of transformers, which generates in every evaluation."""

import tempfile

import torch
from transformers import (
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)


def pairs(count, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(2, 300, (count, 24), generator=generator)
    return [{"input_ids": row, "labels": row.flip(0)[:16]} for row in tokens]


def compute_metrics(prediction):
    generated, labels = prediction
    width = min(generated.shape[1] - 1, labels.shape[1])
    return {"hits": float((generated[:, 1 : 1 + width] == labels[:, :width]).mean())}


def main():
    torch.set_num_threads(1)
    set_seed(0)
    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=300,
            d_model=64,
            d_kv=16,
            d_ff=128,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=0,
        )
    )
    with tempfile.TemporaryDirectory() as output:
        trainer = Seq2SeqTrainer(
            model=model,
            args=Seq2SeqTrainingArguments(
                output_dir=output,
                num_train_epochs=6,
                per_device_train_batch_size=16,
                per_device_eval_batch_size=16,
                eval_strategy="epoch",
                save_strategy="no",
                predict_with_generate=True,
                generation_max_length=17,
                logging_steps=10,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=pairs(320, seed=1),
            eval_dataset=pairs(64, seed=2),
            compute_metrics=compute_metrics,
        )
        trainer.train()
        print("steps", trainer.state.global_step, trainer.evaluate()["eval_hits"])


if __name__ == "__main__":
    main()
