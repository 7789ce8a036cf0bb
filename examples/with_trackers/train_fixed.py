"""A classifier whose loss goes to TensorBoard."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

import leakscope

CLASSES = 1000

parser = argparse.ArgumentParser()
parser.add_argument("--out", help="where to record; by default under leakscope-runs/")
parser.add_argument("--logs", default="logs", help="where TensorBoard's files go")
parser.add_argument("--epochs", type=int, default=8)
arguments = parser.parse_args()


def photos(count, seed, batch_size):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    pixels = torch.rand(count, 256, generator=generator)
    return DataLoader(TensorDataset(pixels, labels), batch_size=batch_size)


def train_epoch(model, optimizer, loader, writer, epoch):
    model.train()
    for batch, (pixels, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(pixels), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add_scalar("loss", loss.item(), epoch * len(loader) + batch)


def validate(model, loader):
    model.eval()
    outputs = []
    with torch.no_grad():
        for pixels, _ in loader:
            outputs.append(model(pixels))
    return torch.cat(outputs).std().item()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train_loader, val_loader = photos(640, 1, 16), photos(512, 2, 64)
    with SummaryWriter(arguments.logs) as writer, leakscope.profile(arguments.out):
        for epoch in range(arguments.epochs):
            train_epoch(model, optimizer, train_loader, writer, epoch)
            writer.add_scalar("spread", validate(model, val_loader), epoch)


main()
