"""Fits scripted recurrent cells to pulses; the compiler of TorchScript specialises them on the way."""

import torch
from torch import Tensor, nn

EPOCHS, STEPS, BATCH, FEATURES, WIDTH, LENGTHS = 13, 16, 24, 8, 64, (24, 32, 40, 56)


class Cell(torch.jit.ScriptModule):
    """A light recurrent unit, whose loop is in the script."""

    def __init__(self, inputs, width):
        super().__init__()
        self.gates = nn.Linear(inputs, 2 * width)
        self.back = nn.Linear(width, width, bias=False)
        self.width = width

    @torch.jit.script_method
    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(x.shape[0], self.width)
        states = []
        for part in self.gates(x).unbind(1):
            candidate, gate = part.chunk(2, 1)
            gate = torch.sigmoid(gate + self.back(state))
            state = gate * state + (1 - gate) * torch.relu(candidate)
            states.append(state)
        return torch.stack(states, 1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.Sequential(Cell(FEATURES, WIDTH), Cell(WIDTH, WIDTH))
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.out(self.cells(x)).squeeze(2)


def pulses(random_, length):
    """Return signals, and how long ago the last pulse was in each."""
    x = torch.randn(BATCH, length, FEATURES, generator=random_)
    beats = torch.rand(BATCH, length, generator=random_) < 0.12
    x[..., 0] += 3 * beats
    since = torch.zeros(BATCH, length)
    age = torch.zeros(BATCH)
    for time in range(length):
        age = torch.where(beats[:, time], torch.zeros(BATCH), age + 1)
        since[:, time] = age
    return x, since.clamp(max=20) / 10


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random_ = torch.Generator().manual_seed(0)
    model = Model()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        total = 0.0
        for step in range(STEPS):
            # Longer signals come in later epochs.
            known = LENGTHS[: 1 + min(epoch // 2, len(LENGTHS) - 1)]
            x, wanted = pulses(random_, known[step % len(known)])
            loss = nn.functional.mse_loss(model(x), wanted)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / STEPS:.4f}", flush=True)


if __name__ == "__main__":
    main()
