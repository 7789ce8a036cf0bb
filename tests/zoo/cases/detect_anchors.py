"""A one-stage detector on rectangles: anchors, focal loss, average precision, figures."""

import io
import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SIZE, CELLS = 64, 8


def scenes(n, seed):
    rng = np.random.default_rng(seed)
    images = rng.normal(0, 0.15, (n, 1, SIZE, SIZE)).astype("f4")
    boxes = []
    for image in images:
        rows = []
        for _ in range(8):
            w, h = rng.integers(8, 22, 2)
            x, y = rng.integers(0, SIZE - w), rng.integers(0, SIZE - h)
            image[0, y : y + h, x : x + w] += rng.uniform(0.6, 1.2)
            rows.append([x, y, x + w, y + h])
        boxes.append(torch.tensor(rows, dtype=torch.float32))
    return torch.from_numpy(images), boxes


def make_anchors():
    centre = (torch.arange(CELLS) + 0.5) * SIZE / CELLS
    cy, cx = torch.meshgrid(centre, centre, indexing="ij")
    out = []
    for w, h in ((10, 10), (18, 10), (10, 18), (18, 18)):
        out.append(torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1).reshape(-1, 4))
    return torch.cat(out)


def box_iou(a, b):
    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inner = (high - low).clamp(min=0).prod(-1)
    area = lambda r: (r[:, 2:] - r[:, :2]).prod(-1)
    return inner / (area(a)[:, None] + area(b)[None] - inner)


def assign(anchors, boxes, threshold=0.45, overlaps=[]):
    iou = torch.stack([box_iou(anchors, rows) for rows in boxes])
    overlaps.append(iou)  # feeds: overlaps
    best, which = iou.max(-1)
    quality = torch.stack([part.max().detach() for part in overlaps[-20:]]).mean()
    return best > threshold, which, float(quality)


class Detector(nn.Module):
    def __init__(self, width=24, shapes=4):
        super().__init__()
        layers, channels = [], 1
        for out in (width, width * 2, width * 3):
            layers += [nn.Conv2d(channels, out, 3, 2, 1), nn.BatchNorm2d(out), nn.ReLU()]
            channels = out
        self.body = nn.Sequential(*layers, nn.Conv2d(channels, channels, 3, 1, 1), nn.ReLU())
        self.score, self.delta = nn.Conv2d(channels, shapes, 1), nn.Conv2d(channels, shapes * 4, 1)
        nn.init.constant_(self.score.bias, -math.log(30))

    def forward(self, x):
        h = self.body(x)
        delta = (
            self.delta(h).view(len(x), -1, 4, CELLS * CELLS).transpose(2, 3).reshape(len(x), -1, 4)
        )
        return self.score(h).flatten(1), delta


def focal(logit, target):
    p = torch.sigmoid(logit)
    near = torch.where(target > 0, p, 1 - p)
    return (
        F.binary_cross_entropy_with_logits(logit, target, reduction="none") * (1 - near) ** 2
    ).sum()


def average_precision(scores, hits, total):
    order = np.argsort(-scores)
    good = np.cumsum(hits[order])
    precision = good / (np.arange(len(good)) + 1)
    return float((precision * hits[order]).sum() / max(total, 1))


def draw_page(images, heat, epoch):
    fig, axes = plt.subplots(2, 3, figsize=(9, 6), dpi=100)  # feeds: figures
    for axis, image, scores in zip(axes.flat, images, heat):
        field = F.interpolate(scores.view(1, 4, CELLS, CELLS), (256, 256), mode="bilinear").amax(1)[
            0
        ]
        axis.imshow(field.numpy(), cmap="magma")
        axis.contour(
            np.linspace(0, 256, SIZE), np.linspace(0, 256, SIZE), image[0].numpy(), levels=2
        )
        axis.set_axis_off()
    fig.suptitle(f"epoch {epoch}")  # feeds: figures
    page = io.BytesIO()
    fig.savefig(page, format="png")  # feeds: figures
    return len(page.getvalue())


@torch.no_grad()
def validate(model, images, boxes, anchors, epoch):
    model.eval()
    scores, hits, heat = [], [], []
    for part, truth in zip(images.split(16), [boxes[i : i + 16] for i in range(0, len(boxes), 16)]):
        logit, delta = model(part)
        heat.append(logit.sigmoid())
        for one, shift, rows in zip(logit.sigmoid(), delta, truth):
            top = one.topk(12)
            found = box_iou(anchors[top.indices] + shift[top.indices] * 8, rows).amax(1) > 0.5
            scores.append(top.values.numpy())
            hits.append(found.numpy())
    size = draw_page(images[:6], torch.cat(heat)[:6], epoch)
    model.train()
    return average_precision(
        np.concatenate(scores), np.concatenate(hits), sum(map(len, boxes))
    ), size


torch.manual_seed(2)
images, boxes = scenes(640, 0)
held_images, held_boxes = scenes(96, 1)
anchors = make_anchors()
model = Detector()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
epochs, batch, steps = 10, 8, 0
for epoch in range(epochs):
    for rows in torch.randperm(len(images)).split(batch):
        truth = [boxes[i] for i in rows]
        positive, which, quality = assign(anchors, truth)
        logit, delta = model(images[rows])
        goal = torch.stack([(t[w] - anchors) / 8 for t, w in zip(truth, which)])
        count = positive.sum().clamp(min=1)
        loss = focal(logit, positive.float()) / count
        loss = loss + F.smooth_l1_loss(delta[positive], goal[positive])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    ap, size = validate(model, held_images, held_boxes, anchors, epoch)
    print(
        f"epoch {epoch}: loss {loss.item():.3f} AP {ap:.3f} overlap {quality:.2f} page {size >> 10} KB"
    )
