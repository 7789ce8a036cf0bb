"""Character GRU language model with a batch-size and sequence-length curriculum."""

import random
import time

import torch
import torch.nn as nn

torch.set_num_threads(1)
STEPS = 210
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seven",
    "wizards",
    "brew",
    "potent",
    "mead",
]


def make_text(n_words, seed):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(n_words))


class CharLM(nn.Module):
    def __init__(self, n_chars, d=96):
        super().__init__()
        self.emb = nn.Embedding(n_chars, 32)
        self.rnn = nn.GRU(32, d, batch_first=True)
        self.out = nn.Linear(d, n_chars)

    def forward(self, x, h=None):
        y, h = self.rnn(self.emb(x), h)
        return self.out(y), h


class Curriculum:
    """Batch and sequence grow until a third of the training, then stay."""

    def __init__(self, total):
        self.ramp = total // 3

    def at(self, step):
        f = min(1.0, (step + 1) / self.ramp)
        return 8 + int(56 * f), 16 + int(80 * f)


class HiddenStates:
    """Keeps the recurrent state between chunks; one state per batch size in use."""

    def __init__(self):
        self.state = None

    def for_batch(self, n):
        if self.state is None or self.state.shape[1] != n:
            self.state = None
        return self.state

    def keep(self, h):
        self.state = h.detach()


def batch_of(data, n, length, step):
    g = torch.Generator().manual_seed(step)
    starts = torch.randint(0, len(data) - length - 1, (n,), generator=g)
    idx = starts[:, None] + torch.arange(length + 1)[None]
    chunk = data[idx]
    return chunk[:, :-1], chunk[:, 1:]


def main():
    torch.manual_seed(9)
    text = make_text(20_000, 9)
    chars = sorted(set(text))
    data = torch.tensor([chars.index(c) for c in text])
    model = CharLM(len(chars))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    curriculum, hidden = Curriculum(STEPS), HiddenStates()
    history = []
    start = time.time()
    for step in range(STEPS):
        n, length = curriculum.at(step)
        x, y = batch_of(data, n, length, step)
        logits, h = model(x, hidden.for_batch(n))
        hidden.keep(h)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        history.append(loss.item())
        if step % 20 == 0:
            print(
                f"step {step} batch {n}x{length} loss {loss.item():.4f} "
                f"mean {sum(history[-20:]) / len(history[-20:]):.4f}",
                flush=True,
            )
    print(f"done in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
