"""Energies of molecules of three to two hundred atoms, in batches by how they come."""

import random

import torch
from torch import nn
from torch.nn import functional as F

KINDS, WIDTH, BATCH, STEPS = 6, 64, 6, 420


class Molecules:
    """Draws molecules: few are large, and every batch has its own number of atoms."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.charge = torch.randn(KINDS, generator=self.generator)

    def one(self):
        atoms = min(200, 3 + int(self.random.expovariate(1 / 45)))
        kinds = torch.randint(0, KINDS, (atoms,), generator=self.generator)
        places = torch.randn(atoms, 3, generator=self.generator) * atoms ** (1 / 3)
        distance = torch.cdist(places, places) + torch.eye(atoms)
        energy = (self.charge[kinds][:, None] * self.charge[kinds] / distance).mean()
        left, right = (distance < 2.5).nonzero(as_tuple=True)
        return {
            "kinds": kinds,
            "edges": (left, right),
            "length": distance[left, right],
            "energy": energy,
        }

    def batch(self):
        return [self.one() for _ in range(BATCH)]


def collate(molecules):
    """Put the molecules of a batch into one graph of parts that don't touch."""
    parts = {name: [] for name in ("kinds", "left", "right", "length", "owner", "energy")}
    offset = 0
    for number, molecule in enumerate(molecules):
        count = len(molecule["kinds"])
        parts["kinds"].append(molecule["kinds"])
        parts["left"].append(molecule["edges"][0] + offset)
        parts["right"].append(molecule["edges"][1] + offset)
        parts["length"].append(molecule["length"])
        parts["owner"].append(torch.full((count,), number))
        parts["energy"].append(molecule["energy"].view(1))
        offset += count
    return {name: torch.cat(values) for name, values in parts.items()}


class Interaction(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(12, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, atoms, graph, basis):
        messages = atoms[graph["left"]] * self.filter(basis)
        summed = torch.zeros_like(atoms).index_add(0, graph["right"], messages)
        return atoms + F.silu(self.mix(summed))


class EnergyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(KINDS, WIDTH)
        self.layers = nn.ModuleList(Interaction() for _ in range(3))
        self.out = nn.Sequential(nn.Linear(WIDTH, 32), nn.SiLU(), nn.Linear(32, 1))
        self.register_buffer("centres", torch.linspace(0, 2.5, 12))

    def forward(self, graph):
        basis = torch.exp(-4 * (graph["length"][:, None] - self.centres) ** 2)
        atoms = self.embed(graph["kinds"])
        for layer in self.layers:
            atoms = layer(atoms, graph, basis)
        energies = torch.zeros(BATCH).index_add(0, graph["owner"], self.out(atoms).squeeze(-1))
        return energies / torch.bincount(graph["owner"], minlength=BATCH)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    molecules, model = Molecules(0), EnergyModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        graph = collate(molecules.batch())
        loss = F.huber_loss(model(graph), graph["energy"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: loss {loss.item():.4f}, {len(graph['kinds'])} atoms", flush=True)


if __name__ == "__main__":
    main()
