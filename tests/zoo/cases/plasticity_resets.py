"""Learns a stream of changing tasks; parts of the network that went stale are begun afresh."""

import torch
from torch import nn

TASKS, STEPS, BATCH, WIDTH, CLASSES = 24, 40, 64, 96, 10


class Drift:
    """Signals whose meaning is permuted with every task."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.rule = torch.randn(WIDTH, CLASSES, generator=self.random)
        self.shift()

    def shift(self):
        self.order = torch.randperm(WIDTH, generator=self.random)

    def batch(self):
        x = torch.randn(BATCH, WIDTH, generator=self.random)
        return x, (x[:, self.order] @ self.rule).argmax(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, 3 * WIDTH)
        self.outer = nn.Linear(3 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.use = 1.0

    def forward(self, x):
        hidden = self.inner(self.norm(x)).relu()
        if self.training:
            used = (hidden > 0).float().mean().item()
            self.use = 0.9 * self.use + 0.1 * used
        return x + self.outer(hidden)


class Plasticity:
    """Replaces weights of the block that is used least by new ones, in the optimizer as well."""

    def __init__(self, blocks, optimizer):
        self.blocks, self.optimizer = blocks, optimizer

    def replace(self, linear):
        fresh = nn.Linear(linear.in_features, linear.out_features)
        for name in ("weight", "bias"):
            old, new = getattr(linear, name), getattr(fresh, name)
            for group in self.optimizer.param_groups:
                for place, parameter in enumerate(group["params"]):
                    if parameter is old:
                        group["params"][place] = new
            setattr(linear, name, new)

    def renew(self):
        stale = min(self.blocks, key=lambda block: block.use)
        self.replace(stale.inner)
        nn.init.zeros_(stale.outer.weight)
        stale.use = 1.0


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    drift = Drift(0)
    model = nn.Sequential(Block(), Block(), Block(), Block(), nn.Linear(WIDTH, CLASSES))
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 1e-2}, {"params": others, "weight_decay": 0.0}],
        lr=1e-3,
    )
    plasticity = Plasticity([m for m in model if isinstance(m, Block)], optimizer)
    for task in range(TASKS):
        drift.shift()
        right = 0
        for step in range(STEPS):
            x, y = drift.batch()
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == y).sum().item()
            if step % 20 == 19:
                plasticity.renew()
        print(f"task {task}: {right / (STEPS * BATCH):.3f} right, loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
