"""Network morphism search on a tabular regression problem.

A population of one: in every round a random hidden layer of the current network is
swapped for a new one of another width or activation, trained for a while, and the
change is kept only when the validation error improves.
"""

import copy
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "silu": nn.SiLU}
WIDTHS = (96, 128, 160, 192, 224, 256)
FEATURES = 64
TRUNK = 192


def make_tables(n_train=3584, n_valid=1024):
    g = torch.Generator().manual_seed(5)
    x = torch.randn(n_train + n_valid, FEATURES, generator=g)
    w = torch.randn(FEATURES, 6, generator=g) / 8
    z = x @ w
    y = torch.sin(2 * z[:, 0]) + z[:, 1] * z[:, 2] + z[:, 3].abs() + 0.3 * z[:, 4] ** 2
    y = y + 0.05 * torch.randn(len(y), generator=g)
    return (x[:n_train], y[:n_train]), (x[n_train:], y[n_train:])


class Cell(nn.Module):
    def __init__(self, width, activation):
        super().__init__()
        self.spec = (width, activation)
        self.up = nn.Linear(TRUNK, width)
        self.act = ACTIVATIONS[activation]()
        self.down = nn.Linear(width, TRUNK)
        nn.init.zeros_(self.down.weight)

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


class SearchNet(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.inp = nn.Linear(FEATURES, TRUNK)
        self.cells = nn.ModuleList(Cell(128, "relu") for _ in range(depth))
        self.out = nn.Linear(TRUNK, 1)

    def forward(self, x):
        h = self.inp(x)
        for cell in self.cells:
            h = cell(h)
        return self.out(h).squeeze(-1)

    def describe(self):
        return " ".join(f"{w}{a[0]}" for w, a in (c.spec for c in self.cells))


def mutate(net, optimizer, rng, lr):
    slot = rng.randrange(len(net.cells))
    previous = net.cells[slot]
    fresh = Cell(rng.choice(WIDTHS), rng.choice(sorted(ACTIVATIONS)))
    net.cells[slot] = fresh
    optimizer.add_param_group({"params": list(fresh.parameters()), "lr": lr})
    return slot, previous


def fit(net, optimizer, loader, epochs=1):
    net.train()
    for _ in range(epochs):
        for xb, yb in loader:
            loss = nn.functional.mse_loss(net(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()


@torch.inference_mode()
def validation_error(net, table):
    net.eval()
    return nn.functional.mse_loss(net(table[0]), table[1]).item()


def search(rounds=44, lr=1e-3):
    rng = random.Random(21)
    train, valid = make_tables()
    loader = DataLoader(TensorDataset(*train), batch_size=64, shuffle=True)
    net = SearchNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    fit(net, optimizer, loader)
    best = validation_error(net, valid)
    for round_no in range(rounds):
        backup = copy.deepcopy(net.state_dict())
        slot, previous = mutate(net, optimizer, rng, lr)
        fit(net, optimizer, loader)
        error = validation_error(net, valid)
        accepted = error < best
        if accepted:
            best = error
        else:
            net.cells[slot] = previous
            net.load_state_dict(backup)
        mark = "+" if accepted else "-"
        print(
            f"round {round_no:02d} {mark} mse {error:.4f} best {best:.4f} [{net.describe()}]",
            flush=True,
        )
    return net


if __name__ == "__main__":
    torch.manual_seed(21)
    search()
