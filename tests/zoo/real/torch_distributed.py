"""Distributed data parallel training of one process over gloo, with a sampler set each epoch."""

import os
import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main():
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    dist.init_process_group("gloo", rank=0, world_size=1)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 10))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(2400, 256), torch.randint(0, 10, (2400,)))
    sampler = DistributedSampler(data)
    train_loader = DataLoader(data, batch_size=16, sampler=sampler)
    val_loader = DataLoader(data, batch_size=128)
    for epoch in range(7):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        right = torch.zeros(1)
        with torch.no_grad():
            for x, y in val_loader:
                right += (model(x).argmax(1) == y).sum()
        dist.all_reduce(right)
        gathered = [None]
        dist.all_gather_object(gathered, {"epoch": epoch, "right": right.item()})
        print(gathered[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
