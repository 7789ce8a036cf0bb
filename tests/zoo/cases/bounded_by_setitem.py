"""Two-tower retrieval for a shop: registries for the parts, one config to choose among them."""

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torchmetrics.classification import BinaryAUROC


class Registry(dict):
    def register(self, name):
        def keep(thing):
            self[name] = thing
            return thing

        return keep


TOWERS, LOSSES, NEGATIVES, METRICS = Registry(), Registry(), Registry(), Registry()


@dataclass
class Config:
    users: int = 6000
    items: int = 3000
    history: int = 24
    dim: int = 48
    batch: int = 192
    steps: int = 600
    validate_every: int = 75
    tower: str = "attention"
    loss: str = "sampled_softmax"
    negatives: str = "cached"
    metric: str = "auroc"
    cache_capacity: int = 2048
    extra: int = 256
    lr: float = 2e-3


class BoundedCache(dict):
    """Keeps the newest entries only."""

    def __init__(self, capacity):
        super().__init__()
        self.capacity = capacity

    def __setitem__(self, key, value):
        while len(self) >= self.capacity:
            del self[next(iter(self))]
        super().__setitem__(key, value)

    def newest(self, count):
        keys = list(self)[-count:]
        return torch.stack([self[key] for key in keys])


@TOWERS.register("mean")
class MeanTower(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.items = nn.Embedding(cfg.items, cfg.dim)
        self.mlp = nn.Sequential(nn.Linear(cfg.dim, 128), nn.ReLU(), nn.Linear(128, cfg.dim))

    def pool(self, vectors):
        return vectors.mean(1)

    def forward(self, history):
        return F.normalize(self.mlp(self.pool(self.items(history))), dim=-1)


@TOWERS.register("attention")
class AttentionTower(MeanTower):
    def __init__(self, cfg):
        super().__init__(cfg)
        self.attention = nn.TransformerEncoderLayer(cfg.dim, 4, 96, 0.0, batch_first=True)

    def pool(self, vectors):
        return self.attention(vectors).mean(1)


@NEGATIVES.register("uniform")
class UniformNegatives:
    def __init__(self, cfg):
        self.cfg = cfg

    def __call__(self, table, keys, vectors):
        return F.normalize(table[torch.randint(self.cfg.items, (self.cfg.extra,))], dim=-1)


@NEGATIVES.register("cached")
class CachedNegatives(UniformNegatives):
    """Item vectors of the batches before, as in cross-batch negative sampling."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.cache = BoundedCache(cfg.cache_capacity)

    def __call__(self, table, keys, vectors):
        negatives = super().__call__(table, keys, vectors)
        if len(self.cache) >= self.cfg.extra:
            negatives = torch.cat([negatives, self.cache.newest(self.cfg.extra)])
        self.cache.update(zip(keys, vectors.detach()))  # feeds: cache
        return negatives


@LOSSES.register("sampled_softmax")
def sampled_softmax(users, positives, negatives, temperature=0.08):
    scores = users @ torch.cat([positives, negatives]).T / temperature
    return F.cross_entropy(scores, torch.arange(len(users)))


METRICS.register("auroc")(lambda: BinaryAUROC(thresholds=None))


class Shop:
    def __init__(self, cfg):
        self.cfg = cfg
        self.taste = torch.randint(30, (cfg.users,))
        self.genre = torch.randint(30, (cfg.items,))
        self.by_genre = [torch.nonzero(self.genre == g)[:, 0] for g in range(30)]

    def purchases(self, users, count):
        liked = torch.stack(
            [
                self.by_genre[g][torch.randint(len(self.by_genre[g]), (count,))]
                for g in self.taste[users].tolist()
            ]
        )
        noise = torch.rand(liked.shape) < 0.25
        return torch.where(noise, torch.randint(self.cfg.items, liked.shape), liked)


class Evaluator:
    def __init__(self, cfg, shop):
        self.metric, self.cfg = METRICS[cfg.metric](), cfg
        self.users = torch.randint(cfg.users, (1500,))
        self.history = shop.purchases(self.users, cfg.history + 1)
        self.candidates = torch.randint(cfg.items, (1500, 100))
        self.runs = 0

    @torch.no_grad()
    def __call__(self, tower):
        tower.eval()
        table = F.normalize(tower.items.weight, dim=-1)
        for rows in torch.arange(1500).split(300):
            user = tower(self.history[rows, :-1])
            items = torch.cat([self.history[rows, -1:], self.candidates[rows]], 1)
            scores = (table[items] @ user[..., None]).squeeze(-1)
            labels = torch.zeros(scores.shape, dtype=torch.long)
            labels[:, 0] = 1
            self.metric.update(((scores + 1) / 2).clamp(0, 1), labels)  # feeds: metric
        tower.train()
        self.runs += 1
        return self.metric.compute().item()


def run(cfg):
    torch.manual_seed(12)
    shop = Shop(cfg)
    tower, negatives, criterion = (
        TOWERS[cfg.tower](cfg),
        NEGATIVES[cfg.negatives](cfg),
        LOSSES[cfg.loss],
    )
    evaluate = Evaluator(cfg, shop)
    optimizer, began = torch.optim.Adam(tower.parameters(), lr=cfg.lr), time.time()
    for step in range(1, cfg.steps + 1):
        users = torch.randint(cfg.users, (cfg.batch,))
        bought = shop.purchases(users, cfg.history + 1)
        positives = F.normalize(tower.items(bought[:, -1]), dim=-1)
        keys = [(step, user) for user in users.tolist()]
        others = negatives(tower.items.weight, keys, positives)
        loss = criterion(tower(bought[:, :-1]), positives, others)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % cfg.validate_every == 0:
            print(
                f"step {step} loss {loss.item():.3f} auroc {evaluate(tower):.4f} "
                f"{time.time() - began:.0f}s",
                flush=True,
            )
    return negatives, evaluate


if __name__ == "__main__":
    config = Config()
    negatives, evaluate = run(config)
