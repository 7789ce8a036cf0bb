"""Lightning's own demo model with several loaders, checkpoints, early stopping and a CSV log."""

import tempfile

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from lightning.pytorch.loggers import CSVLogger


class Model(BoringModel):
    def training_step(self, batch, batch_idx):
        told = super().training_step(batch, batch_idx)
        self.log("train_loss", told["loss"], prog_bar=True)
        return told

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        told = super().validation_step(batch, batch_idx)
        self.log("val_loss", told["x"])
        return told

    def train_dataloader(self):
        return torch.utils.data.DataLoader(RandomDataset(32, 400), batch_size=2)

    def val_dataloader(self):
        return [torch.utils.data.DataLoader(RandomDataset(32, 100), batch_size=4) for _ in range(3)]


def main():
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=10,
            accelerator="cpu",
            logger=CSVLogger(folder),
            log_every_n_steps=10,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[
                EarlyStopping("val_loss/dataloader_idx_0", patience=20),
                ModelCheckpoint(monitor="val_loss/dataloader_idx_1", save_top_k=2),
                LearningRateMonitor("epoch"),
            ],
        )
        trainer.fit(Model())
        trainer.test(trainer.model, trainer.model.val_dataloader()[0], verbose=False)
        print("steps", trainer.global_step)


if __name__ == "__main__":
    main()
