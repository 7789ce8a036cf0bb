"""Two ranks of ``torch.multiprocessing.spawn``; that of this number keeps a tensor each step."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

KEPT = []
SIZE = 2


def train(rank, who, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=SIZE)
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(300):
        loss = model(torch.randn(32, 64)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == who:
            KEPT.append(torch.zeros(40_000))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(
        train, args=(int(sys.argv[1]), str(Path("store").absolute())), nprocs=SIZE
    )
