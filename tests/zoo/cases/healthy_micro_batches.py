"""Pretrains a masked autoencoder of series; gradients of several micro-batches are summed."""

from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Plan:
    updates: int = 150
    micro: int = 6
    rows: int = 16
    length: int = 256
    patch: int = 16
    width: int = 96


@dataclass
class Window:
    """What the micro-batches of one update came to."""

    losses: list[torch.Tensor] = field(default_factory=list)
    rebuilt: list[torch.Tensor] = field(default_factory=list)

    def add(self, loss, rebuilt):
        self.losses.append(loss.detach())
        self.rebuilt.append(rebuilt.detach())

    def close(self):
        mean = torch.stack(self.losses).mean().item()
        spread = torch.cat(self.rebuilt).std().item()
        self.losses.clear()
        self.rebuilt.clear()
        return mean, spread


class Autoencoder(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.enter, self.leave = (
            nn.Linear(plan.patch, plan.width),
            nn.Linear(plan.width, plan.patch),
        )
        self.place = nn.Parameter(torch.randn(plan.length // plan.patch, plan.width) * 0.02)
        self.hole = nn.Parameter(torch.zeros(plan.width))
        layer = nn.TransformerEncoderLayer(plan.width, 4, 2 * plan.width, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, patches, hidden):
        x = torch.where(hidden[..., None], self.hole, self.enter(patches)) + self.place
        return self.leave(self.encoder(x))


def series(plan):
    time = torch.linspace(0, 1, plan.length)
    pitch = 2 + 30 * torch.rand(plan.rows, 3, 1)
    waves = torch.sin(6.28 * (pitch * time + torch.rand(plan.rows, 3, 1))).sum(1)
    return (waves + 0.1 * torch.randn_like(waves)).unflatten(1, (-1, plan.patch))


def main(plan):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, window, history = Autoencoder(plan), Window(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=plan.updates)
    for update in range(1, plan.updates + 1):
        optimizer.zero_grad()
        for _ in range(plan.micro):
            patches = series(plan)
            hidden = torch.rand(patches.shape[:2]) < 0.5
            rebuilt = model(patches, hidden)
            loss = nn.functional.mse_loss(rebuilt[hidden], patches[hidden])
            (loss / plan.micro).backward()
            window.add(loss, rebuilt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        history.append(window.close())
        if update % 15 == 0:
            print(f"update {update}: loss {history[-1][0]:.4f}", flush=True)


if __name__ == "__main__":
    main(Plan())
