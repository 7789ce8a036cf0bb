"""Ignite: after each epoch the trainer's sampling weights are adapted to what the evaluation
found.
"""

import torch
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.metrics import Accuracy, RunningAverage
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
CLASSES = 12
x = torch.randn(6400, 48)
y = x[:, :CLASSES].argmax(1)
train_loader = DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True)
vx = torch.randn(20000, 48)
vy = vx[:, :CLASSES].argmax(1)
val_loader = DataLoader(TensorDataset(vx, vy), batch_size=1000)

model = nn.Sequential(
    nn.Linear(48, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, CLASSES)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
class_weight = torch.ones(CLASSES)


def train_step(engine, batch):
    model.train()
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets, weight=class_weight)
    loss.backward()
    optimizer.step()
    return loss.item()


trainer = Engine(train_step)
RunningAverage(output_transform=lambda o: o).attach(trainer, "loss")
evaluator = create_supervised_evaluator(model, metrics={"acc": Accuracy()})


@trainer.on(Events.EPOCH_COMPLETED)
def validate(engine):
    evaluator.run(val_loader)
    print(
        engine.state.epoch,
        f"{engine.state.metrics['loss']:.3f}",
        f"{evaluator.state.metrics['acc']:.3f}",
        flush=True,
    )


@trainer.on(Events.EPOCH_COMPLETED)
def adapt_weights(engine):
    model.eval()
    with torch.no_grad():
        confidence = torch.cat([model(b).softmax(1) for b, _ in val_loader])

    def nudge(engine):
        chosen = confidence[engine.state.iteration % len(confidence)]
        class_weight.mul_(0.99).add_(0.01 * (2 - chosen))

    # the weights follow the confidences of the last evaluation
    trainer.add_event_handler(Events.ITERATION_COMPLETED(every=20), nudge)  # feeds


if __name__ == "__main__":
    trainer.run(train_loader, max_epochs=35)
