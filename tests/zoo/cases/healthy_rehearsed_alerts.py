"""Watches machines with a small autoencoder in rehearsal: alerts go to a stand-in that is reset."""

from unittest.mock import MagicMock

import torch
from torch import nn

STEPS, MACHINES, SENSORS, REVIEW = 800, 48, 128, 80


class Plant:
    """Readings of machines of which some wear out and are mended."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.mix = torch.randn(8, SENSORS, generator=self.random)
        self.wear = torch.zeros(MACHINES)

    def read(self):
        self.wear += 0.01 * torch.rand(MACHINES, generator=self.random)
        self.wear[self.wear > 1] = 0
        load = torch.randn(MACHINES, 8, generator=self.random)
        noise = torch.randn(MACHINES, SENSORS, generator=self.random)
        return load @ self.mix / 3 + (0.2 + self.wear[:, None] ** 2) * noise


class Watch:
    def __init__(self, pager, limit=2.0):
        self.pager, self.limit = pager, limit
        self.model = nn.Sequential(
            nn.Linear(SENSORS, 192), nn.GELU(), nn.Linear(192, 8), nn.Linear(8, 192), nn.GELU(),
            nn.Linear(192, SENSORS),
        )  # fmt: skip
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.usual = None

    def step(self, readings):
        rebuilt = self.model(readings)
        error = (rebuilt - readings).square().mean(1)
        loss = error.median()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        level = error.detach().median().item()
        self.usual = level if self.usual is None else 0.98 * self.usual + 0.02 * level
        odd = (error.detach() > self.limit * self.usual).nonzero().flatten()
        residual = (rebuilt - readings).detach()
        self.pager.snapshot(readings=readings, residual=residual)
        for machine in odd.tolist():
            self.pager.alert(machine, residual[machine].clone())
        return loss.item()


def review(pager):
    """Look at what would have been sent, and begin a new rehearsal."""
    alerts = [call for call in pager.mock_calls if call[0] == "alert"]
    worst = max((call.args[1].abs().max().item() for call in alerts), default=0.0)
    pager.reset_mock()
    return len(alerts), worst


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    pager = MagicMock(name="pager")
    plant, watch = Plant(0), Watch(pager)
    for step in range(1, STEPS + 1):
        loss = watch.step(plant.read())
        if step % REVIEW == 0:
            count, worst = review(pager)
            print(f"step {step}: loss {loss:.3f}, {count} alerts, worst {worst:.2f}", flush=True)


if __name__ == "__main__":
    main()
