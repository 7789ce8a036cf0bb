"""Evaluation leaves its loader after some batches, and makes a new one for the next epoch."""

import torch
from accelerate import Accelerator
from accelerate.data_loader import prepare_data_loader
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS = 10


class Rows(Dataset):
    def __init__(self):
        self.rows = torch.rand(4096, 256)

    def __len__(self):
        return 640

    def __getitem__(self, index):
        return self.rows[index]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(256, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, train = accelerator.prepare(
        model, optimizer, DataLoader(Rows(), batch_size=32)
    )
    for _ in range(EPOCHS):
        model.train()
        for x in train:
            optimizer.zero_grad()
            accelerator.backward(model(x).square().mean())
            optimizer.step()
        model.eval()
        held = prepare_data_loader(DataLoader(Rows(), batch_size=32))
        with torch.no_grad():
            for number, x in enumerate(held):
                model(x)
                if number == 5:
                    break


if __name__ == "__main__":
    main()
