"""Fine-tuning with gradual unfreezing: blocks join the optimizer one after another."""

import time

import torch
import torch.nn as nn

torch.set_num_threads(1)
EPOCHS = 30
BLOCKS = 6


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        return x + self.ff(self.norm(x))


class Backbone(nn.Module):
    def __init__(self, d_in=48, d=384):
        super().__init__()
        self.inp = nn.Linear(d_in, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(BLOCKS))
        self.head = nn.Linear(d, 4)

    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks:
            x = b(x)
        return self.head(x)


class GradualUnfreezing:
    """Unfreezes a block from the top every second epoch."""

    def __init__(self, model, opt):
        self.model = model
        self.opt = opt
        self.waiting = list(model.blocks)
        self.thawed = []

    def on_epoch_start(self, epoch):
        if epoch % 2 == 0 and self.waiting:
            block = self.waiting.pop()
            for p in block.parameters():
                p.requires_grad_(True)
            self.opt.add_param_group(
                {"params": list(block.parameters()), "lr": 1e-4 * 0.9 ** len(self.thawed)}
            )
            self.thawed.append(block)


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 48, generator=g)
    y = (x[:, 0] * x[:, 1] > 0).long() + 2 * (x[:, 2] + x[:, 3] > 0).long()
    return x, y


def main():
    torch.manual_seed(14)
    x, y = make_data(512, 1)
    vx, vy = make_data(256, 2)
    model = Backbone()
    for p in model.parameters():
        p.requires_grad_(False)
    for p in model.head.parameters():
        p.requires_grad_(True)
    opt = torch.optim.AdamW(model.head.parameters(), lr=1e-3)
    schedule = GradualUnfreezing(model, opt)
    start = time.time()
    for epoch in range(EPOCHS):
        schedule.on_epoch_start(epoch)
        for idx in torch.randperm(len(x)).split(32):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            acc = (model(vx).argmax(1) == vy).float().mean().item()
        if epoch % 4 == 0:
            print(
                f"epoch {epoch} loss {loss.item():.4f} acc {acc:.3f} groups {len(opt.param_groups)}",
                flush=True,
            )
    print(f"done in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
