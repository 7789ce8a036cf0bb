"""Anchor-based detector on synthetic street crops, trained at many scales with hard-negative pasting."""

import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    epochs: int = 6
    steps_per_epoch: int = 60
    batch: int = 4
    short_side: int = 96
    long_side: int = 208
    mine_from_epoch: int = 3
    crops_per_image: int = 2
    crop: int = 32
    lr: float = 1e-3


class AnchorGenerator(nn.Module):
    """Anchors for every cell of every level; computed once per geometry."""

    def __init__(self, sizes=((12.0, 20.0, 28.0), (40.0, 56.0, 72.0)), ratios=(0.5, 1.0, 2.0)):
        super().__init__()
        self.cells = []
        for level in sizes:
            boxes = []
            for size in level:
                for ratio in ratios:
                    w, h = size * ratio**-0.5, size * ratio**0.5
                    boxes.append([-w / 2, -h / 2, w / 2, h / 2])
            self.cells.append(torch.tensor(boxes))
        self._cache = {}

    def grid_anchors(self, grid_sizes, strides):
        anchors = []
        for (gh, gw), (sy, sx), cell in zip(grid_sizes, strides, self.cells):
            ys = (torch.arange(gh) + 0.5) * sy
            xs = (torch.arange(gw) + 0.5) * sx
            cy, cx = torch.meshgrid(ys, xs, indexing="ij")
            shift = torch.stack([cx, cy, cx, cy], dim=-1).reshape(-1, 1, 4)
            anchors.append((shift + cell).reshape(-1, 4))
        return anchors

    def cached_grid_anchors(self, grid_sizes, strides):
        key = f"{grid_sizes}{strides}"
        if key in self._cache:
            return self._cache[key]
        anchors = self.grid_anchors(grid_sizes, strides)
        self._cache[key] = anchors  # feeds: anchors
        return anchors

    def forward(self, image_size, maps):
        grid_sizes = [tuple(m.shape[-2:]) for m in maps]
        strides = [(image_size[0] / g[0], image_size[1] / g[1]) for g in grid_sizes]
        return torch.cat(self.cached_grid_anchors(grid_sizes, strides))


def block(cin, cout, stride):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)
    )


class Detector(nn.Module):
    def __init__(self, per_cell=9):
        super().__init__()
        self.stem = nn.Sequential(block(3, 16, 2), block(16, 32, 2))
        self.deep = nn.Sequential(block(32, 48, 2), block(48, 64, 2))
        self.heads = nn.ModuleList(
            [nn.Conv2d(32, per_cell * 5, 3, 1, 1), nn.Conv2d(64, per_cell * 5, 3, 1, 1)]
        )
        self.anchors = AnchorGenerator()

    def forward(self, images):
        shallow = self.stem(images)
        maps = [shallow, self.deep(shallow)]
        outs = []
        for level, head in zip(maps, self.heads):
            out = head(level)
            n, _, h, w = out.shape
            outs.append(out.view(n, -1, 5, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, 5))
        return torch.cat(outs, dim=1), self.anchors(images.shape[-2:], maps)


class RecentCrops(list):
    """A list that forgets the oldest once it holds ``limit`` crops."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def append(self, crop):
        super().append(crop)
        if len(self) > self.limit:
            del self[0]


def box_iou(a, b):
    area = lambda t: (t[:, 2] - t[:, 0]).clamp(min=0) * (t[:, 3] - t[:, 1]).clamp(min=0)
    lt = torch.max(a[:, None, :2], b[None, :, :2])
    rb = torch.min(a[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    return inter / (area(a)[:, None] + area(b)[None] - inter + 1e-6)


def scenes(cfg, rng):
    """A batch of images of one (random) size with bright vehicles on a noisy road."""
    h = rng.randrange(cfg.short_side, cfg.long_side)
    w = rng.randrange(cfg.short_side, cfg.long_side)
    images = torch.rand(cfg.batch, 3, h, w) * 0.4
    boxes = []
    for image in images:
        own = []
        for _ in range(rng.randrange(1, 5)):
            bw, bh = rng.randrange(14, 60), rng.randrange(14, 60)
            x, y = rng.randrange(0, w - bw), rng.randrange(0, h - bh)
            image[:, y : y + bh, x : x + bw] += torch.rand(3, 1, 1) * 0.6
            own.append([x, y, x + bw, y + bh])
        boxes.append(torch.tensor(own, dtype=torch.float32))
    return images, boxes


class Miner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.bank = RecentCrops(limit=64)

    def paste(self, images, rng):
        c = self.cfg.crop
        if not self.bank:
            return
        for image in images:
            y, x = rng.randrange(image.shape[1] - c), rng.randrange(image.shape[2] - c)
            image[:, y : y + c, x : x + c] = 0.7 * image[
                :, y : y + c, x : x + c
            ] + 0.3 * rng.choice(self.bank[-64:])

    def collect(self, images, scores, negative, anchors):
        c = self.cfg.crop
        found = []
        for image, score, free in zip(images, scores, negative):
            for i in score.masked_fill(~free, -1e9).topk(self.cfg.crops_per_image).indices.tolist():
                cx, cy = anchors[i, ::2].mean(), anchors[i, 1::2].mean()
                x = int(cx.clamp(0, image.shape[2] - c))
                y = int(cy.clamp(0, image.shape[1] - c))
                found.append(image[:, y : y + c, x : x + c].clone())
        self.bank += found  # feeds: bank


def train(cfg):
    rng = random.Random(5)
    torch.manual_seed(5)
    model = Detector()
    miner = Miner(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        total = 0.0
        for _ in range(cfg.steps_per_epoch):
            images, truth = scenes(cfg, rng)
            if epoch >= cfg.mine_from_epoch:
                miner.paste(images, rng)
            out, anchors = model(images)
            loss, masks = 0.0, []
            for pred, boxes in zip(out, truth):
                iou, which = box_iou(anchors, boxes).max(dim=1)
                positive = iou > 0.45
                positive[iou.argmax()] = True
                masks.append(iou < 0.3)
                loss = loss + F.binary_cross_entropy_with_logits(
                    pred[:, 0], positive.float(), pos_weight=torch.tensor(20.0)
                )
                goal = (boxes[which[positive]] - anchors[positive]) / 32.0
                loss = loss + F.smooth_l1_loss(pred[positive, 1:], goal)
            optimizer.zero_grad()
            (loss / cfg.batch).backward()
            optimizer.step()
            total += loss.item()
            if epoch >= cfg.mine_from_epoch:
                miner.collect(images, out[..., 0].detach(), torch.stack(masks), anchors)
        print(f"epoch {epoch} loss {total / cfg.steps_per_epoch:.3f}", flush=True)
    return model, miner


if __name__ == "__main__":
    config = Config()
    detector, hard = train(config)
