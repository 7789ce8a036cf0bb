"""Lightning's demo of a language model, on a text that is written here."""

import random
import tempfile
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.demos import Transformer, WikiText2


class LanguageModel(L.LightningModule):
    def __init__(self, vocab_size):
        super().__init__()
        self.model = Transformer(vocab_size=vocab_size, ninp=64, nhead=2, nhid=64, nlayers=2)

    def loss(self, batch):
        inputs, target = batch
        output = self.model(inputs, target)
        return torch.nn.functional.nll_loss(output, target.view(-1))

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
        return {"optimizer": optimizer, "lr_scheduler": schedule, "monitor": "val_loss"}


def main():
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        words = [f"word{i}" for i in range(400)]
        text = "\n".join(" ".join(random.choices(words, k=12)) for _ in range(1500))
        (Path(folder) / "wikitext-2.txt").write_text(text)
        data = WikiText2(Path(folder), download=False)
        train, val = torch.utils.data.random_split(data, [0.8, 0.2])
        trainer = L.Trainer(
            max_epochs=6,
            accelerator="cpu",
            default_root_dir=folder,
            gradient_clip_val=0.25,
            enable_model_summary=False,
            enable_progress_bar=False,
            logger=False,
        )
        trainer.fit(
            LanguageModel(data.vocab_size),
            torch.utils.data.DataLoader(train, batch_size=8, shuffle=True),
            torch.utils.data.DataLoader(val, batch_size=8),
        )
        print("steps", trainer.global_step)


if __name__ == "__main__":
    main()
