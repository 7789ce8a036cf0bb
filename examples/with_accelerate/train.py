"""A classifier in a loop with Accelerate; it keeps the outputs of every validation."""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from leakscope.accelerate import LeakScopeTracker

CLASSES = 1000

parser = argparse.ArgumentParser()
parser.add_argument("--out", help="where to record; by default under leakscope-runs/")
parser.add_argument("--epochs", type=int, default=8)
arguments = parser.parse_args()


def photos(count, seed, batch_size):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    pixels = torch.rand(count, 256, generator=generator)
    return DataLoader(TensorDataset(pixels, labels), batch_size=batch_size)


def train_epoch(accelerator, model, optimizer, loader):
    model.train()
    for pixels, labels in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(pixels), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    return loss.item()


def validate(accelerator, model, loader, outputs):
    model.eval()
    with torch.no_grad():
        for pixels, _ in loader:
            outputs.append(accelerator.gather(model(pixels)))
    return torch.cat(outputs).std().item()


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=2, log_with=[LeakScopeTracker(out=arguments.out)]
    )
    accelerator.init_trackers("classifier")
    model = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, train_loader, val_loader = accelerator.prepare(
        model, optimizer, photos(640, 1, 16), photos(512, 2, 64)
    )
    outputs = []
    for epoch in range(arguments.epochs):
        loss = train_epoch(accelerator, model, optimizer, train_loader)
        spread = validate(accelerator, model, val_loader, outputs)
        accelerator.log({"loss": loss, "spread": spread}, step=epoch)
    accelerator.end_training()


main()
