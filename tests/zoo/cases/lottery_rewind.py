"""Looks for a lottery ticket: trains, prunes the smallest weights, and rewinds to early weights."""

import io

import torch
from torch import nn

CONFIG = {
    "rounds": 4,
    "steps": 90,
    "keep": 0.7,
    "layers": [256, 160, 160, 10],
    "lr": 1e-3,
    "snapshot_every": 1,
}


class Timeline:
    """Weights and optimizer of each moment, as bytes, to rewind to any of them."""

    def __init__(self):
        self.moments = {}

    def save(self, moment, model, optimizer):
        buffer = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
        self.moments[moment] = buffer

    def load(self, moment, model):
        self.moments[moment].seek(0)
        model.load_state_dict(torch.load(self.moments[moment])["model"])


class Masked(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))
        self.masks = [torch.ones_like(layer.weight) for layer in self.layers]

    def forward(self, x):
        for layer, mask in zip(self.layers[:-1], self.masks, strict=False):
            x = nn.functional.linear(x, layer.weight * mask, layer.bias).relu()
        return nn.functional.linear(
            x, self.layers[-1].weight * self.masks[-1], self.layers[-1].bias
        )

    @torch.no_grad()
    def prune(self, keep):
        for layer, mask in zip(self.layers, self.masks, strict=True):
            left = layer.weight[mask > 0].abs()
            mask.mul_(layer.weight.abs() >= left.quantile(1 - keep))

    def sparsity(self):
        return 1 - sum(m.sum().item() for m in self.masks) / sum(m.numel() for m in self.masks)


def digits(count, seed):
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(10, CONFIG["layers"][0], generator=generator)
    label = torch.randint(0, 10, (count,), generator=generator)
    return centre[label] + 2.5 * torch.randn(count, CONFIG["layers"][0], generator=generator), label


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = digits(8192, 0)
    model, timeline = Masked(CONFIG["layers"]), Timeline()
    for ticket in range(CONFIG["rounds"]):
        optimizer = torch.optim.Adam(model.parameters(), lr=CONFIG["lr"])
        for step in range(CONFIG["steps"]):
            some = torch.randint(0, len(x), (256,))
            loss = nn.functional.cross_entropy(model(x[some]), y[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % CONFIG["snapshot_every"] == 0:
                timeline.save((ticket, step), model, optimizer)
        with torch.no_grad():
            hits = (model(x).argmax(-1) == y).float().mean().item()
        print(f"ticket {ticket}: {model.sparsity():.0%} pruned, {hits:.3f} right", flush=True)
        model.prune(CONFIG["keep"])
        timeline.load((ticket, 10), model)


if __name__ == "__main__":
    main()
