"""Averaged weights of ``torch.optim.swa_utils``: a moving average, then stochastic averaging."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

EPOCHS, FROM = 8, 4


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(128, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 10)
    )
    moving = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999), use_buffers=True)
    averaged = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, FROM)
    constant = SWALR(optimizer, swa_lr=0.01, anneal_epochs=2)
    labels = torch.randint(0, 10, (3200,))
    weights = 1.0 / torch.bincount(labels)[labels]
    data = TensorDataset(torch.rand(3200, 128), labels)
    loader = DataLoader(data, batch_size=16, sampler=WeightedRandomSampler(weights, len(data)))
    val_loader = DataLoader(data, batch_size=128)
    for epoch in range(EPOCHS):
        model.train()
        for x, y in loader:
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            moving.update_parameters(model)
        if epoch < FROM:
            schedule.step()
        else:
            averaged.update_parameters(model)
            constant.step()
            update_bn(loader, averaged)
        moving.eval()
        with torch.no_grad():
            right = sum(int((moving(x).argmax(1) == y).sum()) for x, y in val_loader)
        print("epoch", epoch, "right", right, "rate", optimizer.param_groups[0]["lr"])


if __name__ == "__main__":
    main()
