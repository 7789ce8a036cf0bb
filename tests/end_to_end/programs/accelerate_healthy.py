"""A training loop around accelerate: accumulated gradients, a scheduler, gathered metrics."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def dataset(count):
    return TensorDataset(torch.rand(count, 64), torch.randint(0, 512, (count,)))


def evaluate(accelerator, model, loader):
    model.eval()
    correct = []
    for x, y in loader:
        with torch.no_grad():
            prediction = model(x).argmax(-1)
        prediction, y = accelerator.gather_for_metrics((prediction, y))
        correct.append(prediction == y)
    return float(torch.cat(correct).float().mean())


def main():
    torch.set_num_threads(1)
    set_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
    train_loader = DataLoader(dataset(1600), batch_size=16, shuffle=True)
    val_loader = DataLoader(dataset(1280), batch_size=32)
    model, optimizer, train_loader, val_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, val_loader, scheduler
    )
    steps = 0
    for epoch in range(8):
        model.train()
        total = 0.0
        for x, y in train_loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            steps += accelerator.sync_gradients
            total += loss.item()
        accuracy = evaluate(accelerator, model, val_loader)
        accelerator.print("epoch", epoch, "loss", total / len(train_loader), "accuracy", accuracy)
    accelerator.print("steps", steps, "loss", total)


if __name__ == "__main__":
    main()
