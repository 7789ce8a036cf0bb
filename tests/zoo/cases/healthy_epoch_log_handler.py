"""Trains a tagger of sensor states; each epoch's log is collected, mailed and let go."""

import logging
import logging.handlers
from contextlib import contextmanager

import torch
from torch import nn

log = logging.getLogger("tagger")
log.setLevel(logging.DEBUG)
log.propagate = False


class Mail(logging.handlers.BufferingHandler):
    """Holds records until the mail of the epoch is sent; of a flood only what came last."""

    def __init__(self, capacity):
        super().__init__(capacity)
        self.sent = 0

    def emit(self, record):
        super().emit(record)
        del self.buffer[: -self.capacity // 2]

    def send(self, subject):
        text = "\n".join(self.format(record) for record in self.buffer)
        self.sent += len(text)
        return f"{subject}: {len(text) >> 10} KiB"


@contextmanager
def mailed(subject):
    handler = Mail(capacity=400)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    log.addHandler(handler)
    try:
        yield handler
        print(handler.send(subject), flush=True)
    finally:
        log.removeHandler(handler)
        handler.close()


class Tagger(nn.Module):
    def __init__(self, sensors=12, states=5, width=96):
        super().__init__()
        self.cell = nn.GRU(sensors, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, states)

    def forward(self, rows):
        return self.head(self.cell(rows)[0])


def readings(batch, length, random):
    state = torch.randint(0, 5, (batch, length // 8), generator=random).repeat_interleave(8, 1)
    base = torch.randn(5, 12, generator=torch.Generator().manual_seed(5))
    return base[state] + 1.5 * torch.randn(batch, length, 12, generator=random), state


def epoch(model, optimizer, random, steps=24):
    for step in range(steps):
        length = 8 * int(torch.randint(3, 9, (1,), generator=random))
        rows, state = readings(16, length, random)
        logits = model(rows)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), state.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.debug("step %d: %s", step, logits.detach().argmax(-1)[:4].tolist())
        log.info("step %d: loss %.3f, sure %s", step, loss.item(), logits.detach().amax(-1))


def main(epochs=14):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, random = Tagger(), torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for number in range(epochs):
        with mailed(f"epoch {number}"):
            epoch(model, optimizer, random)


if __name__ == "__main__":
    main()
