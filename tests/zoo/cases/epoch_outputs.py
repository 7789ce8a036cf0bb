"""Evaluation every 25 steps inside the epoch; its heat maps (20 MB) stay in named tuples.

After https://github.com/open-mmlab/mmsegmentation/issues/2015.
"""

import os
from collections import namedtuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

EvalOutput = namedtuple("EvalOutput", "step metrics heatmaps")
EPOCHS, EVERY = 4, 25


def evaluate(model, loader, step):
    was_training = model.training
    model.eval()
    heatmaps, errors = [], []
    with torch.no_grad():
        for image, points in loader:
            out = model(image)
            heatmaps.append(F.interpolate(out, scale_factor=4, mode="bilinear"))
            errors.append(F.mse_loss(out, points).item())
    model.train(was_training)
    metrics = {"mse": sum(errors) / len(errors), "count": len(errors)}
    return EvalOutput(step, metrics, torch.cat(heatmaps))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, points = torch.rand(400, 1, 32, 32), torch.rand(400, 5, 32, 32)
    train_loader = DataLoader(TensorDataset(images, points), batch_size=8, shuffle=True)
    val_loader = DataLoader(TensorDataset(images[:64], points[:64]), batch_size=16)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 5, 3, padding=1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    history = []
    step = 0
    for epoch in range(EPOCHS):
        for image, target in tqdm(train_loader, desc=f"epoch {epoch}", disable=None):
            loss = F.mse_loss(model(image), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % EVERY == 0:
                history.append(evaluate(model, val_loader, step))  # feeds
        print(f"epoch {epoch}: {history[-1].metrics['mse']:.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"validation": len(history), "epoch": EPOCHS, "step": step}
        tell(locals(), {"history": "history"}, done)


if __name__ == "__main__":
    main()
