"""Trains a recogniser of spoken digits with CTC; utterances that are too short are left out."""

import argparse

import torch
from torch import nn

DIGITS, MELS, FRAMES_PER_DIGIT = 10, 40, 7


class BadUtterance(ValueError):
    """An utterance that CTC can't align."""


class Speech:
    """Digits spoken as patterns over mel bands, at a pace that varies."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.patterns = torch.randn(DIGITS, FRAMES_PER_DIGIT, MELS, generator=self.random)

    def number(self, low, high):
        return int(torch.randint(low, high, (1,), generator=self.random))

    def utterance(self):
        digits = torch.randint(DIGITS, (self.number(4, 9),), generator=self.random)
        sound = self.patterns[digits].flatten(0, 1)
        pace = self.number(8, 13) / 10
        if self.number(0, 100) == 0:  # cut off when the line broke
            sound, pace = sound[: len(digits) * 3], 1.0
        sound = nn.functional.interpolate(sound.T[None], scale_factor=1 / pace, mode="linear")
        sound = sound[0].T
        return sound + 0.4 * torch.randn(sound.shape, generator=self.random), digits + 1


class Recogniser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.front = nn.Conv1d(MELS, width, 5, stride=2, padding=2)
        self.body = nn.GRU(width, width, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * width, DIGITS + 1)

    def forward(self, sounds):
        hidden = self.front(sounds.transpose(1, 2)).relu().transpose(1, 2)
        return self.out(self.body(hidden)[0]).log_softmax(-1)


class Trainer:
    def __init__(self, model, speech, rate):
        self.model, self.speech = model, speech
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        self.left_out = 0
        self.last_error = None

    def collate(self, size):
        some = [self.speech.utterance() for _ in range(size)]
        sounds = nn.utils.rnn.pad_sequence([sound for sound, _ in some], batch_first=True)
        frames = torch.tensor([len(sound) for sound, _ in some])
        digits = [number for _, number in some]
        return sounds, (frames + 1) // 2, torch.cat(digits), torch.tensor([len(d) for d in digits])

    def check(self, sounds, frames, lengths):
        short = (frames < 2 * lengths).nonzero().flatten()
        if len(short):
            energy = sounds[short].square().mean((1, 2))
            raise BadUtterance(f"{len(short)} too short, of energy {energy.mean():.2f}")

    def step(self, size):
        sounds, frames, digits, lengths = self.collate(size)
        try:
            self.check(sounds, frames, lengths)
        except BadUtterance as error:
            self.left_out += 1
            # What went wrong before is of use when this is reported.
            error.__cause__ = self.last_error
            self.last_error = error
            return None
        log_probs = self.model(sounds).transpose(0, 1)
        loss = nn.functional.ctc_loss(log_probs, digits, frames, lengths, zero_infinity=True)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=420)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2e-3)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    trainer = Trainer(Recogniser(), Speech(0), options.rate)
    recent = []
    for step in range(options.steps):
        loss = trainer.step(options.batch)
        if loss is not None:
            recent.append(loss)
        if step % 60 == 59:
            print(
                f"step {step + 1}: {sum(recent) / len(recent):.3f}, {trainer.left_out} left out, "
                f"the last: {trainer.last_error}",
                flush=True,
            )
            recent.clear()


if __name__ == "__main__":
    main()
