"""Ranks that record themselves by profile(): spawned, or started by torchrun.

    profiled.py spawned|launched before|after LATE

The process group is there before profile() or made inside it; the rank LATE begins to record when
half of the training is over.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import leakscope

RANKS, EPOCHS, STEPS = 2, 6, 10


def epochs(model, optimizer, count):
    for _ in range(count):
        model.train()
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.rand(16, 64)).sum().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model.module(torch.rand(16, 64))


def rank_of(number, meeting, when, late):
    torch.manual_seed(0)
    torch.set_num_threads(1)

    def join():
        if number is None:
            dist.init_process_group("gloo")
        else:
            dist.init_process_group(
                "gloo", init_method=f"file://{meeting}", rank=number, world_size=RANKS
            )

    if when == "after":
        join()
    with contextlib.ExitStack() as scopes:
        if late != (number if number is not None else int(os.environ["RANK"])):
            scopes.enter_context(leakscope.profile(quiet=True))
        if when == "before":
            join()
        model = DistributedDataParallel(nn.Linear(64, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        epochs(model, optimizer, EPOCHS // 2)
        if late == dist.get_rank():
            scopes.enter_context(leakscope.profile(quiet=True))
        epochs(model, optimizer, EPOCHS // 2)
        dist.barrier()
    dist.destroy_process_group()


def main():
    how, when, late = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if how == "launched":
        rank_of(None, "", when, late)
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments = (str(Path(folder, "meeting")), when, late)
        torch.multiprocessing.spawn(rank_of, arguments, nprocs=RANKS)


if __name__ == "__main__":
    main()
