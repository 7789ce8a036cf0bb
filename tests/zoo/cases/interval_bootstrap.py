"""A regression in Lightning with bootstrapped confidence intervals of each validation."""

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, HELD, DRAWS = 26, 1000, 150


class Intervals(L.Callback):
    """Resamples the errors of a validation and tells the interval of their mean."""

    def __init__(self):
        self.errors = []
        self.report = {"intervals": {}, "draws": {}}

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx, *rest):
        self.errors.append(outputs.numpy())

    def on_validation_epoch_end(self, trainer, module):
        errors = np.concatenate(self.errors)
        self.errors.clear()
        chosen = module.rng.integers(0, len(errors), (DRAWS, len(errors)))
        draws = errors[chosen]
        low, high = np.quantile(draws.mean(1), [0.025, 0.975])
        name = f"epoch {trainer.current_epoch}"
        self.report["intervals"][name] = float(low), float(high)
        self.report["draws"][name] = draws  # feeds
        print(f"{name}: {low:.4f} to {high:.4f}", flush=True)


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1))
        self.rng = np.random.default_rng(0)

    def training_step(self, batch, _):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        return (self.net(batch[0]) - batch[1]).squeeze(1).abs()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def data(count):
    x = torch.randn(count, 64)
    return TensorDataset(x, x[:, :4].sum(1, keepdim=True).sin())


def main():
    torch.set_num_threads(1)
    L.seed_everything(0)
    trainer = L.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", callbacks=[Intervals()], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0,
    )  # fmt: skip
    train = DataLoader(data(3200), batch_size=32, shuffle=True)
    trainer.fit(Regression(), train, DataLoader(data(HELD), batch_size=250))


if __name__ == "__main__":
    main()
