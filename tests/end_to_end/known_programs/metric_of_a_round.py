"""A metric that is reset as it should be, and keeps all of a validation until then."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAUROC

EPOCHS, CLASSES = 4, 512


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(32, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train = TensorDataset(torch.rand(640, 32), torch.randint(0, CLASSES, (640,)))
    held = TensorDataset(torch.rand(6400, 32), torch.randint(0, CLASSES, (6400,)))
    metric = MulticlassAUROC(CLASSES, thresholds=None, average=None)
    for epoch in range(EPOCHS):
        model.train()
        for x, y in DataLoader(train, batch_size=32):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, y in DataLoader(held, batch_size=128):
                metric.update(model(x).softmax(-1), y)
        print("epoch", epoch, "batches", len(metric.preds))
        metric.reset()


if __name__ == "__main__":
    main()
