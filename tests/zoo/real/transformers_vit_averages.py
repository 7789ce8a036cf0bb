"""The Hugging Face trainer on a vision transformer, with a moving average of the weights."""

import tempfile

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import (
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)


class Averaging(TrainerCallback):
    """Follows the weights after each step, and measures with the average at the end of epochs."""

    def __init__(self, decay, pictures):
        self.decay = decay
        self.pictures = pictures
        self.average = None

    def on_train_begin(self, args, state, control, model=None, **rest):
        self.average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(self.decay))

    def on_step_end(self, args, state, control, model=None, **rest):
        self.average.update_parameters(model)

    def on_epoch_end(self, args, state, control, **rest):
        self.average.eval()
        with torch.no_grad():
            right = sum(
                int(self.average(one["pixel_values"][None]).logits.argmax()) == one["labels"]
                for one in self.pictures
            )
        print("epoch", int(state.epoch), "right", right)


def pictures(count, seed):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.rand(count, 3, 32, 32, generator=generator)
    return [{"pixel_values": one, "labels": int(one[0].mean() > 0.5)} for one in pixels]


def main():
    torch.set_num_threads(1)
    set_seed(0)
    config = ViTConfig(
        image_size=32,
        patch_size=4,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
    )
    held_out = pictures(96, seed=2)
    with tempfile.TemporaryDirectory() as output:
        trainer = Trainer(
            model=ViTForImageClassification(config),
            args=TrainingArguments(
                output_dir=output,
                num_train_epochs=6,
                per_device_train_batch_size=16,
                per_device_eval_batch_size=16,
                eval_strategy="epoch",
                save_strategy="no",
                logging_steps=10,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=pictures(320, seed=1),
            eval_dataset=held_out,
            callbacks=[Averaging(0.99, held_out)],
        )
        trainer.train()


if __name__ == "__main__":
    main()
