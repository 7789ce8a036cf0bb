"""Click model trained in the style of data parallelism: bucketed gradient averaging, one rank."""

import os
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
torch.set_num_threads(1)
torch.manual_seed(31)


class Bucket:
    __slots__ = ("flat", "generation", "pending", "total")

    def __init__(self, generation, elements, total):
        self.generation = generation
        self.flat = torch.zeros(elements)
        self.pending = self.total = total


class Reducer:
    """Copies gradients into flat buckets as they arrive and reduces each bucket when full."""

    def __init__(self, module, bucket_elements=60_000):
        self.module = module
        self.bucket_elements = bucket_elements
        self.generation = 0
        self.layout = []
        self.work = []

    def plan(self):
        group, size = [], 0
        for p in reversed([p for p in self.module.parameters() if p.requires_grad]):
            group.append(p)
            size += p.numel()
            if size >= self.bucket_elements:
                yield group, size
                group, size = [], 0
        if group:
            yield group, size

    def rebuild(self):
        self.generation += 1
        self.layout = []
        for group, size in self.plan():
            bucket = Bucket(self.generation, size, len(group))
            start = 0
            for p in group:
                span = slice(start, start + p.numel())
                p.register_post_accumulate_grad_hook(
                    partial(self._arrived, bucket, span)
                )  # feeds: HOOKS
                self.layout.append((p, bucket, span))
                start = span.stop

    def _arrived(self, bucket, span, p):
        if bucket.generation != self.generation:
            return
        bucket.flat[span].copy_(p.grad.reshape(-1))
        bucket.pending -= 1
        if bucket.pending == 0:
            self.work.append(dist.all_reduce(bucket.flat, async_op=True))
            bucket.pending = bucket.total

    def finish(self):
        for work in self.work:
            work.wait()
        self.work.clear()
        scale = 1 / dist.get_world_size()
        for p, bucket, span in self.layout:
            p.grad.copy_(bucket.flat[span].view_as(p)).mul_(scale)


@dataclass
class ClickConfig:
    fields: int = 16
    values: int = 600
    dim: int = 16
    dense: int = 13
    batch_size: int = 512
    steps: int = 2000
    rebuild_every: int = 25


class ClickNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.table = nn.Embedding(cfg.fields * cfg.values, cfg.dim)
        self.register_buffer("offset", torch.arange(cfg.fields) * cfg.values)
        self.deep = nn.Sequential(
            nn.Linear(cfg.fields * cfg.dim + cfg.dense, 256),
            nn.ReLU(),
            nn.Linear(256, 128),
            nn.ReLU(),
            nn.Linear(128, 1),
        )

    def forward(self, fields, dense):
        e = self.table(fields + self.offset)
        pair = 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(1)
        return pair + self.deep(torch.cat([e.flatten(1), dense], 1)).squeeze(1)


def impressions(cfg):
    hot = torch.randn(cfg.fields, cfg.values)
    fields = torch.arange(cfg.fields)
    while True:
        codes = (torch.rand(cfg.batch_size, cfg.fields).square() * cfg.values).long()
        dense = torch.randn(cfg.batch_size, cfg.dense)
        logit = hot[fields, codes].sum(1) / 3 + dense[:, 0]
        yield codes, dense, torch.bernoulli(logit.sigmoid())


def main(cfg):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = ClickNet(cfg)
    reducer = Reducer(model)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    stream = impressions(cfg)
    for step in range(cfg.steps):
        if step % cfg.rebuild_every == 0:
            reducer.rebuild()
        codes, dense, clicked = next(stream)
        loss = nn.functional.binary_cross_entropy_with_logits(model(codes, dense), clicked)
        optimizer.zero_grad()
        loss.backward()
        reducer.finish()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} logloss {loss.item():.4f} buckets {reducer.generation}", flush=True)
    dist.destroy_process_group()
    return model, reducer


cfg = ClickConfig()
model, reducer = main(cfg)
