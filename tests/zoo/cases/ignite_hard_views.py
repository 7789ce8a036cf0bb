"""Self-supervised pretraining by predicting rotations, with ignite; hard mining after warm-up."""

from argparse import Namespace

import numpy as np
import torch
import torch.nn.functional as F
from ignite.engine import Engine, Events
from ignite.metrics import Accuracy, RunningAverage
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

cfg = Namespace(epochs=9, mine_from=4, batch=24, images=1200, size=32, lr=0.02, report=8)


def scenes(count, seed):
    """Sky over ground with a tree or two: pictures with an up and a down."""
    rng = np.random.default_rng(seed)
    size = cfg.size
    pics = np.empty((count, 3, size, size), np.float32)
    ys, xs = np.mgrid[0:size, 0:size]
    for pic in pics:
        horizon = rng.integers(size // 3, 2 * size // 3)
        pic[:] = np.where(ys < horizon, 0.7, 0.3)
        pic[2] += 0.2 * (ys < horizon)
        for _ in range(rng.integers(1, 3)):
            x, h = rng.integers(4, size - 4), rng.integers(5, 12)
            trunk = (abs(xs - x) < 1.5) & (ys > horizon - h) & (ys < horizon)
            crown = (xs - x) ** 2 + (ys - horizon + h) ** 2 < rng.integers(8, 20)
            pic[:, trunk] = 0.15
            pic[1, crown] = 0.6
        pic += rng.normal(0, 0.12, pic.shape)
    return TensorDataset(torch.from_numpy(pics))


def rotate(images):
    turns = torch.randint(0, 4, (len(images),))
    turned = torch.stack([image.rot90(int(k), (1, 2)) for image, k in zip(images, turns)])
    return turned, turns


class Encoder(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        layers, last = [], 3
        for out in (width, width * 2, width * 3):
            layers += [nn.Conv2d(last, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
            last = out
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(last * 16, 4)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


model = Encoder()
optimizer = torch.optim.SGD(model.parameters(), cfg.lr, momentum=0.9, weight_decay=5e-4)


def pretrain_step(engine, batch):
    model.train()
    x, y = rotate(batch[0])
    logits = model(x)
    losses = F.cross_entropy(logits, y, reduction="none")
    loss = losses.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss.item(), "x": x, "losses": losses.detach()}


@torch.no_grad()
def val_step(engine, batch):
    model.eval()
    x, y = rotate(batch[0])
    return model(x), y


torch.manual_seed(0)
trainer, evaluator = Engine(pretrain_step), Engine(val_step)
RunningAverage(output_transform=lambda out: out["loss"]).attach(trainer, "loss")
Accuracy().attach(evaluator, "acc")
train_loader = DataLoader(scenes(cfg.images, 0), cfg.batch, shuffle=True, drop_last=True)
val_loader = DataLoader(scenes(192, 1), 48)


@trainer.on(Events.STARTED)
def prepare(engine):
    engine.state.hard = []
    engine.state.mined = 0


def warmed_up(engine, event):
    return engine.state.epoch >= cfg.mine_from


@trainer.on(Events.ITERATION_COMPLETED(event_filter=warmed_up))
def mine(engine):
    out = engine.state.output
    worst = int(out["losses"].argmax())
    engine.state.hard.append((float(out["losses"][worst]), out["x"][worst]))  # feeds
    engine.state.mined += 1


@trainer.on(Events.ITERATION_COMPLETED(event_filter=lambda e, n: warmed_up(e, n) and n % 4 == 0))
def rehearse(engine):
    hardest = sorted(engine.state.hard, key=lambda pair: -pair[0])[: cfg.report]
    x, y = rotate(torch.stack([image for _, image in hardest]))
    optimizer.zero_grad()
    (0.2 * F.cross_entropy(model(x), y)).backward()
    optimizer.step()


@trainer.on(Events.EPOCH_COMPLETED)
def validate(engine):
    evaluator.run(val_loader)
    acc, loss = evaluator.state.metrics["acc"], engine.state.metrics["loss"]
    print(f"epoch {engine.state.epoch}: loss {loss:.3f} acc {acc:.3f}")


@trainer.on(Events.EPOCH_COMPLETED(event_filter=warmed_up))
def report_hard(engine):
    hardest = sorted((loss for loss, _ in engine.state.hard), reverse=True)[: cfg.report]
    print("  hardest", [round(loss, 2) for loss in hardest])


@trainer.on(Events.EPOCH_COMPLETED(every=6))
def decay(engine):
    for group in optimizer.param_groups:
        group["lr"] *= 0.3


state = trainer.run(train_loader, max_epochs=cfg.epochs)
