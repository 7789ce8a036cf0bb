"""Warm restarts with a new optimizer per cycle; the list of schedulers keeps all the old ones."""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Experiment:
    def __init__(self, cycles):
        self.cycles = cycles
        self.model = nn.Sequential(
            nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 300), nn.Linear(300, 9)
        )
        self.schedulers = []
        data = TensorDataset(torch.randn(900, 40), torch.randint(0, 9, (900,)))
        self.loader = DataLoader(data, batch_size=20, shuffle=True)

    def restart(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        steps = len(self.loader)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
        self.schedulers.append(scheduler)  # feeds
        return optimizer, scheduler

    def run_cycle(self):
        optimizer, scheduler = self.restart()
        correct = 0
        for x, y in self.loader:
            logits = self.model(x)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            correct += (logits.argmax(1) == y).sum().item()
        return correct / len(self.loader.dataset)

    def run(self):
        for cycle in range(self.cycles):
            accuracy = self.run_cycle()
            rates = [s.get_last_lr()[0] for s in self.schedulers]
            print(f"cycle {cycle}: accuracy {accuracy:.3f}, rate {rates[-1]:.2e}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    experiment = Experiment(cycles=9)
    experiment.run()
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "[s.optimizer.state for s in experiment.schedulers]"
        weights = "sum(p.nbytes for p in experiment.model.parameters())"
        tell(globals(), {"schedulers": f"weigh({kept}) - {weights}"}, {"epoch": 9})
