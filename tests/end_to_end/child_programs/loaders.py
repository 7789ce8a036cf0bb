"""Two trainings in child processes, each with a loader's worker; number WHO keeps its samples."""

import sys
import time
from multiprocessing import get_context

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, keeps):
        self.keeps = keeps
        self.cache = {}

    def __len__(self):
        return 320

    def __getitem__(self, number):
        sample = torch.randn(2000)
        if self.keeps:
            self.cache[len(self.cache)] = sample
        return sample


def train(keeps):
    torch.set_num_threads(1)
    model = nn.Linear(2000, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Samples(keeps), batch_size=16, num_workers=1, persistent_workers=True)
    for _ in range(8):
        for samples in loader:
            optimizer.zero_grad()
            model(samples).sum().backward()
            optimizer.step()
            time.sleep(0.005)


if __name__ == "__main__":
    context = get_context(sys.argv[1])
    trainings = [context.Process(target=train, args=(sys.argv[2] == str(n),)) for n in (1, 2)]
    for training in trainings:
        training.start()
    for training in trainings:
        training.join()
