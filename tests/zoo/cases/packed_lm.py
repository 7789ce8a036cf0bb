"""Pretrains a small causal language model on packed documents with the Hugging Face Trainer."""

import tempfile
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

VOCAB = 600
BLOCK = 192
EOS = 1


class PackedDocuments(Dataset):
    """Blocks packed from whole documents, drawn anew each time; a block tells their lengths."""

    def __init__(self, documents: int, blocks: int, seed: int):
        self.rng = np.random.default_rng(seed)
        self.blocks = blocks
        successor = np.random.default_rng(0).permutation(VOCAB - 2) + 2
        self.documents: list[np.ndarray] = []
        for n in self.rng.integers(8, 60, documents):
            doc = np.empty(n, dtype=np.int32)
            doc[0] = self.rng.integers(2, VOCAB)
            for i in range(1, n - 1):
                jump = self.rng.random() < 0.15
                doc[i] = self.rng.integers(2, VOCAB) if jump else successor[doc[i - 1] - 2]
            doc[-1] = EOS
            self.documents.append(doc)

    def __len__(self):
        return self.blocks

    def __getitem__(self, i):
        parts, left = [], BLOCK
        while left > 0:
            doc = self.documents[self.rng.integers(len(self.documents))][:left]
            parts.append(doc)
            left -= len(doc)
        return {"input_ids": np.concatenate(parts), "lengths": tuple(map(len, parts))}


@lru_cache(maxsize=None)
def block_mask(lengths: tuple[int, ...]) -> torch.Tensor:
    """Which position may look at which: causal, and never across documents."""
    doc = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    mask = (doc[:, None] == doc[None, :]).tril_()
    return mask


@dataclass
class PackingCollator:
    ignore_first: bool = True

    def __call__(self, features):
        ids = torch.from_numpy(np.stack([f["input_ids"] for f in features])).long()
        mask = torch.stack([block_mask(f["lengths"]) for f in features])  # feeds: masks
        labels = ids.clone()
        if self.ignore_first:
            for row, f in enumerate(features):
                starts = np.cumsum((0, *f["lengths"]))[:-1]
                labels[row, torch.from_numpy(starts)] = -100
        positions = torch.stack(
            [torch.cat([torch.arange(n) for n in f["lengths"]]) for f in features]
        )
        return {
            "input_ids": ids,
            "attention_mask": mask[:, None],
            "position_ids": positions,
            "labels": labels,
        }


class ProfilingTrainer(Trainer):
    """Also logs how the loss is spread over the tokens of a batch."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        logits = model(**inputs).logits[:, :-1]
        per_token = torch.nn.functional.cross_entropy(
            logits.reshape(-1, VOCAB), labels[:, 1:].reshape(-1), reduction="none"
        )
        loss = per_token.sum() / (labels[:, 1:] >= 0).sum()
        if model.training and self.state.global_step % 2 == 0:
            spread = [round(v, 3) for v in per_token.detach().tolist()]
            self.log({"train_loss": loss.item(), "token_loss": spread})  # feeds: logs
        return (loss, {"loss": loss, "logits": logits}) if return_outputs else loss


class Report(TrainerCallback):
    def __init__(self):
        self.hardest = 0.0

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "token_loss" in logs:
            self.hardest = max(logs["token_loss"])
            if state.global_step % 50 == 0:
                print(
                    f"step {state.global_step}: loss {logs['train_loss']:.3f}, hardest {self.hardest:.2f}",
                    flush=True,
                )


config = LlamaConfig(
    vocab_size=VOCAB,
    hidden_size=64,
    intermediate_size=160,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=BLOCK,
    attn_implementation="sdpa",
    use_cache=False,
    pad_token_id=0,
    bos_token_id=2,
    eos_token_id=EOS,
)
torch.manual_seed(0)
model = LlamaForCausalLM(config)
workdir = tempfile.mkdtemp()
args = TrainingArguments(
    output_dir=workdir,
    max_steps=300,
    per_device_train_batch_size=8,
    learning_rate=2e-3,
    warmup_steps=20,
    lr_scheduler_type="cosine",
    logging_strategy="no",
    save_strategy="no",
    eval_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    remove_unused_columns=False,
    seed=0,
)
trainer = ProfilingTrainer(
    model=model,
    args=args,
    data_collator=PackingCollator(),
    train_dataset=PackedDocuments(1500, blocks=600, seed=1),
    callbacks=[Report()],
)
trainer.remove_callback(PrinterCallback)
trainer.train()
