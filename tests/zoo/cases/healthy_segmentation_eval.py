"""Tiny U-Net style segmentation; gathers all validation outputs of an epoch, then drops them."""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
EPOCHS = 18


def make_scenes(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    cx, cy = torch.rand(2, n, 1, 1, generator=g) * 44 + 10
    r = torch.rand(n, 1, 1, generator=g) * 10 + 5
    mask = ((xx - cx) ** 2 + (yy - cy) ** 2 < r**2).float()
    img = mask + 0.6 * torch.randn(n, 64, 64, generator=g)
    return img.unsqueeze(1), mask.unsqueeze(1)


class TinyUNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.d1 = nn.Conv2d(1, c, 3, padding=1)
        self.d2 = nn.Conv2d(c, 2 * c, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(2 * c, 2 * c, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * c, c, 2, 2)
        self.out = nn.Conv2d(2 * c, 1, 1)

    def forward(self, x):
        a = F.relu(self.d1(x))
        b = F.relu(self.mid(F.relu(self.d2(a))))
        return self.out(torch.cat([a, F.relu(self.up(b))], 1)), b


class SegmentationModule:
    def __init__(self):
        self.net = TinyUNet()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=2e-3)
        self.val_outputs = []
        self.curve = []

    def train_epoch(self, x, y):
        for idx in torch.randperm(len(x)).split(16):
            logits, _ = self.net(x[idx])
            loss = F.binary_cross_entropy_with_logits(logits, y[idx])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    def validation_step(self, x, y):
        with torch.no_grad():
            logits, feats = self.net(x)
        self.val_outputs.append({"prob": logits.sigmoid(), "target": y.clone(), "feats": feats})

    def on_validation_epoch_end(self):
        prob = torch.cat([o["prob"] for o in self.val_outputs])
        target = torch.cat([o["target"] for o in self.val_outputs])
        pred = prob > 0.5
        iou = ((pred & (target > 0)).sum() / (pred | (target > 0)).sum()).item()
        self.val_outputs.clear()
        self.curve.append(iou)
        return iou


def main():
    torch.manual_seed(12)
    x, y = make_scenes(256, 1)
    vx, vy = make_scenes(240, 2)
    module = SegmentationModule()
    start = time.time()
    for epoch in range(EPOCHS):
        loss = module.train_epoch(x, y)
        for i in range(0, len(vx), 12):
            module.validation_step(vx[i : i + 12], vy[i : i + 12])
        iou = module.on_validation_epoch_end()
        if epoch % 2 == 0:
            print(
                f"epoch {epoch} loss {loss:.4f} IoU {iou:.4f} best {max(module.curve):.4f}",
                flush=True,
            )
    print(f"done in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
