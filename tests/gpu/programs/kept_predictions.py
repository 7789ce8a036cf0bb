"""Trains on a device and keeps every prediction there; with ``tidy`` it keeps numbers instead."""

import sys

import torch


class Trainer:
    def __init__(self, device, tidy):
        self.device = device
        self.tidy = tidy
        self.model = torch.nn.Sequential(
            torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
        ).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.predictions = []

    def fit(self, epochs, batches):
        data = torch.randn(batches * 64, 256)
        loader = torch.utils.data.DataLoader(data, batch_size=64)
        for _ in range(epochs):
            for batch in loader:
                inputs = batch.to(self.device)
                output = self.model(inputs)
                loss = output.square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                kept = output.detach()
                self.predictions.append(kept.mean().item() if self.tidy else kept.repeat(8, 1))


if __name__ == "__main__":
    Trainer(sys.argv[1], "tidy" in sys.argv).fit(epochs=8, batches=30)
