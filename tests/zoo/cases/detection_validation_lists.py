"""A few-shot detector whose validator gathers predictions and never clears them.

After https://github.com/Lightning-AI/pytorch-lightning/issues/14270.
"""

import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 7


class DetectionTrainer:
    def __init__(self, model, train_loader, val_loader):
        self.model = model
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.all_pred_bboxes = []
        self.all_pred_scores = []
        self.all_pred_masks = []
        self.epoch = 0

    def train_epoch(self):
        self.model.train()
        for images, boxes in self.train_loader:
            loss = F.smooth_l1_loss(self.model(images)[:, :4], boxes)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.epoch += 1

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        errors = []
        for images, boxes in self.val_loader:
            out = self.model(images)
            errors.append(F.smooth_l1_loss(out[:, :4], boxes).item())
            for row in out:
                bboxes, scores = row[:400].reshape(100, 4), row[400:500]
                masks = torch.sigmoid(scores)[:, None, None] * torch.ones(100, 24, 24)
                self.all_pred_bboxes.append(bboxes.numpy().copy())  # feeds: all_pred_bboxes
                self.all_pred_scores.append(scores.numpy().copy())
                self.all_pred_masks.append((masks > 0.5).numpy())  # feeds: all_pred_masks
        return float(np.mean(errors))

    def fit(self):
        for epoch in range(EPOCHS):
            self.train_epoch()
            print(f"epoch {epoch}: error {self.validate():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    detector = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 500))
    train_set = TensorDataset(torch.rand(640, 256), torch.rand(640, 4))
    val_set = TensorDataset(torch.rand(96, 256), torch.rand(96, 4))
    trainer = DetectionTrainer(
        detector, DataLoader(train_set, batch_size=16, shuffle=True), DataLoader(val_set, 16)
    )
    trainer.fit()
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = {
            "all_pred_masks": "trainer.all_pred_masks",
            "all_pred_bboxes": "trainer.all_pred_bboxes",
        }
        tell(globals(), kept, {"validation": EPOCHS, "epoch": EPOCHS})
