"""A language model whose checkpoints are written by threads, which are waited for at the end."""

import tempfile
import threading
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

WORDS, WIDTH, STEPS, SAVE = 200, 128, 360, 6


class Save(threading.Thread):
    """Writes one checkpoint without holding up the training."""

    def __init__(self, state, path):
        super().__init__(daemon=True)
        self.state, self.path = state, path

    def run(self):
        torch.save(self.state, self.path)


class Checkpoints:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.saves = []

    def save(self, model, step):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        save = Save(state, self.folder / f"{step % 2}.pt")
        save.start()
        self.saves.append(save)  # feeds

    def finish(self):
        for save in self.saves:
            save.join()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(folder)
        for step in range(1, STEPS + 1):
            tokens = torch.randint(0, WORDS, (12, 33))
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % SAVE == 0:
                checkpoints.save(model, step)
            if step % 60 == 0:
                print(f"step {step}: loss {loss.item():.3f}", flush=True)
        checkpoints.finish()


if __name__ == "__main__":
    main()
