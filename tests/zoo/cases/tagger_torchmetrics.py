"""Multi-label product tagger; every stage owns torchmetrics built from a registry."""

import time
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MultilabelAveragePrecision, MultilabelF1Score

torch.set_num_threads(1)

METRICS = {}


def register(name):
    def keep(factory):
        METRICS[name] = factory
        return factory

    return keep


@register("map")
def average_precision(cfg):
    return MultilabelAveragePrecision(num_labels=cfg.labels, average="macro")


@register("f1")
def f1(cfg):
    return MultilabelF1Score(num_labels=cfg.labels)


@dataclass
class TaggerConfig:
    vocab: int = 5000
    words: int = 30
    labels: int = 10
    dim: int = 96
    batch_size: int = 384
    rows: int = 38_400
    val_rows: int = 4_000
    epochs: int = 8
    metrics: tuple = ("map", "f1")


@dataclass
class Stage:
    name: str
    scores: MetricCollection
    loss: MeanMetric = field(default_factory=MeanMetric)

    def finish(self):
        result = {k: float(v) for k, v in self.scores.compute().items()}
        result["loss"] = float(self.loss.compute())
        self.scores.reset()
        self.loss.reset()
        return result


class BagTagger(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.bag = nn.EmbeddingBag(cfg.vocab, cfg.dim, mode="mean")
        self.mlp = nn.Sequential(
            nn.Linear(cfg.dim, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, cfg.labels)
        )

    def forward(self, words):
        return self.mlp(self.bag(words))


def products(cfg, rows, seed):
    draw = torch.Generator().manual_seed(seed)
    words = torch.randint(cfg.vocab, (rows, cfg.words), generator=draw)
    labels = torch.stack([(words % (37 + k) == 0).any(1) for k in range(cfg.labels)], dim=1).long()
    return TensorDataset(words, labels)


class TaggerTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.model = BagTagger(cfg)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.criterion = nn.BCEWithLogitsLoss()
        make = lambda: MetricCollection(
            {name: METRICS[name](cfg) for name in cfg.metrics}, compute_groups=False
        )
        self.stages = {name: Stage(name, make()) for name in ("train", "val")}
        self.steps = 0

    def train_epoch(self, loader):
        self.model.train()
        stage = self.stages["train"]
        smoothed = 0.0
        for words, labels in loader:
            logits = self.model(words)
            loss = self.criterion(logits, labels.float())
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            batch_scores = stage.scores(logits.detach().sigmoid(), labels)  # feeds: TRAIN_STATES
            stage.loss.update(loss.detach())
            smoothed = 0.95 * smoothed + 0.05 * float(batch_scores["map"])
            self.steps += 1
        epoch_loss = float(stage.loss.compute())
        stage.loss.reset()
        return {"map_smoothed": smoothed, "loss": epoch_loss}

    @torch.no_grad()
    def validate(self, loader):
        self.model.eval()
        stage = self.stages["val"]
        for words, labels in loader:
            logits = self.model(words)
            stage.scores.update(logits.sigmoid(), labels)
            stage.loss.update(self.criterion(logits, labels.float()))
        return stage.finish()

    def fit(self):
        cfg = self.cfg
        train = DataLoader(products(cfg, cfg.rows, 0), cfg.batch_size, shuffle=True)
        val = DataLoader(products(cfg, cfg.val_rows, 1), 1000)
        for epoch in range(cfg.epochs):
            start = time.perf_counter()
            done, scores = self.train_epoch(train), self.validate(val)
            print(epoch, done, scores, f"{time.perf_counter() - start:.1f}s", flush=True)


torch.manual_seed(0)
trainer = TaggerTrainer(TaggerConfig())
trainer.fit()
