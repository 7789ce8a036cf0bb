"""Trains an autoencoder of spectra and profiles two steps of every epoch; each profile is let go."""

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

EPOCHS, STEPS, BATCH, BANDS = 12, 22, 48, 256


class Spectra:
    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.lines = torch.rand(12, generator=self.random) * BANDS

    def batch(self):
        place = torch.arange(BANDS)
        width = 2 + 4 * torch.rand(BATCH, 1, 1, generator=self.random)
        peaks = torch.exp(-(((place - self.lines[:, None]) / width) ** 2))
        strength = torch.rand(BATCH, 12, 1, generator=self.random)
        clean = (strength * peaks).sum(1)
        return clean + 0.1 * torch.randn(BATCH, BANDS, generator=self.random), clean


class Autoencoder(nn.Module):
    def __init__(self, width=256, code=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(BANDS, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
            nn.Linear(width, code),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(code, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
            nn.Linear(width, BANDS),
        )  # fmt: skip

    def forward(self, x):
        with record_function("encode"):
            code = self.encoder(x)
        with record_function("decode"):
            return self.decoder(code)


class Budget:
    """Where the time goes: a few numbers of each profile."""

    def __init__(self):
        self.shares = {}

    def read(self, profiler):
        events = profiler.key_averages()
        whole = sum(event.self_cpu_time_total for event in events) or 1
        for name in ("encode", "decode"):
            time = sum(event.cpu_time_total for event in events if event.key == name)
            self.shares[name] = time / whole


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, spectra, budget = Autoencoder(), Spectra(0), Budget()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        total = 0.0
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=4, warmup=1, active=2, repeat=1),
            on_trace_ready=budget.read,
            record_shapes=True,
        ) as profiler:
            for _ in range(STEPS):
                x, clean = spectra.batch()
                loss = nn.functional.mse_loss(model(x), clean)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += loss.item()
                profiler.step()
        print(f"epoch {epoch}: {total / STEPS:.4f}, {budget.shares}", flush=True)


if __name__ == "__main__":
    main()
