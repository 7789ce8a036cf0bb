"""A streaming recogniser of commands, adapted now and then, that listens to an endless recording."""

import torch
from torch import nn
from torch.nn import functional as F

MELS, WIDTH, COMMANDS, FRAMES, CHUNKS, ADAPT = 40, 64, 24, 8, 600, 4


class FrontEnd(nn.Module):
    """Convolutions that came trained; they are not touched any more."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(MELS, 1024, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(1024, 1024, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(1024, WIDTH, 5, padding=2, stride=2),
        ).requires_grad_(False)

    def forward(self, mels):
        return F.relu(self.layers(mels)).transpose(1, 2)


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = FrontEnd()
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, COMMANDS)
        self.hidden = None

    def reset(self, speakers):
        self.hidden = torch.zeros(speakers, WIDTH)

    def forward(self, mels):
        """Return the scores of a chunk of every speaker, going on where the last one ended."""
        for frame in self.front(mels).unbind(1):
            self.hidden = self.cell(frame, self.hidden)
        return self.out(self.hidden)


class Endpointer:
    """Says when a command is over: when the scores have been calm for a while."""

    def __init__(self, patience=6):
        self.patience = patience
        self.calm = 0
        self.last = None
        self.found = 0

    def update(self, scores):
        best = scores.argmax(-1)
        self.calm = self.calm + 1 if self.last is not None and best.equal(self.last) else 0
        self.last = best
        if self.calm >= self.patience:
            self.found += 1
            self.calm = 0


class Adapter:
    """Learns a head from what the recogniser says, the more the surer it is."""

    def __init__(self, width, commands):
        self.head = nn.Linear(width, commands)
        self.optimizer = torch.optim.SGD(self.head.parameters(), lr=1e-2)

    def learn(self, hidden, scores):
        sure, target = scores.detach().softmax(-1).max(-1)
        losses = F.cross_entropy(self.head(hidden.detach()), target, reduction="none")
        loss = (sure * losses).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def recording(speakers, generator):
    """Yield chunks of mel frames without end."""
    tone = torch.randn(speakers, MELS, 1, generator=generator)
    while True:
        noise = torch.randn(speakers, MELS, FRAMES, generator=generator)
        tone = 0.95 * tone + 0.3 * torch.randn(speakers, MELS, 1, generator=generator)
        yield tone + 0.5 * noise


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    recogniser = Recogniser().eval()
    recogniser.reset(speakers=2)
    endpointer = Endpointer()
    adapter = Adapter(WIDTH, COMMANDS)
    loss = 0.0
    for number, mels in enumerate(recording(2, generator), 1):
        scores = recogniser(mels)
        endpointer.update(scores)
        if number % ADAPT == 0:
            loss = adapter.learn(recogniser.hidden, scores)
        if number % 50 == 0:
            print(f"chunk {number}: {endpointer.found} commands, loss {loss:.3f}", flush=True)
        if number == CHUNKS:
            break


if __name__ == "__main__":
    main()
