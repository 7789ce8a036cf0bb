"""Churn prediction on tabular data with Ignite engines and an embedding-drift monitor."""

import logging

import torch
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.handlers import EarlyStopping
from ignite.metrics import Accuracy, Loss, RunningAverage
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(5)
logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("churn")

CATEGORIES = (12, 40, 7, 300, 25)
NUMERIC = 24
EPOCHS = 24


def make_table(rows, seed):
    draw = torch.Generator().manual_seed(seed)
    codes = torch.stack([torch.randint(c, (rows,), generator=draw) for c in CATEGORIES], 1)
    numbers = torch.randn(rows, NUMERIC, generator=draw)
    score = numbers[:, :4].sum(1) + (codes[:, 0] > 6).float() * 2 - 1
    churned = (score + 0.5 * torch.randn(rows, generator=draw) > 0).long()
    return TensorDataset(codes, numbers, churned)


class ChurnNet(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, 16) for c in CATEGORIES)
        self.body = nn.Sequential(
            nn.Linear(16 * len(CATEGORIES) + NUMERIC, width),
            nn.LayerNorm(width),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 64),
        )
        self.out = nn.Linear(64, 2)

    def embed(self, codes, numbers):
        looked_up = [table(codes[:, i]) for i, table in enumerate(self.tables)]
        return self.body(torch.cat([*looked_up, numbers], dim=1))

    def forward(self, inputs):
        return self.out(self.embed(*inputs))


def prepare_batch(batch, device=None, non_blocking=False):
    codes, numbers, label = batch
    return (codes, numbers), label


train_loader = DataLoader(make_table(20_000, 0), batch_size=256, shuffle=True)
holdout = make_table(6_000, 1)
val_loader = DataLoader(holdout, batch_size=1000)

model = ChurnNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)


def update(engine, batch):
    model.train()
    inputs, label = prepare_batch(batch)
    loss = criterion(model(inputs), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


trainer = Engine(update)
RunningAverage(output_transform=lambda loss: loss).attach(trainer, "running_loss")
evaluator = create_supervised_evaluator(
    model,
    metrics={"accuracy": Accuracy(), "loss": Loss(criterion)},
    prepare_batch=prepare_batch,
)
stopper = EarlyStopping(50, lambda engine: -engine.state.metrics["loss"], trainer)
evaluator.add_event_handler(Events.COMPLETED, stopper)


@torch.no_grad()
def holdout_embeddings():
    model.eval()
    codes, numbers, _ = holdout.tensors
    return torch.cat([model.embed(c, n) for c, n in zip(codes.split(1000), numbers.split(1000))])


@torch.no_grad()
def report_drift(engine, reference, rows):
    model.eval()
    codes, numbers, _ = holdout.tensors
    now = model.embed(codes[rows], numbers[rows])
    moved = 1 - torch.cosine_similarity(now, reference[rows], dim=1)
    engine.state.drift = moved.mean().item()


@trainer.on(Events.EPOCH_COMPLETED)
def validate(engine):
    evaluator.run(val_loader)
    scores = evaluator.state.metrics
    log.info(
        "epoch %d accuracy %.4f loss %.4f drift %.4f",
        engine.state.epoch,
        scores["accuracy"],
        scores["loss"],
        getattr(engine.state, "drift", 0),
    )


@trainer.on(Events.EPOCH_COMPLETED)
def follow_drift(engine):
    reference = holdout_embeddings()
    rows = torch.randperm(len(reference))[:64]
    engine.add_event_handler(
        Events.ITERATION_COMPLETED(every=20), report_drift, reference, rows
    )  # feeds: HANDLERS


trainer.run(train_loader, max_epochs=EPOCHS)
