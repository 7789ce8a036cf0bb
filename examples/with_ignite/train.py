"""A classifier with PyTorch-Ignite; its evaluator's outputs are kept."""

import argparse

import torch
from ignite.engine import Engine, Events
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from leakscope.ignite import LeakScope

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


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, CLASSES))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
train_loader, val_loader = photos(640, 1, 16), photos(512, 2, 64)
outputs = []


def train_step(engine, batch):
    model.train()
    pixels, labels = batch
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(pixels), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def validation_step(engine, batch):
    model.eval()
    with torch.no_grad():
        return model(batch[0])


trainer, evaluator = Engine(train_step), Engine(validation_step)


@evaluator.on(Events.ITERATION_COMPLETED)
def keep(engine):
    outputs.append(engine.state.output)


@trainer.on(Events.EPOCH_COMPLETED)
def validate(engine):
    evaluator.run(val_loader)
    print(engine.state.epoch, torch.cat(outputs).std().item())


LeakScope(out=arguments.out).attach(trainer, evaluators={"val": evaluator})
trainer.run(train_loader, max_epochs=arguments.epochs)
