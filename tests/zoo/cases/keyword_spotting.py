"""Keyword spotting on synthetic speech-like clips, with worker-side feature caching."""

import math
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
SR = 8000
N_WORDS = 8


def synth_clip(index):
    rng = np.random.default_rng(index)
    word = index % N_WORDS
    t = np.arange(SR) / SR
    f0 = 180 + 70 * word
    sig = np.sin(2 * np.pi * f0 * t) + 0.5 * np.sin(2 * np.pi * (f0 * 2.5) * t)
    return (sig + rng.normal(0, 0.5, SR)).astype(np.float32), word


class SpeechClips(Dataset):
    def __init__(self, n_clips, n_fft=256, hop=128):
        self.n_clips = n_clips
        self.n_fft = n_fft
        self.hop = hop
        self.window = torch.hann_window(n_fft)
        self._features = {}

    def __len__(self):
        return self.n_clips

    def _spectrogram(self, wave, shift):
        wave = torch.roll(torch.from_numpy(wave), shift)
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        return spec.abs().clamp_(min=1e-5).log_()

    def __getitem__(self, index):
        # random time shift as augmentation; the features are expensive, so keep them
        shift = int(torch.randint(-SR // 4, SR // 4, (1,)))
        key = (index, shift)
        if key not in self._features:
            wave, word = synth_clip(index)
            self._features[key] = (self._spectrogram(wave, shift), word)
        return self._features[key]


class KwsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=(3, 2)),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d((4, 4)),
        )
        self.fc = nn.Linear(16 * 16, N_WORDS)

    def forward(self, x):
        return self.fc(self.conv(x.unsqueeze(1)).flatten(1))


def main():
    torch.manual_seed(3)
    data = SpeechClips(n_clips=160)
    gen = torch.Generator().manual_seed(3)
    loader = DataLoader(
        data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True, generator=gen
    )
    net = KwsNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    start = time.time()
    for epoch in range(17):
        correct = seen = 0
        for x, y in loader:
            out = net(x)
            loss = loss_fn(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            correct += int((out.argmax(1) == y).sum())
            seen += len(y)
            time.sleep(0.04)  # other work of the step (logging, metrics push)
        assert math.isfinite(loss.item())
        print(f"epoch {epoch} acc {correct / seen:.3f} {time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    main()
