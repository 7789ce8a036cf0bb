"""Data-parallel training over gloo; a rank can be made to keep what it predicts, or to die.

    gloo.py LEAKY DYING [EPOCHS [LARGE [KEPT]]]

The rank LARGE has a large heap, so that a look at it takes longer. KEPT numbers are kept each step.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EPOCHS, STEPS = 6, 20


class Trainer:
    def __init__(self, leaky, dying, kept):
        self.rank = dist.get_rank()
        is_first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        self.leaks, self.dies = self.rank == leaky, self.rank == dying and is_first
        self.model = DistributedDataParallel(nn.Linear(64, 8))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.predictions, self.kept = [], kept

    def epoch(self, number):
        self.model.train()
        for step in range(STEPS):
            if self.dies and number == 3 and step == 10:
                os.kill(os.getpid(), signal.SIGKILL)
            output = self.model(torch.rand(16, 64))
            self.optimizer.zero_grad()
            output.sum().backward()
            self.optimizer.step()
            if self.leaks:
                self.predictions.append(torch.rand(self.kept))  # feeds
        self.validate()

    def validate(self):
        self.model.eval()
        with torch.no_grad():
            for _ in range(5):
                self.model.module(torch.rand(16, 64))


def meet():
    """Meet at the launcher's store, under names of this attempt.

    Those of the attempt before lie there still, and gloo would wait at addresses of the dead.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False)
    store = dist.PrefixStore(os.environ["TORCHELASTIC_RESTART_COUNT"], store)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)


def main():
    leaky, dying = int(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    meet()
    trainer = Trainer(leaky, dying, int(sys.argv[5]) if len(sys.argv) > 5 else 60_000)
    is_large = sys.argv[4:5] == [str(dist.get_rank())]
    trainer.index = [{"place": [n]} for n in range(60_000 * is_large)]
    for number in range(int(sys.argv[3]) if len(sys.argv) > 3 else EPOCHS):
        trainer.epoch(number)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
