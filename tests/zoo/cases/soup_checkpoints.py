"""Trains a regressor of molecules; every fourth epoch a checkpoint is held for a soup of the best."""

import io

import torch
from torch import nn

EPOCHS, STEPS, EVERY, BATCH, ATOMS, FEATURES, WIDTH, BEST = 56, 9, 4, 32, 12, 16, 128, 3


class Molecules:
    """Sets of atoms, whose energy comes from pairs."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.kinds = torch.randn(8, FEATURES, generator=torch.Generator().manual_seed(9))

    def batch(self, size=BATCH):
        kinds = torch.randint(8, (size, ATOMS), generator=self.random)
        places = torch.rand(size, ATOMS, 3, generator=self.random) * 3
        distance = torch.cdist(places, places) + 0.5
        charge = (kinds % 3 - 1).float()
        energy = (charge[:, :, None] * charge[:, None] / distance).sum((1, 2))
        features = torch.cat([self.kinds[kinds], places], 2)
        return features, energy / 4


class Interaction(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(FEATURES + 3, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, atoms):
        return self.out(self.layers(self.embed(atoms)).mean(1)).squeeze(1)


class Soup:
    """Holds checkpoints as bytes, the best of which are averaged at the end."""

    def __init__(self, best):
        self.best = best
        self.held = []

    def add(self, error, model):
        stream = io.BytesIO()
        torch.save(model.state_dict(), stream)
        self.held.append((error, stream))
        best = sorted(self.held, key=lambda pair: pair[0])[: self.best]
        for pair in self.held:
            if pair not in best:
                pair[1].seek(0)  # may be written over

    def average(self):
        best = sorted(self.held, key=lambda pair: pair[0])[: self.best]
        total = None
        for _, stream in best:
            stream.seek(0)
            state = torch.load(stream, weights_only=True)
            total = state if total is None else {k: total[k] + state[k] for k in total}
        return {name: value / len(best) for name, value in total.items()}


@torch.no_grad()
def validate(model, molecules):
    model.eval()
    errors = []
    for _ in range(4):
        atoms, energy = molecules.batch()
        errors.append((model(atoms) - energy).abs().mean().item())
    model.train()
    return sum(errors) / len(errors)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, molecules, held = Interaction(), Molecules(0), Molecules(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    soup = Soup(BEST)
    for epoch in range(EPOCHS):
        total = 0.0
        for _ in range(STEPS):
            atoms, energy = molecules.batch()
            loss = nn.functional.smooth_l1_loss(model(atoms), energy)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
        error = validate(model, held)
        if epoch % EVERY == 0:
            soup.add(error, model)
        if epoch % 8 == 7:
            print(f"epoch {epoch}: {total / STEPS:.4f}, held out {error:.4f}", flush=True)
    model.load_state_dict(soup.average())
    print(f"soup: {validate(model, held):.4f}", flush=True)


if __name__ == "__main__":
    main()
