"""Keyword spotting where utterances get longer from epoch to epoch, batches sorted by length."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

KEYWORDS, BANDS = 10, 40


class Utterances(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, KEYWORDS, count)
        self.lengths = rng.integers(40, 320, count)
        self.seed = seed
        self.limit = 80

    def lengthen(self, limit):
        self.limit = limit

    def length(self, index):
        return int(min(self.lengths[index], self.limit))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        rng = np.random.default_rng(self.seed * 1_000_003 + index)
        frames = rng.normal(0, 1, (self.length(index), BANDS)).astype("f4")
        start = rng.integers(0, len(frames) - 20)
        band = 2 + 3 * self.labels[index]
        ramp = np.arange(20)
        frames[start + ramp, np.clip(band + ramp // 5, 0, BANDS - 1)] += 3.0
        return torch.from_numpy(frames), int(self.labels[index])


class ByLength(Sampler):
    """Batches of about as many frames each, whatever the lengths."""

    def __init__(self, data, frames=3000, seed=0):
        self.data, self.frames = data, frames
        self.rng = np.random.default_rng(seed)

    def batches(self):
        order = sorted(
            range(len(self.data)), key=lambda i: (self.data.length(i), self.rng.random())
        )
        out, part = [], []
        for index in order:
            if part and (len(part) + 1) * self.data.length(index) > self.frames:
                out.append(part)
                part = []
            part.append(index)
        return [*out, part]

    def __iter__(self):
        batches = self.batches()
        self.rng.shuffle(batches)
        yield from batches

    def __len__(self):
        return len(self.batches())


def collate(rows):
    frames, labels = zip(*rows)
    padded = nn.utils.rnn.pad_sequence(frames, batch_first=True)
    mask = torch.arange(padded.shape[1])[None] < torch.tensor([len(f) for f in frames])[:, None]
    return padded, mask, torch.tensor(labels)


class Spotter(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.convs = nn.ModuleList(
            [
                nn.Conv1d(BANDS if i == 0 else width, width, 5, padding=2 * 2**i, dilation=2**i)
                for i in range(3)
            ]
        )
        self.norms = nn.ModuleList([nn.GroupNorm(4, width) for _ in range(3)])
        self.weight, self.out = nn.Linear(width, 1), nn.Linear(width, KEYWORDS)

    def forward(self, x, mask):
        h = x.transpose(1, 2)
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            g = F.relu(norm(conv(h)))
            h = g if i == 0 else h + g
        h = h.transpose(1, 2)
        attention = self.weight(h).squeeze(-1).masked_fill(~mask, -1e9).softmax(1)
        return self.out((attention[..., None] * h).sum(1)), attention


torch.manual_seed(0)
train_set, valid_set = Utterances(1200, seed=1), Utterances(300, seed=2)
valid_set.lengthen(320)
train = DataLoader(train_set, batch_sampler=ByLength(train_set), collate_fn=collate)
valid = DataLoader(valid_set, batch_size=32, collate_fn=collate)
model = Spotter()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
limits = [60, 100, 140, 180, 220, 260, 320, 320, 320, 320, 320, 320]
curve, sharpness = [], {}
for epoch, limit in enumerate(limits):
    train_set.lengthen(limit)
    model.train()
    maps = []
    for x, mask, y in train:
        logits, attention = model(x, mask)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
        maps.append(attention.detach())
    sharpness[epoch] = float(torch.stack([m.amax(1).mean() for m in maps]).mean())
    del maps
    model.eval()
    with torch.no_grad():
        right = sum(int((model(x, mask)[0].argmax(1) == y).sum()) for x, mask, y in valid)
    print(
        f"epoch {epoch}: frames {limit} loss {np.mean(curve[-20:]):.3f} "
        f"accuracy {right / len(valid_set):.3f} attention {sharpness[epoch]:.3f}"
    )
