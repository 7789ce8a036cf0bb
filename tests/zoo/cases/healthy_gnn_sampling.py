"""GraphSAGE-style node classification; the set of labelled seed nodes grows by curriculum."""

import time
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

CFG = SimpleNamespace(
    nodes=3000, communities=6, features=48, fanout=12, hidden=64, batch=50, epochs=125, seed=8
)


def make_graph(cfg):
    g = torch.Generator().manual_seed(cfg.seed)
    labels = torch.randint(0, cfg.communities, (cfg.nodes,), generator=g)
    feats = torch.randn(cfg.communities, cfg.features, generator=g)[labels] * 0.15
    feats = feats + torch.randn(cfg.nodes, cfg.features, generator=g)
    order = labels.argsort()
    bounds = torch.searchsorted(labels[order], torch.arange(cfg.communities + 1)).tolist()
    neighbours = []
    for node in range(cfg.nodes):
        lo, hi = bounds[labels[node]], bounds[labels[node] + 1]
        near = order[torch.randint(lo, hi, (6,), generator=g)]
        far = torch.randint(0, cfg.nodes, (9,), generator=g)
        neighbours.append(torch.cat([near, far]))
    return SimpleNamespace(labels=labels, feats=feats, neighbours=neighbours)


def memoize_by_node(fn):
    """Ego networks are static, so they are extracted once per node."""
    store = {}

    def wrapper(graph, node, fanout):
        if node not in store:
            store[node] = fn(graph, node, fanout)
        return store[node]

    wrapper.size = lambda: len(store)
    return wrapper


@memoize_by_node
def ego_network(graph, node, fanout):
    g = torch.Generator().manual_seed(node)
    first = graph.neighbours[node]
    first = first[torch.randperm(len(first), generator=g)[:fanout]]
    second = torch.stack(
        [
            graph.neighbours[n][torch.randperm(len(graph.neighbours[n]), generator=g)[:fanout]]
            for n in first.tolist()
        ]
    )
    return (
        graph.feats[node],
        graph.feats[first],
        graph.feats[second.flatten()].view(*second.shape, -1).mean(1),
        second,
    )


class Sage(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.near = nn.Linear(2 * cfg.features, cfg.hidden)
        self.merge = nn.Sequential(
            nn.Linear(cfg.features + cfg.hidden, cfg.hidden), nn.ReLU(), nn.Dropout(0.3)
        )
        self.out = nn.Linear(cfg.hidden, cfg.communities)

    def forward(self, center, first, second):
        messages = F.relu(self.near(torch.cat([first, second], -1))).mean(1)
        return self.out(self.merge(torch.cat([center, messages], -1)))


def collate(graph, nodes, fanout):
    center, first, second, hops = zip(*(ego_network(graph, n, fanout) for n in nodes))
    touched = torch.stack(hops).flatten().bincount(minlength=len(graph.labels))
    return (
        (torch.stack(center), torch.stack(first), torch.stack(second)),
        graph.labels[list(nodes)],
        touched,
    )


def curriculum(pool, epoch, total):
    """The share of usable seeds rises linearly and reaches everything at 70% of training."""
    share = min(1.0, 0.15 + 0.85 * epoch / (0.7 * total))
    return pool[: int(share * len(pool))]


class EpochReport:
    def __init__(self):
        self.logits, self.targets = [], []
        self.coverage = 0

    def update(self, logits, targets, touched):
        self.logits.append(logits.detach())
        self.targets.append(targets)
        self.coverage = self.coverage + touched

    def summary(self):
        logits, targets = torch.cat(self.logits), torch.cat(self.targets)
        per_class = torch.zeros(logits.shape[1]).index_add_(
            0, targets, (logits.argmax(1) == targets).float()
        )
        balanced = per_class / targets.bincount(minlength=logits.shape[1]).clamp_min(1)
        return balanced.mean().item(), (self.coverage > 0).float().mean().item()


def evaluate(model, graph, nodes, cfg):
    model.eval()
    report = EpochReport()
    with torch.no_grad():
        for part in torch.tensor(nodes).split(100):
            inputs, targets, touched = collate(graph, part.tolist(), cfg.fanout)
            report.update(model(*inputs), targets, touched)
    model.train()
    return report.summary()[0]


def main(cfg):
    torch.manual_seed(cfg.seed)
    graph = make_graph(cfg)
    shuffled = torch.randperm(cfg.nodes).tolist()
    valid, pool = shuffled[:200], shuffled[200:]
    model = Sage(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs)
    for epoch in range(cfg.epochs):
        began = time.perf_counter()
        seeds = torch.tensor(curriculum(pool, epoch, cfg.epochs))
        report = EpochReport()
        draws = torch.randint(0, len(seeds), (60, cfg.batch))
        for rows in draws:
            inputs, targets, touched = collate(graph, seeds[rows].tolist(), cfg.fanout)
            logits = model(*inputs)
            loss = F.cross_entropy(logits, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            report.update(logits, targets, touched)
        schedule.step()
        score, coverage = report.summary()
        val = evaluate(model, graph, valid, cfg)
        print(
            f"epoch {epoch:02d} seeds {len(seeds)} train {score:.3f} cover {coverage:.2f} val {val:.3f} "
            f"egos {ego_network.size()} {time.perf_counter() - began:.1f}s",
            flush=True,
        )


if __name__ == "__main__":
    main(CFG)
