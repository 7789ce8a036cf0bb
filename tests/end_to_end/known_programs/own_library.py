"""A library of the project's own, whose recorder keeps every sample."""

import torch
from recorder import Recorder
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(32, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.rand(640, 32), torch.randint(0, 512, (640,)))
    recorder = Recorder()
    for epoch in range(EPOCHS):
        for x, y in DataLoader(data, batch_size=32):
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.record(logits)
        print("epoch", epoch, "kept", len(recorder.samples))


if __name__ == "__main__":
    main()
