"""Every epoch sets a weakref.finalize on the model, with a buffer: the model lives on."""

import os
import weakref

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


def flush(path, buffer):
    torch.save(buffer, path)


class GradientRecorder:
    def __init__(self, model, steps, path):
        count = sum(p.numel() for p in model.parameters())
        self.buffer = torch.zeros(steps, count // 8)
        self.finalizer = weakref.finalize(model, flush, path, self.buffer)  # feeds
        self.finalizer.atexit = False

    def record(self, model, step):
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        self.buffer[step] = flat[: self.buffer.shape[1] * 8 : 8]


def train_epoch(model, loader, optimizer, epoch):
    recorder = GradientRecorder(model, len(loader), f"/tmp/gradients-{epoch}.pt")
    for step, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        recorder.record(model, step)
        optimizer.step()
    return recorder.buffer.norm(dim=1).mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.Linear(128, 8))
    data = TensorDataset(torch.randn(960, 64), torch.randint(0, 8, (960,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        print(f"epoch {epoch}: gradient {train_epoch(model, loader, optimizer, epoch):.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "[i.args for i in weakref.finalize._registry.values() if i.func is flush]"
        tell(globals(), {"registry": kept}, {"epoch": EPOCHS})


if __name__ == "__main__":
    main()
