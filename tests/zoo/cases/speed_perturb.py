"""Trains a speaker classifier on audio whose speed and loudness are perturbed at random."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

RATE, SPEAKERS, BATCH = 8000, 24, 8


class Resampler:
    """Polyphase resampling by a windowed sinc; kernels are computed once for each ratio."""

    _kernels: dict = {}

    def __init__(self, zeros=12, phases=64):
        self.zeros, self.phases = zeros, phases

    def kernel(self, ratio):
        found = self._kernels.get(ratio)
        if found is None:
            cutoff = min(1.0, ratio) * 0.95
            width = math.ceil(self.zeros / cutoff)
            at = (
                torch.arange(-width, width + 1)[None]
                - torch.arange(self.phases)[:, None] / self.phases
            )
            window = torch.cos(at / (width + 1) * math.pi / 2).clamp(min=0) ** 2
            found = torch.special.sinc(at * cutoff) * cutoff * window
            self._kernels[ratio] = found
        return found

    def __call__(self, wave, ratio):
        kernel = self.kernel(ratio)
        width = kernel.shape[1] // 2
        places = torch.arange(int(len(wave) * ratio)) / ratio
        whole = places.long()
        phase = ((places - whole) * self.phases).long()
        padded = nn.functional.pad(wave, (width, width + 1))
        taps = padded.unfold(0, kernel.shape[1], 1)[whole]
        return (taps * kernel[phase]).sum(1)


class Utterances(IterableDataset):
    """Voices with a pitch and formants of their own, cut at random lengths."""

    def __init__(self, seed, count):
        self.seed, self.count = seed, count
        self.resample = Resampler()

    def __iter__(self):
        random = torch.Generator().manual_seed(self.seed)
        pitch = 80 + 180 * torch.rand(SPEAKERS, generator=random)
        formants = 300 + 2500 * torch.rand(SPEAKERS, 3, generator=random)
        for _ in range(self.count):
            speaker = int(torch.randint(SPEAKERS, (), generator=random))
            seconds = 0.4 + 1.2 * float(torch.rand((), generator=random)) ** 2
            at = torch.arange(int(RATE * seconds)) / RATE
            buzz = torch.sin(2 * math.pi * pitch[speaker] * at).sign()
            tone = torch.sin(2 * math.pi * formants[speaker][:, None] * at).sum(0)
            noise = torch.randn(len(at), generator=random)
            wave = 0.3 * buzz * tone + 0.05 * noise
            speed = 1 + 0.1 * float(torch.randn((), generator=random).clamp(-2, 2))
            yield self.resample(wave, speed), speaker


def collate(pairs):
    waves, speakers = zip(*pairs, strict=True)
    return nn.utils.rnn.pad_sequence(list(waves), batch_first=True), torch.tensor(speakers)


class Voice(nn.Module):
    def __init__(self, bands=64, width=96):
        super().__init__()
        self.register_buffer("window", torch.hann_window(256))
        self.bands = nn.Linear(129, bands)
        self.body = nn.Sequential(
            nn.Conv1d(bands, width, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(width),
            nn.Conv1d(width, width, 5, stride=2, padding=2), nn.ReLU(),
        )  # fmt: skip
        self.out = nn.Linear(width, SPEAKERS)

    def forward(self, waves):
        spectra = torch.stft(waves, 256, 80, window=self.window, return_complex=True).abs()
        bands = self.bands(spectra.transpose(1, 2)).relu().log1p().transpose(1, 2)
        return self.out(self.body(bands).mean(2))


def main(epochs=5, batches=60):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Voice()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        loader = DataLoader(Utterances(epoch, batches * BATCH), BATCH, collate_fn=collate)
        right = 0
        for waves, speakers in loader:
            scores = model(waves)
            loss = nn.functional.cross_entropy(scores, speakers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == speakers).sum().item()
        print(f"epoch {epoch}: {right / batches / BATCH:.3f} right", flush=True)


if __name__ == "__main__":
    main()
