"""A trainer's batch context and callbacks refer to each other; the collector frees them."""

import time

import torch
import torch.nn as nn


class Callback:
    def __init__(self, context):
        self.context = context

    def after_loss(self, loss):
        self.context.loss = loss.item()


class BatchContext:
    def __init__(self, trainer, x, y):
        self.trainer = trainer
        self.x, self.y = x, y
        self.loss = None
        self.callbacks = [Callback(self), Callback(self)]


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
        self.average = 0.0

    def fit_batch(self, x, y):
        context = BatchContext(self, x, y)
        loss = nn.functional.smooth_l1_loss(self.model(context.x), context.y)
        for callback in context.callbacks:
            callback.after_loss(loss)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.average = 0.99 * self.average + 0.01 * context.loss


def main():
    torch.manual_seed(0)
    trainer = Trainer(nn.Sequential(nn.Linear(192, 64), nn.SiLU(), nn.Linear(64, 8)))
    projection = torch.randn(192, 8) / 14
    for step in range(900):
        x = torch.randn(128, 192)
        trainer.fit_batch(x, x @ projection)
        time.sleep(0.009)
        if step % 150 == 0:
            print(step, round(trainer.average, 4))


if __name__ == "__main__":
    main()
