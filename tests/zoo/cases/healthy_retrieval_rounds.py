"""Learns to match texts and pictures; every so often all pairs of a gallery are ranked at once."""

import torch
from torch import nn

PAIRS, GALLERY, TEXT, PICTURE, WIDTH = 6000, 1500, 96, 192, 64
SETTINGS = {"steps": 600, "batch": 96, "rank_every": 40, "temperature": 0.07, "lr": 1e-3}


class Tower(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 256), nn.GELU(), nn.Linear(256, WIDTH))

    def forward(self, rows):
        return nn.functional.normalize(self.net(rows), dim=-1)


class Data:
    def __init__(self, seed):
        random = torch.Generator().manual_seed(seed)
        meaning = torch.randn(PAIRS + GALLERY, 24, generator=random)
        self.text = self.view(meaning, TEXT, random)
        self.picture = self.view(meaning, PICTURE, random)

    @staticmethod
    def view(meaning, features, random):
        rows = torch.tanh(meaning @ torch.randn(24, features, generator=random) / 4)
        return rows + 0.3 * torch.randn(rows.shape, generator=random)


class Retrieval:
    """Ranks of the right answers, in both directions, in a gallery that was held back."""

    def __init__(self, data):
        self.data = data
        self.text = self.picture = None

    @torch.no_grad()
    def rank(self, text_tower, picture_tower):
        self.text = text_tower(self.data.text[PAIRS:])
        self.picture = picture_tower(self.data.picture[PAIRS:])
        alike = self.text @ self.picture.T
        order = alike.argsort(dim=1, descending=True)
        found = order == torch.arange(GALLERY)[:, None]
        back = (
            alike.T.contiguous().argsort(dim=1, descending=True) == torch.arange(GALLERY)[:, None]
        )
        return {
            f"recall@{k}": (found[:, :k].any(1).float().mean() + back[:, :k].any(1).float().mean())
            / 2
            for k in (1, 5, 10)
        }


def main(settings):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Data(0)
    towers = nn.ModuleDict({"text": Tower(TEXT), "picture": Tower(PICTURE)})
    retrieval, best = Retrieval(data), {}
    optimizer = torch.optim.AdamW(towers.parameters(), lr=settings["lr"])
    for step in range(1, settings["steps"] + 1):
        some = torch.randint(0, PAIRS, (settings["batch"],))
        logits = towers["text"](data.text[some]) @ towers["picture"](data.picture[some]).T
        logits = logits / settings["temperature"]
        label = torch.arange(len(some))
        loss = nn.functional.cross_entropy(logits, label) + nn.functional.cross_entropy(
            logits.T, label
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % settings["rank_every"] == 0:
            ranks = retrieval.rank(towers["text"], towers["picture"])
            best = max(best, ranks, key=lambda r: float(r.get("recall@1", 0)))
            print(f"step {step}: loss {loss.item():.3f}, {ranks['recall@10']:.3f}", flush=True)
    print({name: round(float(value), 3) for name, value in best.items()})


if __name__ == "__main__":
    main(SETTINGS)
