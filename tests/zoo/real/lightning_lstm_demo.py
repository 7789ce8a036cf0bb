"""Lightning's demo of an LSTM, which carries its hidden state, detached, from step to step."""

import random
import tempfile
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.demos import WikiText2
from lightning.pytorch.demos.lstm import LightningLSTM, SequenceSampler, SimpleLSTM


class Small(LightningLSTM):
    def __init__(self, vocab_size):
        super().__init__(vocab_size)
        self.model = SimpleLSTM(vocab_size, ninp=96, nhid=96, nlayers=2)

    def prepare_data(self):
        pass


def main():
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        words = [f"word{i}" for i in range(400)]
        text = "\n".join(" ".join(random.choices(words, k=12)) for _ in range(1800))
        (Path(folder) / "wikitext-2.txt").write_text(text)
        data = WikiText2(Path(folder), download=False)
        trainer = L.Trainer(
            max_epochs=7,
            accelerator="cpu",
            gradient_clip_val=0.25,
            enable_model_summary=False,
            enable_checkpointing=False,
            logger=False,
        )
        sampler = SequenceSampler(data, batch_size=20)
        loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
        trainer.fit(Small(data.vocab_size), loader)
        print("steps", trainer.global_step)


if __name__ == "__main__":
    main()
