"""Lightning keeps all that ``predict_step`` returns until ``predict`` is over.

After https://github.com/Lightning-AI/pytorch-lightning/issues/15656; ``return_predictions=False``
and a writer are the documented way out.
"""

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Upscaler(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=4),
            nn.Conv2d(16, 3, 3, padding=1),
        )  # fmt: skip

    def training_step(self, batch, batch_idx):
        (x,) = batch
        return F.mse_loss(F.avg_pool2d(self.network(x), 4), x)

    def predict_step(self, batch, batch_idx):
        return self.network(batch[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    data = TensorDataset(torch.rand(320, 3, 32, 32))
    model = Upscaler()
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(data, batch_size=8, shuffle=True))
    predictions = trainer.predict(model, DataLoader(data, batch_size=4))
    print("steps", trainer.global_step, "predictions", len(predictions))


if __name__ == "__main__":
    main()
