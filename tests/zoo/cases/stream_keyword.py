"""Keyword spotting over an endless audio stream: an LSTM's state is carried on."""

import time

import torch
import torch.nn as nn


class StreamScorer(nn.Module):
    def __init__(self, bands=40, hidden=96, words=12):
        super().__init__()
        self.norm = nn.LayerNorm(bands)
        self.lstm = nn.LSTM(bands, hidden, batch_first=True)
        self.classify = nn.Linear(hidden, words)
        self.state = None

    def score(self, chunk):
        features = self.norm(chunk)
        out, self.state = self.lstm(features, self.state)  # feeds
        return self.classify(out[:, -1]).softmax(-1)


class Microphones:
    """Eight microphones, ten frames of 40 mel bands each time."""

    def __init__(self, seed=3):
        self.generator = torch.Generator().manual_seed(seed)

    def read(self):
        time.sleep(0.02)
        return torch.randn(8, 10, 40, generator=self.generator)


def main():
    scorer = StreamScorer().eval()
    microphones = Microphones()
    detections = [0] * 12
    for chunk_number in range(450):
        scores = scorer.score(microphones.read())
        for word in scores.argmax(-1).tolist():
            detections[word] += 1
        if chunk_number % 50 == 0:
            print("chunk", chunk_number, detections)


if __name__ == "__main__":
    main()
