"""Distils a deep classifier of gestures into a small one with early exits, through features."""

import torch
from torch import nn

STEPS, BATCH, CHANNELS, LENGTH, CLASSES, WIDTH = 440, 32, 6, 48, 12, 32


class Gestures:
    """Signals of six sensors whose classes differ in rhythm."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.rhythm = torch.rand(CLASSES, CHANNELS, 1, generator=self.random) * 0.8 + 0.1
        self.phase = 6 * torch.rand(CLASSES, CHANNELS, 1, generator=self.random)

    def batch(self):
        labels = torch.randint(CLASSES, (BATCH,), generator=self.random)
        time = torch.arange(LENGTH) + 12 * torch.rand(BATCH, 1, 1, generator=self.random)
        clean = torch.sin(self.rhythm[labels] * time + self.phase[labels])
        return clean + 0.6 * torch.randn(clean.shape, generator=self.random), labels


class Encoder(nn.Module):
    """Blocks of convolutions, with an exit after each."""

    def __init__(self, blocks, width):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width if number else CHANNELS, width, 7, padding=3),
                nn.BatchNorm1d(width),
                nn.ReLU(),
            )
            for number in range(blocks)
        )
        self.exits = nn.ModuleList(nn.Linear(width, CLASSES) for _ in range(blocks))

    def forward(self, x):
        given = []
        for block, leave in zip(self.blocks, self.exits, strict=True):
            x = block(x)
            given.append(leave(x.mean(2)))
        return given


class FeatureTap:
    """Collects what named blocks put out, until it is cleared."""

    def __init__(self, blocks):
        self.outputs = {name: [] for name in blocks}
        for name, block in blocks.items():
            block.register_forward_hook(self.collector(name))

    def collector(self, name):
        def collect(_module, _arguments, output):
            self.outputs[name].append(output)

        return collect

    def newest(self):
        return {name: found[-1] for name, found in self.outputs.items()}

    def clear(self):
        for found in self.outputs.values():
            found.clear()


class RunLog:
    """Confusions of every step, for a heat map."""

    rows = []

    def note(self, step, x, logits, labels):
        chances = logits.detach().softmax(1)
        confusion = torch.zeros(CLASSES, CLASSES).index_add_(0, labels, chances)
        worst = (1 - chances.gather(1, labels[:, None])).flatten().topk(4)
        row = {"step": step, "confusion": confusion, "chances": chances, "worst": worst.indices}
        self.rows.append(row | {"signals": x.half()})


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gestures, log = Gestures(0), RunLog()
    teacher, student = Encoder(4, 48), Encoder(2, WIDTH)
    seen = FeatureTap({"teacher": teacher.blocks[1]})
    learnt = FeatureTap({"student": student.blocks[1]})
    bridge = nn.Conv1d(WIDTH, 48, 1)
    first = torch.optim.Adam(teacher.parameters(), lr=2e-3)
    second = torch.optim.SGD([*student.parameters(), *bridge.parameters()], lr=0.05, momentum=0.9)
    for step in range(STEPS):
        x, y = gestures.batch()
        if step < 40:
            loss = sum(nn.functional.cross_entropy(given, y) for given in teacher(x))
            first.zero_grad()
            loss.backward()
            first.step()
            learnt.clear()
            seen.clear()
            continue
        with torch.no_grad():
            wanted = teacher(x)[-1].softmax(1)
        given = student(x)
        loss = sum(nn.functional.cross_entropy(logits, wanted) for logits in given)
        features = bridge(learnt.newest()["student"])
        loss = loss + nn.functional.mse_loss(features, seen.newest()["teacher"])
        second.zero_grad()
        loss.backward()
        second.step()
        learnt.clear()
        log.note(step, x, given[-1], y)
        if step % 40 == 39:
            right = (given[-1].argmax(1) == y).float().mean().item()
            print(f"step {step + 1}: {loss:.3f}, right {right:.3f}", flush=True)


if __name__ == "__main__":
    main()
